"""Push a mission's branch, and open a draft pull request for it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from placet.case.case import Branch, Case
from placet.client.branches import mission_of
from placet.client.notes import text_if_readable
from placet.client.site import Site
from placet.disk.errors import Unreadable
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.git.pull_request import Draft, host_of, last_address, open_draft
from placet.git.push import push_branch
from placet.git.repository import all_refs, remote_of, resolve
from placet.git.run import Repo
from placet.git.trailers import trailers_of
from placet.loop.take_over import gone
from placet.note.frontmatter import UnsafeEdit, read_note, stamp
from placet.plan.parse import parse_plan
from placet.secret_files import environment_secrets, git_config_secrets
from placet.secrets import redact


@dataclass(frozen=True, slots=True)
class Pushed:
    """A pushed branch.

    `pr` is the address of its pull request, empty without one. `opened` says that it was opened
    just now, and `create` is the address that the remote printed.
    """

    branch: str
    remote: str
    pr: str
    opened: bool
    create: str


def push_for_review(
    site: Site,
    ident: str,
    say: Callable[[str], None],
    on_progress: Callable[[str], None],
    *,
    receipt: bool = False,
) -> Pushed:
    """Push the branch of a request and open a draft for it, unless its report names one already.

    With `receipt` push the mission's receipt, too.

    `say` and `on_progress` are as in `push_branch`. Raises UserError where there is no branch to
    push or no remote, and where the remote, a hook or the program for pull requests refuses.
    """
    case, branch, repo = mission_of(site, ident)
    if resolve(repo, branch.ref) is None:
        raise gone(repo, case, branch)
    if branch.became == "merged":
        raise UserError(
            f"{branch.name} is merged already.", f"Look at it: placet show {case.request_id}"
        )
    if receipt and not branch.receipt:
        raise UserError(
            f"{case.request_id} has no receipt: its approval was not signed.",
            f"Push the branch alone: placet pr {case.request_id}",
        )
    remote, default = remote_of(repo)
    if not remote:
        raise UserError(
            f"{repo.path} has no remote to push to.",
            f"Add one: {repo.command_line} remote add origin URL",
        )
    also = branch.receipt if receipt else ""
    lines = push_branch(repo, remote, branch.name, say, on_progress, also)
    create = last_address([line for line in lines if line.startswith("remote:")])
    with Vault(site.vault) as folder:
        report = read_note(text_if_readable(folder, branch.report_path) or b"")
        if known := str(report.meta.get("pr") or ""):
            return Pushed(branch.name, remote, known, opened=False, create=create)
        refs = all_refs(repo)
        into = refs.ends_in(branch.base_branch)
        base = into if f"refs/remotes/{remote}/{into}" in refs.at else default
        address = repo.setting(f"remote.{remote}.url") or ""
        title, body = _words(site, case, branch, repo, report.body)
        draft = Draft(host_of(address), branch.name, base, title, body)
        if opened := open_draft(repo, draft):
            try:
                folder.edit(branch.report_path, lambda raw: stamp(raw, {"pr": opened}))
            except (Unreadable, UnsafeEdit) as error:
                say(f"The report does not name the pull request: {error}")
    return Pushed(branch.name, remote, opened, opened=bool(opened), create=create)


def _words(site: Site, case: Case, branch: Branch, repo: Repo, report: str) -> tuple[str, str]:
    """Return title and body: what was done and why, checks, cost, trailers; without secrets."""
    with site.reader(case.trace_id) as reader:
        text = reader.text(branch.digest) if branch.digest else None
    plan = None if text is None else parse_plan(read_note(text).body, None)
    above = _ABOVE.match(report)
    doubts = _MARKS.sub("- ", above["doubts"] or "") if above is not None else ""
    last = branch.tip if resolve(repo, branch.tip) else branch.ref
    digest, approved_by = trailers_of(repo, last, "Placet-Plan", "Approved-By")
    parts = [
        above["summary"] if above is not None else "",
        f"Why: {plan.summary}" if plan is not None else "",
        f"## Checks\n\n{doubts}\n\nCommands that ran:\n\n{_section(report, 'Commands Run')}",
        f"## Cost\n\n{_section(report, 'Cost')}",
        f"Placet-Trace: {case.trace_id}\nPlacet-Plan: {digest}\nApproved-By: {approved_by}",
    ]
    secrets = (
        *environment_secrets(os.environ),
        *git_config_secrets((repo.common_dir / "config").read_text(errors="replace")),
    )
    title = case.request.title if plan is None else plan.title
    body = "\n\n".join(re.sub(r"\n{3,}", "\n\n", part).strip() for part in parts if part)
    return redact(title, secrets)[0], redact(f"{body}\n", secrets)[0]


# What a report says above its sections: the title, the callout about checks, the agent's summary.
_ABOVE = re.compile(
    r"\s*# [^\n]*\n+(?P<doubts>> \[!(?:warning|info)\][^\n]*\n(?:> [^\n]*\n)*)?"
    r"(?P<summary>.*?)(?=^## |\Z)",
    re.MULTILINE | re.DOTALL,
)
_MARKS = re.compile(r"^> (?:\[!\w+\]|-) ", re.MULTILINE)


def _section(report: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", report, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else "Not known."
