"""What the command line does to a vault and reads from the journal.

People's gestures go through the vault, as if made by hand: the daemon, running or not, finds them
there. Reading goes through a read-only connection; nothing here writes the journal.
"""

from __future__ import annotations

import errno
import getpass
import os
import re
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from decimal import Decimal
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path, PurePosixPath
from shlex import join, quote
from typing import TYPE_CHECKING, Any, Literal

from placet.agent.day_budget import used_today
from placet.cli.configured import Configured, configured, unknown
from placet.cli.glance import Glance, Undecided, glance
from placet.core.activity import Action, CommittedRow, local, rfc3339
from placet.core.errors import ToolError, UserError
from placet.core.life.case import CASE_JSON, OPEN, WORKING, Case, NoteSeen, State
from placet.core.life.notice import lost_keys
from placet.core.life.observe import DRAFT, look_at, refusal
from placet.core.life.plan_note import below, plan_digest
from placet.core.life.request import RequestProblems, read_request, title_of
from placet.core.life.waiting import Hold, Why
from placet.core.life.why import standing
from placet.core.life.why_failed import (
    against_estimate,
    of_last_mission,
    proof,
    ready_request,
    remains,
    row_line,
    timeline,
    tried,
    verdict,
)
from placet.core.text.blocks import Frontmatter
from placet.core.text.comments import with_comment
from placet.core.text.dangers import dangers
from placet.core.text.names import (
    CONFIG_PATH,
    MARKER,
    QUEUES,
    Folder,
    active_name,
    plan_name,
    rejected_name,
    request_id,
)
from placet.core.text.names import show as visible
from placet.core.text.note import REQUEST_STAMPS, digest, read_note, stamp
from placet.core.text.plan_reader import parse_plan
from placet.core.text.scalars import UnsafeEdit
from placet.core.turn.budget import Amount
from placet.core.turn.talk import ModelError, ModelErrorKind
from placet.files.vault import (
    AlreadyThere,
    Changed,
    Gone,
    NotAFile,
    NotSettled,
    Stale,
    TooLarge,
    Vault,
    VaultTrouble,
)
from placet.host.acts import Word, leave_word
from placet.host.clock import Clock
from placet.host.lock import lock_holder
from placet.host.state import known_vaults, state_home, vault_state, write_private
from placet.journal.maintenance import examine
from placet.journal.reader import Reader, open_reader, query
from placet.journal.writes import BodyDamaged, CommittedActivity

if TYPE_CHECKING:
    from placet.host.accepted import InForce
    from placet.models import ModelSettings

FOLLOW_STEP_S = 0.2
OVER = (State.COMPLETED, State.FAILED, State.REJECTED, State.WITHDRAWN)
NO_ROOM = 64 * 1024
"""With fewer bytes than these free a disk is full: not even a small event fits into the journal's log."""
LATEST = 20
"""Cases that are over are shown up to so many of each state, the last ones."""
LAST = 50
"""Rows of the journal that are shown unless another number is asked for."""


def submit(vault: Path, text: str, *, title: str | None, meta: Mapping[str, Any]) -> str:
    """Drop a request into the vault; return the note's path in it.

    `meta` goes into its frontmatter. The name is the title's; a name that is taken gets a number.
    """
    from placet.agent.prompts import agents
    from placet.host.config import load

    if not text.strip():
        raise UserError("The request is empty.", "Say what you want done.", exit_code=2)
    config = load(vault)
    # the text may be a whole note, frontmatter and all
    said = read_note(text.encode()).body.strip()
    name = _file_name(
        title or title_of("request.md", said if said.startswith("#") else "# " + said)
    )
    raw = text.encode()
    if not raw.endswith(b"\n"):
        raw += b"\n"
    if meta:
        with _can_be_edited("The request"):
            raw = stamp(raw, dict(meta), kind_if_none=Frontmatter(config.vault.frontmatter))
    try:  # whoever types it hears at once what the daemon would say beside the note
        read_request(
            f"{name}.md",
            read_note(raw),
            agents(vault),
            config.portals,
            config.vault.default_agent,
            config.vault.own_keys,
        )
    except RequestProblems as found:
        raise UserError(
            "\n  ".join(["The request cannot be used:", *found.problems]),
            "Nothing was written. Mend it, then try again.",
            exit_code=2,
        ) from found
    with Vault(vault) as folder:
        folder.ensure_folders()
        for n in range(1, 1000):
            path = f"{Folder.REQUESTS}/{name}{'' if n == 1 else f' {n}'}.md"
            try:
                if folder.publish(path, raw, in_whole=True):
                    return path
            except AlreadyThere:
                continue
    raise UserError(
        f"There are a thousand requests named {name!r} already.", "Give another --title."
    )


def proposal(vault: Path, env: Mapping[str, str], ident: str) -> dict[str, Any]:
    """Return what `approve` would approve: the plan's title, where it works, what it may do, what stands out, and its digest.

    Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    from placet.host.accepted import in_force
    from placet.host.config import portal_path
    from placet.tools.registry import PLANNABLE

    with _reader(vault, env, ident) as reader:
        case = find(reader, ident)
    _must_await(case, "approved")
    with Vault(vault) as folder:
        raw = _text(folder, case.plan_path)
    if raw is None:
        raise _not_there_any_more(case)
    note = _approvable(case, raw)
    config = in_force(vault, env).config
    plan = parse_plan(read_note(raw).body, PLANNABLE)
    portal = str(note.meta.get("portal") or "")
    place = (
        str(portal_path(vault, config, portal)) if not portal or portal in config.portals else ""
    )
    scope = plan.scope
    return {
        "request_id": case.request_id,
        "title": plan.title,
        "digest": note.digest,
        "edited": note.digest != case.plan_digest,
        "portal": portal,
        "repository": place,
        "branch": f"feat/{case.request_id}-{case.trace8}",
        "base": case.base_branch or str(note.meta.get("base_commit") or "")[:12],
        "steps": [step.title for step in plan.steps],
        "write": list(scope.write),
        "run": [join(argv) for argv in scope.run],
        "network": scope.network,
        "shell": scope.shell,
        "budget_usd": _float(scope.budget_usd),
        "dangers": dangers(scope),
        "risks": list(plan.risks),
    }


def approve(vault: Path, env: Mapping[str, str], ident: str, bound: str = "") -> str:
    """Move a plan to System/Active, naming who approves; return where it is now.

    `bound` is the digest of what was read, or its beginning: a plan that says something else by now
    is not approved. Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    with _reader(vault, env, ident) as reader:
        case = find(reader, ident)
    _must_await(case, "approved")
    if bound and not re.fullmatch("[0-9a-f]{8,64}", bound):
        raise UserError(
            f"{bound!r} is no digest.",
            f"Give at least eight of its digits; they are in: placet show {case.request_id}",
            exit_code=2,
        )

    def approved(raw: bytes) -> bytes:
        note = _approvable(case, raw)
        if not note.digest.startswith(bound):
            raise UserError(
                f"{case.plan_path} is not what you read: its digest is {note.digest[:12]}, not {bound[:12]}.",
                f"Somebody changed it. Read it as it is now: placet show {case.request_id}",
            )
        return raw

    return _change(
        vault,
        case,
        approved,
        f"{Folder.ACTIVE}/{active_name(case.request_id)}",
        word=_says(vault, env, case, "approve"),
    )


def _approvable(case: Case, raw: bytes) -> NoteSeen:
    from placet.tools.registry import PLANNABLE

    note = look_at(case.plan_path, raw, "")
    if why := note.problem or lost_keys(case, note) or refusal(case, note, PLANNABLE):
        raise UserError(
            f"{case.plan_path} cannot be approved: {why}", f"Read it: placet show {case.request_id}"
        )
    return note


def retry(vault: Path, env: Mapping[str, str], ident: str, remarks: Sequence[str]) -> str:
    """Ask for a new plan of a request that failed or was rejected; return the request's path.

    The remarks are written into the request, where the next planning reads them with it.
    """
    if not all(remark.strip() for remark in remarks):
        raise UserError(
            "The comment is empty.",
            "Say what to do differently: --comment 'leave the tests alone'",
            exit_code=2,
        )
    with Vault(vault) as folder, _reader(vault, env, ident) as reader:
        seen = _seen_now(vault, env, folder, reader, [found := find(reader, ident)])
        case = seen.cases[found.trace_id]
    if case.state not in (State.FAILED, State.REJECTED):
        if (undecided := seen.undecided.get(case.trace_id)) is not None:
            raise UserError(
                f"{_since(replace(undecided, at=''))}.",
                "The daemon runs and looks within seconds; ask again then."
                if daemon_runs(vault, env)
                else "Start the daemon, and ask again then: placet run",
                exit_code=3,
            )
        helps = (
            f"Ask for changes: placet revise {case.request_id} --comment C"
            if case.state is State.REVIEW
            else "Drop a new request: placet submit"
            if case.state in (State.COMPLETED, State.WITHDRAWN)
            else f"See why it is where it is: placet why {case.request_id}"
        )
        raise UserError(
            f"{case.request_id} is {case.state}, so there is nothing to try again.",
            helps,
            exit_code=3,
        )
    if not case.request_path:
        raise UserError(
            f"The request of {case.request_id} was taken away.",
            f"Drop it again, or go on from where it broke: placet why {case.request_id} --request",
            exit_code=3,
        )
    who, at = user(), local(Clock().now())

    def asking(raw: bytes) -> bytes:
        body = text = read_note(raw).body
        for remark in remarks:
            text = with_comment(text, remark, who, at)
        return stamp(raw[: len(raw) - len(body.encode())] + text.encode(), {"status": "pending"})

    target = case.request_path
    if not target.startswith(f"{Folder.REQUESTS}/"):
        target = f"{Folder.REQUESTS}/{PurePosixPath(target).name}"
    return _change(
        vault,
        case,
        asking,
        target,
        of=case.request_path,
        word=lambda raw: leave_word(
            vault_state(vault, env).acts,
            case.trace_id,
            Word("retry", digest(raw, REQUEST_STAMPS), user(), "cli"),
        ),
    )


def reject(vault: Path, env: Mapping[str, str], ident: str, reason: str) -> str:
    """Move a plan to Inbox/Rejected with the reason; return where it is now."""
    if not reason.strip():
        raise UserError("The reason is empty.", "Say why: --reason 'it is too broad'", exit_code=2)
    with _reader(vault, env, ident) as reader:
        case = find(reader, ident)
    _must_await(case, "rejected")
    return _change(
        vault,
        case,
        lambda raw: stamp(raw, {"rejection_reason": reason}),
        f"{Folder.REJECTED}/{rejected_name(case.request_id)}",
        word=_says(vault, env, case, "reject"),
    )


def revise(vault: Path, env: Mapping[str, str], ident: str, remarks: Sequence[str]) -> str:
    """Write review comments into a plan and ask for a revision; return the plan's path."""
    if not all(remark.strip() for remark in remarks):
        raise UserError(
            "The comment is empty.",
            "Say what to change: --comment 'leave the tests alone'",
            exit_code=2,
        )
    with _reader(vault, env, ident) as reader:
        case = find(reader, ident)
    if case.state not in (State.REVIEW, State.REVISING):
        raise UserError(
            f"{case.request_id} is {case.state}, so there is no plan to comment on.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )
    who = user()
    at = local(Clock().now())

    def commented(raw: bytes) -> bytes:
        body = text = read_note(raw).body
        for remark in remarks:
            text = with_comment(text, remark, who, at)
        head = raw[: len(raw) - len(body.encode())]
        return stamp(head + text.encode(), {"status": "needs_revision"})

    return _change(vault, case, commented, case.plan_path, word=_says(vault, env, case, "revise"))


def stop(vault: Path, env: Mapping[str, str], ident: str) -> str:
    """Take an approved or running plan back to Inbox/Plans, which stops its mission.

    Return where it is now.
    """
    with _reader(vault, env, ident) as reader:
        case = find(reader, ident)
    if case.state not in (State.APPROVED, State.RUNNING):
        raise UserError(
            f"{case.request_id} is {case.state}, so there is nothing to stop.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )
    return _change(vault, case, lambda raw: raw, f"{Folder.PLANS}/{plan_name(case.request_id)}")


def in_sandbox(
    folder: Path,
    env: Mapping[str, str],
    argv: Sequence[str],
    *,
    network: bool,
    say: Callable[[str], None],
) -> int:
    """Run a command in the agent's box, with `folder` as the worktree and the terminal as it is.

    Return its exit code.

    Raises UserError (exit code 2) for a folder in which the command could approve something, or
    change what is no worktree's.
    """
    from placet.sandbox.probe import probe
    from placet.sandbox.process import exec_in_box
    from placet.sandbox.values import Box, Level

    if what := _no_worktree(folder.resolve(), env):
        raise UserError(
            f"{visible(str(folder))} {what}, and the command could change all of this folder.",
            "Go to the repository, or an empty folder, that it may write in, then try again.",
            exit_code=2,
        )
    level = probe().level
    if level is Level.NONE:
        raise UserError(
            "This machine has no sandbox.",
            "Install bubblewrap; `placet doctor` says what is missing.",
        )
    say(f"{level.title} (level {int(level)} of 3)")
    try:
        return exec_in_box(argv, Box(folder.resolve(), network=network), level)
    except ToolError as error:
        raise UserError(f"{error}", "Name a program that is on your PATH.", exit_code=2) from error


def _no_worktree(folder: Path, env: Mapping[str, str]) -> str:
    """Say why a folder must not be writable in the box, empty if it may be."""
    for vault in (place for place in (folder, *folder.parents) if (place / CONFIG_PATH).is_file()):
        if folder == vault:
            return "is a vault, where a file that is moved is an approval"
        if folder.relative_to(vault).parts[0] in ("Inbox", "System", ".obsidian", ".git"):
            return f"belongs to the vault {visible(str(vault))}, where a file that is moved is an approval"
    for what, places in (
        ("your home folder", [Path(env.get("HOME") or "/")]),
        ("a vault", known_vaults(env)),
        ("placet's state", [state_home(env)]),
    ):
        if any(place.resolve().is_relative_to(folder) for place in places):
            return (
                f"has {what} in it"
                if folder not in (place.resolve() for place in places)
                else f"is {what}"
            )
    return "is placet's state" if folder.is_relative_to(state_home(env).resolve()) else ""


LOCK_IS_OLD_S = 600.0
"""A git holds a lock for milliseconds.

For longer where it packs a large repository, or a person writes its commit message.
"""


def _found(what: str, state: str, found: str, helps: str = "") -> dict[str, str]:
    return {"what": what, "state": state, "found": found, "helps": helps}


def _model_line(settings: ModelSettings, env: Mapping[str, str]) -> dict[str, str]:
    """Return what the model's server says of key and model.

    A server that cannot be reached says nothing of them.
    """
    from placet.models import check, open_model

    if settings.provider == "scripted":
        return _found(
            "model", "warn", "scripted: replies are replayed from a file, no model is asked"
        )
    try:
        open_model(settings, env)
    except ModelError as error:
        return _found("model", "bad", str(error))
    except UserError as error:
        return _found("model", "bad", error.what, error.hint)
    try:
        known = check(settings, env)
    except ModelError as error:
        if error.kind is ModelErrorKind.TRANSIENT:
            return _found(
                "model",
                "warn",
                f"not checked: {error}",
                "Nothing that it needs is missing here. Try again once its server can be reached.",
            )
        return _found("model", "bad", str(error))
    name = f"{settings.name} ({settings.provider})"
    if not known:
        return _found(
            "model",
            "warn",
            f"{name}: its server answers, and does not say whether key and name are right",
        )
    return _found("model", "good", f"{name}: its server takes the key and knows the model")


def look_at_git() -> dict[str, str]:
    """Return what `doctor` says of git: where it is, and whether it is new enough."""
    from placet.repo.runner import MINIMUM_GIT, git_found

    try:
        git, version, new_enough = git_found()
    except UserError as error:
        return _found("git", "bad", error.what, error.hint)
    if not new_enough:
        return _found(
            "git",
            "bad",
            f"{git}, version {version}",
            f"Install git {'.'.join(map(str, MINIMUM_GIT))} or newer.",
        )
    return _found("git", "good", f"{git}, version {version}")


def doctor(vault: Path, env: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what placet needs, each with `state` good, warn or bad, what was found, and what helps."""
    from placet.cli.portals import problem_of
    from placet.host.accepted import in_force
    from placet.host.config import Config, portal_path, repositories
    from placet.models import ModelSettings
    from placet.repo.repository import old_locks, open_repo
    from placet.sandbox.probe import probe
    from placet.sandbox.values import Level

    lines: list[dict[str, str]] = []

    def line(what: str, state: str, found: str, helps: str = "") -> None:
        lines.append(_found(what, state, found, helps))

    state = vault_state(vault, env)
    line("vault", "good", str(vault))
    try:
        held = in_force(vault, env)
    except UserError as error:
        line("configuration", "bad", error.what, error.hint)
        config = Config()  # so that the rest can be looked at
    else:
        config = held.config
        line("configuration", "good", "every setting can be used")
        if held.refused:
            line("settings", "warn", held.problem)
    with Vault(vault) as folder:
        for problem in folder.scan(QUEUES).problems:
            line(
                "folder",
                "bad",
                f"{problem.path}: {problem.why}",
                "Put it back where it was, or make it anew: placet init. Until then nothing counts as taken away.",
            )
        for trouble in folder.try_writing():
            line(
                "vault",
                "bad",
                f"{trouble.path} cannot be written: {os.strerror(trouble.errno)}",
                _helps_to_write(vault / trouble.path, trouble.errno),
            )
        if os.path.lexists(vault / MARKER) and not folder.has_marker():
            line(
                "id",
                "bad",
                f"{vault / MARKER} holds no id",
                "Delete it, then: placet init. It gets its old id back.",
            )
    if state.folder.is_dir():
        try:
            write_private(state.folder / "doctor", bytes(NO_ROOM))
            (state.folder / "doctor").unlink()
        except OSError as error:
            line(
                "state",
                "bad",
                f"{state.folder} cannot be written: {error.strerror}",
                _helps_to_write(state.folder, error.errno or errno.EIO),
            )
    lines.append(look_at_git())
    wall = probe()
    open_attacks = [f.attack for f in wall.findings if not f.blocked and f.level is wall.level]
    gaps = f"; known gaps: {', '.join(open_attacks)}" if open_attacks else ""
    line(
        "sandbox",
        "bad" if wall.level is Level.NONE else "good",
        f"{wall.level.title} (level {int(wall.level)} of 3){gaps}",
        'Install bubblewrap and allow user namespaces, or write sandbox = "none" under [commands].'
        if wall.level is Level.NONE
        else "",
    )
    if os.geteuid() == 0:
        line(
            "user",
            "warn",
            "root: the kernel does not count root's processes, and files of its making are root's",
            "Run placet as yourself.",
        )
    if lines[1]["state"] == "good":  # else nobody knows which
        lines.append(
            _model_line(
                ModelSettings(config.model.provider, config.model.name, config.model.base_url), env
            )
        )
    for name, portal in config.portals.items():
        place = portal_path(vault, config, name)
        wrong = problem_of(vault, place)
        line(
            f"portal {name}",
            "bad" if wrong else "good",
            wrong or str(place),
            f"Mend that, or its path in {CONFIG_PATH}: {portal.path}" if wrong else "",
        )
    before = Clock().wall() - timedelta(seconds=LOCK_IS_OLD_S)
    for place in repositories(vault, config):
        # what is wrong with a portal was said above, and a vault need be no repository
        with suppress(UserError):
            for lock, when in old_locks(open_repo(place), before).items():
                line(
                    "lock",
                    "warn",
                    f"{visible(str(lock))} is there since {rfc3339(when)}",
                    f"A git is at work there, or was killed. If none runs in that repository: rm {quote(str(lock))}",
                )
    holder = lock_holder(state.lock)
    line(
        "daemon",
        "good" if holder else "warn",
        f"running: {holder}" if holder else "not running",
        "" if holder else "placet run",
    )
    if config.daemon.paused:
        line("work", "warn", "paused", "placet resume")
    if state.journal.exists():
        try:
            damage = examine(state.journal, state.mark)[2]
            full = "\n".join(_disk_trouble(state.journal))
            line(
                "journal", "bad" if damage or full else "good", damage or full or str(state.journal)
            )
            with open_reader(state.journal) as reader:
                live = {row.trace_id[:8] for row in reader.cases(*WORKING)}
        except UserError as error:  # a disk that is full or read-only
            line("journal", "bad", error.what, error.hint)
            return lines
        left = (
            [
                p.name
                for p in state.worktrees.iterdir()
                if p.is_dir() and not any(t in p.name for t in live)
            ]
            if state.worktrees.is_dir()
            else []
        )
        if left:
            line(
                "worktrees",
                "warn",
                f"left over from a crash: {', '.join(sorted(left)[:5])}",
                f"They are in {state.worktrees}. Remove them, with their work kept at a ref: placet doctor --fix",
            )
    else:
        line("journal", "warn", "there is none yet", "placet run")
    return lines


def _helps_to_write(place: Path, number: int) -> str:
    """Return what helps where the system says this (an errno) of writing in a folder, with the next command."""
    name = quote(str(place))
    match number:
        case errno.ENOSPC:
            return f"Its disk is full. See which one that is: df -h {name}. Free some space there; what waits goes on by itself."
        case errno.EDQUOT:
            return "Your share of its disk is used up. See it: quota -s. Free some space there; what waits goes on by itself."
        case errno.EROFS:
            return (
                f"Its file system is mounted read-only. See which one that is: df {name}. Then mount it writable: "
                "sudo mount -o remount,rw MOUNTPOINT. If it becomes read-only by itself, the disk is failing: dmesg."
            )
        case errno.EACCES | errno.EPERM:
            return (
                f"You may not write there. See whose it is: ls -ld {name}. Then: chmod u+rwx {name}, or as root: "
                f"chown {quote(user())} {name}"
            )
        case _:
            return f"See what the system says of that disk: df {name}, dmesg. Keep a copy of what is on it."


def notify_test(vault: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    """Send a notice every way that is on, as accepted on this machine; return what went wrong."""
    from placet.host.accepted import in_force
    from placet.host.notify import Event, Notice, NotifySettings, send

    held = in_force(vault, env)
    if any(key[0] == "notify" for key in held.refused):
        raise UserError(held.problem)
    table = held.config.notify
    settings = NotifySettings(table.desktop, table.command, table.webhook)
    if not settings.is_on:
        raise UserError(
            "No way of notifying is on.",
            "Set desktop, command or webhook under [notify] in System/placet.toml.",
            exit_code=2,
        )
    return send(Notice(Event.TEST, "", "", vault.name, "Home.md"), settings)


def settings(vault: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that hold, and those of the file that do not because nobody accepted them on this machine."""
    from placet.host.accepted import in_force

    held = in_force(vault, env)
    return {"settings": held.config.model_dump(mode="json"), "unaccepted": _unaccepted(held)}


def setting(vault: Path, env: Mapping[str, str], name: str) -> Any:
    """Return one setting that holds, or a table of them.

    Raises UserError (exit code 2) where there is none of that name.
    """
    from placet.host.accepted import in_force

    found: Any = in_force(vault, env).config.model_dump(mode="json")
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            raise UserError(
                f"There is no setting {visible(name)}.", "See them all: placet config", exit_code=2
            )
        found = found[part]
    return found


def change_setting(vault: Path, env: Mapping[str, str], name: str, given: str) -> Any:
    """Write one setting, which accepts it on this machine; return its value.

    `given` is TOML, or else a text.

    Raises UserError (exit code 2) for a name or a value that cannot be used; nothing is changed
    then.
    """
    from placet.host.accepted import change
    from placet.host.config import with_setting

    key = tuple(name.split("."))
    if len(key) < 2:
        raise UserError(
            f"{visible(name)} is no setting.",
            "Name one with its table, as in daemon.paused.",
            exit_code=2,
        )
    try:
        value = tomllib.loads(f"value = {given}")["value"]
    except tomllib.TOMLDecodeError:
        value = given
    change(vault, env, with_setting(vault, key, value), [key])
    return value


def unaccepted(vault: Path, env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the settings that do not hold because nobody accepted them on this machine, as they are written and as they hold.

    Raises UserError where the daemon did not run on this vault yet: its first start accepts what is there.
    """
    from placet.host.accepted import in_force

    held = in_force(vault, env)
    if not held.settled:
        raise UserError(
            "The daemon has not run on this vault yet: its first start accepts what is there.",
            "placet run",
        )
    return _unaccepted(held)


def _unaccepted(held: InForce) -> list[dict[str, Any]]:
    return [
        {"key": name, "written": held.written.get(key), "holds": held.accepted.get(key)}
        for key, name in zip(held.refused, held.names, strict=True)
    ]


def accept_settings(
    vault: Path, env: Mapping[str, str], shown: Sequence[Mapping[str, Any]]
) -> None:
    """Accept the settings that a person was shown.

    Raises UserError where they say something else by now.
    """
    from placet.host.accepted import accept, holding
    from placet.host.config import load

    config = load(vault)
    held = holding(config, vault_state(vault, env))
    if _unaccepted(held) != list(shown):
        raise UserError(f"{CONFIG_PATH} was changed meanwhile.", "Look again: placet config accept")
    accept(vault_state(vault, env), config, held.refused)


def _must_await(case: Case, done: str) -> None:
    if case.state in (State.REVIEW, State.REVISING) or (
        case.state is State.FAILED and case.plan_path
    ):
        return
    can_be_stopped = case.state in (State.APPROVED, State.RUNNING) and done == "rejected"
    helps = (
        f"Take it back first: placet stop {case.request_id}"
        if can_be_stopped
        else f"See why: placet why {case.request_id}"
    )
    raise UserError(
        f"{case.request_id} is {case.state}, so there is no plan that could be {done}.",
        helps,
        exit_code=3,
    )


def _says(
    vault: Path, env: Mapping[str, str], case: Case, what: Literal["approve", "reject", "revise"]
) -> Callable[[bytes], AbstractContextManager[None]]:
    """Return what leaves word for the daemon that this user decides so of the text that a plan gets."""
    return lambda raw: leave_word(
        vault_state(vault, env).acts, case.trace_id, Word(what, plan_digest(raw), user(), "cli")
    )


def _change(
    vault: Path,
    case: Case,
    change: Callable[[bytes], bytes],
    target: str,
    *,
    of: str = "",
    word: Callable[[bytes], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> str:
    """Change the case's plan, or its note `of`, and move it to `target`, believing in what was read; return `target`.

    `word` holds while that is done, for the text that the note gets.
    """
    path = of or case.plan_path
    with Vault(vault) as folder:
        for _ in range(5):
            try:
                raw, _fingerprint = folder.read(path)
                with _can_be_edited(path):
                    text = change(raw)
                with word(text):
                    folder.replace(path, sha256(raw).hexdigest(), text)
                    if target != path:
                        folder.move(path, target, sha256(text).hexdigest())
            except (Changed, NotSettled):
                continue
            except Gone as error:
                raise _not_there_any_more(case, path) from error
            except AlreadyThere as error:
                raise UserError(
                    f"{target} is there already.", "Move that note away first."
                ) from error
            return target
    raise UserError(f"{path} keeps changing.", "Close the editor that has it open, then try again.")


def _not_there_any_more(case: Case, path: str = "") -> UserError:
    return UserError(
        f"{path or case.plan_path} is not there any more: somebody has moved it.",
        f"See where it lies, and what follows: placet why {case.request_id}",
    )


@contextmanager
def _can_be_edited(what: str) -> Iterator[None]:
    try:
        yield
    except UnsafeEdit as error:
        raise UserError(f"{what}: {error}", "Mend its frontmatter, then try again.") from error


def case_of(vault: Path, env: Mapping[str, str], ident: str) -> Case:
    """Return the case that an ID names; raises UserError as `find` does."""
    with _reader(vault, env, ident) as reader:
        return find(reader, ident)


def find(reader: Reader, ident: str) -> Case:
    """Return the case that an ID names: a request_id, or any unique beginning of one or of a trace_id.

    Raises UserError (exit code 3) where none or several fit.
    """
    found = [CASE_JSON.validate_json(row.body) for row in reader.cases_named(ident)]
    if not found:
        near = get_close_matches(ident, reader.request_ids(NEAR_AMONG), n=3)
        raise UserError(
            f"There is no request, plan or mission {ident!r}.",
            f"Did you mean {' or '.join(near)}?" if near else "See them all: placet status",
            exit_code=3,
        )
    if len(found) > 1:
        raise UserError(
            f"{ident!r} fits several: {', '.join(case.request_id for case in found)}.",
            "Give more of the request_id, or of the trace_id.",
            exit_code=3,
        )
    return found[0]


NEAR_AMONG = 1_000
"""Among how many requests, the last ones, a similar name is looked for."""


def _raise(error: UserError) -> None:
    raise error


def _settings(vault: Path, env: Mapping[str, str], warn: Callable[[UserError], None]) -> Configured:
    """Return the settings that those who look need.

    Where the file cannot be used `warn` is told, and may raise that.
    """
    try:
        return configured(vault, env)
    except UserError as error:
        if not (vault / CONFIG_PATH).is_file():  # it is no vault
            raise
        warn(error)
        return unknown()


def status(
    vault: Path, env: Mapping[str, str], warn: Callable[[UserError], None] = _raise
) -> dict[str, Any]:
    """Return what the daemon is at: itself, and every case that is not over, with the ones that ended last.

    `earlier` is how many cases are left out: they are over, and none of their notes lies in a watched folder. `warn` is told of a
    configuration that cannot be used; provider and model are empty then.
    """
    state = vault_state(vault, env)
    config = _settings(vault, env, warn)
    cases: list[dict[str, Any]] = []
    earlier = 0
    unusable: dict[str, str] = {}
    stuck: list[str] = []
    today, waits = Amount(), None
    with Vault(vault) as folder:
        if state.journal.exists():
            with open_reader(state.journal) as reader:
                pending = reader.pending_commands()
                rows = {
                    *reader.cases(*OPEN),
                    *(row for over in OVER for row in reader.latest_cases(over, LATEST)),
                }
                rows.update(reader.cases_of(paths=folder.scan(QUEUES).found.keys()))
                earlier = reader.count_cases() - len(rows)
                seen = _seen_now(
                    vault,
                    env,
                    folder,
                    reader,
                    [
                        CASE_JSON.validate_json(row.body)
                        for row in sorted(rows, key=lambda row: row.trace_id)
                    ],
                )
                cases = [
                    _line(
                        reader,
                        case,
                        seen.undecided.get(trace),
                        _held_back(folder, reader, case, config.quiet_s),
                    )
                    for trace, case in seen.cases.items()
                ]
                today = used_today(reader, Clock().wall())
                waits = _waits(reader)
                unusable = {row.path: row.detail for row in reader.seen() if row.verdict}
                stuck = [
                    *_disk_trouble(state.journal),
                    *sorted({command.error for command in pending if command.error}),
                ]
            listed = seen.listed
        else:
            listed = frozenset(folder.scan([Folder.REQUESTS]).found)
    known = {visible(path) for c in cases for path in (c["request"], c["plan"])} | unusable.keys()
    new = sorted(visible(path) for path in listed if path.startswith(f"{Folder.REQUESTS}/"))
    cases.sort(key=lambda c: c["since"])
    return {
        "vault": str(vault),
        "daemon": lock_holder(state.lock),
        "provider": config.provider,
        "model": config.model,
        "paused": config.paused,
        "waits": waits,
        "stuck": stuck,
        "cases": cases,
        "earlier": earlier,
        "unaccepted": list(config.unaccepted),
        "explained": unusable,
        "not_taken_up": [path for path in new if path not in known],
        "today": {
            "tokens": today.tokens,
            "cost_usd": _float(today.usd),
            "day_tokens": config.day_tokens or None,
            "day_usd": _float(config.day_usd) or None,
        },
    }


def _disk_trouble(journal: Path) -> list[str]:
    """Return why the daemon cannot write its journal, as far as the disk shows it: at most a sentence."""
    disk = os.statvfs(journal.parent)
    why = (
        "is mounted read-only"
        if disk.f_flag & os.ST_RDONLY
        else "is full"
        if disk.f_bavail * disk.f_frsize < NO_ROOM
        else ""
    )
    return (
        [
            f"The disk of {journal.parent}, where the journal is, {why}. What cannot be written down waits, nothing is lost, "
            "and it goes on by itself when that is mended."
        ]
        if why
        else []
    )


def _waits(reader: Reader) -> dict[str, str] | None:
    """Return why all work waits for the model and since when, None where it does not."""
    row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id="")
    if row is None or row.action_type != Action.MODEL_WAITING:
        return None
    why, reason = Why(row.details["why"]), row.details["reason"]
    # a key that was given may be a wrong one, and then the network may be down
    if why is Why.BLOCKED:
        reason = reader.calls.failed_since(row.id) or reason
    return {
        "why": why.value,
        "reason": reason,
        "since": row.timestamp,
        "notice": Hold(why, reason, 0.0).notice,
    }


def _float(usd: Decimal | None) -> float | None:
    return None if usd is None else float(usd)


def naming(vault: Path, env: Mapping[str, str], portal: str) -> list[str]:
    """Return a sentence on each request that still needs a portal: its work is not over, or nobody merged or dropped its branch."""
    state = vault_state(vault, env)
    if not state.journal.exists():
        return []
    with open_reader(state.journal) as reader:
        cases = [
            CASE_JSON.validate_json(row.body)
            for row in sorted(
                {*reader.cases(*OPEN), *reader.watched_cases()}, key=lambda row: row.trace_id
            )
        ]
    return [
        *(
            f"{case.request_id} ({case.state}) names it, and cannot be carried out without it."
            for case in cases
            if case.portal == portal and (case.state in WORKING or case.state is State.REVIEW)
        ),
        *(
            f"{case.request_id} has the branch {branch.name} there: what becomes of it is not seen any more."
            for case in cases
            for branch in case.watched
            if branch.portal == portal and not branch.became
        ),
    ]


def daemon_runs(vault: Path, env: Mapping[str, str]) -> bool:
    """Say whether a daemon works on this vault now."""
    return lock_holder(vault_state(vault, env).lock) is not None


def plans(
    vault: Path, env: Mapping[str, str], warn: Callable[[UserError], None] = _raise
) -> list[dict[str, Any]]:
    """Return the plans that await a decision, oldest first.

    One that failed, or could not be revised, awaits it as it was.
    """
    return [
        c
        for c in status(vault, env, warn)["cases"]
        if c["undecided"] is None
        and (
            c["state"] == State.REVIEW
            or (c["state"] == State.FAILED and c["plan"].startswith(f"{Folder.PLANS}/"))
        )
    ]


def show(
    vault: Path, env: Mapping[str, str], ident: str, warn: Callable[[UserError], None] = _raise
) -> dict[str, Any]:
    """Return all there is about one case: where it stands, its plan's text, its report's, its journal. `warn` is as in `status`."""
    with Vault(vault) as folder, _reader(vault, env, ident) as reader:
        case = find(reader, ident)
        rows = [_row(row) for row in reader.activity(case.trace_id, limit=10_000)]
        seen = _seen_now(vault, env, folder, reader, [case])
        case = seen.cases[case.trace_id]
        line = _line(
            reader,
            case,
            seen.undecided.get(case.trace_id),
            _held_back(folder, reader, case, _settings(vault, env, warn).quiet_s),
        )
        approved = _kept(reader, case.approved_digest) if case.approved_digest else None
        asked = _kept(reader, case.request_digest) if case.request_digest else None
        plan = approved or (_text(folder, case.plan_path) if case.plan_path else None)
        # emptied: whoever did may want it back
        if plan is not None and not below(read_note(plan).body)[1].strip():
            plan = _last_written(reader, case) or plan
        report = _text(folder, case.report_path) if case.report_path else None
        request = (_text(folder, case.request_path) if case.request_path else None) or asked
    texts = {"request": request, "plan": plan, "report": report}
    digest = case.approved_digest or (
        look_at(case.plan_path, plan, "").digest if plan and _is_in_queue(case.plan_path) else ""
    )
    return {
        **line,
        "daemon": daemon_runs(vault, env),
        "journal": rows,
        "plan_digest": digest,
        **{
            f"{name}_text": None if raw is None else raw.decode(errors="replace")
            for name, raw in texts.items()
        },
    }


def _is_in_queue(path: str) -> bool:
    return any(path.startswith(f"{folder}/") for folder in QUEUES)


def why(
    vault: Path, env: Mapping[str, str], ident: str, warn: Callable[[UserError], None] = _raise
) -> dict[str, Any]:
    """Return why a case is where it is and what to do next.

    Of a failed mission all that its report shows of it.

    A note that is no case because it cannot be used is found by the id it would have. Raises
    UserError as `find` does; `warn` is as in `status`.
    """
    state = vault_state(vault, env)
    if not state.journal.exists() and (new := _not_taken_up(vault, env, ident)):
        return new
    with _reader(vault, env, ident) as reader:
        explained = [row for row in reader.seen() if row.verdict]
        unusable = [
            row
            for row in explained
            if request_id(PurePosixPath(row.path).name, ()).startswith(ident)
        ]
        try:
            case = find(reader, ident)
        except UserError:
            if not unusable:
                if new := _not_taken_up(vault, env, ident):
                    return new
                raise
            return {
                "request_id": _one_id([row.path for row in unusable], ident),
                "state": "unusable",
                "why": [f"{row.path}: {row.detail}" for row in unusable],
                "next": ["Mend the note; it is taken up as soon as it can be used."],
                "mission": None,
            }
        rows = reader.activity(case.trace_id, limit=10_000, newest=True)
        its = (visible(case.request_path), visible(case.plan_path))
        notices = [f"{row.path}: {row.detail}" for row in explained if row.path in its]
        notices += _disk_trouble(state.journal)
        notices += [
            f"Waits to be done: {c.error}"
            for c in reader.pending_commands()
            if c.error and c.trace_id == case.trace_id
        ]
        found = {
            "request_id": case.request_id,
            "trace_id": case.trace_id,
            "state": case.state.value,
            "report": case.report_path,
        }
        config = _settings(vault, env, warn)
        with Vault(vault) as folder:
            seen = _seen_now(vault, env, folder, reader, [case])
            case = seen.cases[case.trace_id]
            held_back = _held_back(folder, reader, case, config.quiet_s)
        runs = lock_holder(state.lock) is not None
        if (undecided := seen.undecided.get(case.trace_id)) is not None:
            return {
                **found,
                "why": [
                    f"{_since(undecided)}. The journal still has it as: {case.state}.",
                    *notices,
                ],
                "next": [
                    f"The daemon runs and looks within seconds; then {undecided.follows}."
                    if runs
                    else f"No daemon runs. When one starts, {undecided.follows}. Start it: placet run"
                ],
                "mission": None,
            }
        if case.state is State.FAILED and case.report_path:
            mission = _failed_mission(reader, case, of_last_mission(rows))
            if mission is None:
                return {
                    **found,
                    "why": [
                        "Its mission failed. What the journal had on that was lost, or is archived.",
                        *notices,
                    ],
                    "next": [
                        f"Read the report: {case.report_path}",
                        f"Set `status: pending` in {case.request_path or 'the request'} for a new plan.",
                    ],
                    "mission": None,
                }
            return {
                **found,
                "why": [mission["meaning"], case.failure, *notices],
                "next": mission.pop("next"),
                "mission": mission,
            }
        reason, helps = standing(case, rows, daemon_runs=runs, paused=config.paused)
        if (
            runs
            and notices
            and case.state in (State.PLANNING, State.REVISING, State.APPROVED)
            and not config.paused
        ):
            reason = f"Since {case.since} it is {case.state}. What is in its way, or was noticed:"
            helps = (
                "Do what is said there; it goes on by itself. Follow it: placet journal --follow",
            )
        if runs and held_back and not config.paused:
            reason = f"{case.request_path}: {held_back}."
        said = [reason]
        # the note beside it says the same
        notices = [line for line in notices if reason.rstrip(".") not in line]
        if case.state in WORKING and (waits := _waits(reader)) is not None:
            held = f"Since {waits['since']} all work waits for the model: {waits['notice']}"
            said = [held] if runs and case.state is not State.RUNNING else [reason, held]
            if not runs and waits["why"] == Why.BLOCKED:
                helps = ("Mend that first.", *helps)
    return {**found, "why": [*said, *notices], "next": list(helps), "mission": None}


def _not_taken_up(vault: Path, env: Mapping[str, str], ident: str) -> dict[str, Any] | None:
    """Return why there is no case of a request that lies in the vault.

    None where none would get an ID that begins so.
    """
    with Vault(vault) as folder:
        found = sorted(folder.scan([Folder.REQUESTS]).found)
    paths = [
        path
        for path in found
        if ident and request_id(PurePosixPath(path).name, ()).startswith(ident)
    ]
    if not paths:
        return None
    return {
        "request_id": _one_id(paths, ident),
        "state": "new",
        "why": [f"{visible(path)} was not taken up yet." for path in paths],
        "next": [
            "The daemon runs and looks within seconds."
            if daemon_runs(vault, env)
            else "No daemon runs. When one starts, a plan is written. Start it: placet run"
        ],
        "mission": None,
    }


def _one_id(paths: Sequence[str], ident: str) -> str:
    """Return the id that the only one of these notes would have.

    What was asked for where there are several.
    """
    return request_id(PurePosixPath(paths[0]).name, ()) if len(paths) == 1 else ident


def _since(undecided: Undecided) -> str:
    what = undecided.what[:1].upper() + undecided.what[1:]
    return (
        f"{what} at {undecided.at}, which was not taken up yet"
        if undecided.at
        else f"{what}, which was not taken up yet"
    )


def _failed_mission(
    reader: Reader, case: Case, rows: Sequence[CommittedRow]
) -> dict[str, Any] | None:
    """Return what a Failure Report shows of a mission, made of the same rows.

    None where the journal does not have them.
    """
    facts = next(
        (row.details for row in reversed(rows) if row.action_type == Action.EXECUTION_FAILED), None
    )
    if facts is None:
        return None
    detail = case.failure.removeprefix(f"{facts['error_type'] or facts['reason']}: ").removesuffix(
        f" (see {case.report_path})"
    )
    left = remains(facts, detail, rows)
    text = reader.text(facts["digest"])
    assert text is not None, "what is carried out was stored when it was approved"
    plan = parse_plan(read_note(text).body, None)
    found = verdict(left.end)
    limit = plan.scope.budget_usd
    return {
        "class": found.kind.value,
        "end": left.end.value,
        "iterations": facts["iterations"],
        "meaning": found.meaning,
        "cost": against_estimate(
            facts["cost_usd"],
            facts.get("typical_cost_usd"),
            None if limit is None else float(limit),
        ),
        "proof": [row_line(row) for row in proof(left.end, rows)],
        "timeline": [
            {
                "turn": bar.turn,
                "what": bar.what,
                "began_ms": bar.began_ms,
                "ended_ms": bar.ended_ms,
                "ok": bar.ok,
            }
            for bar in timeline(rows)
        ],
        "tried": list(tried(rows)),
        "kept": left.kept,
        "kept_commit": left.kept_commit,
        "files": list(left.files),
        "request": ready_request(case, plan, left),
        "next": [
            found.advice,
            f"Read the report: {case.report_path}",
            f"For a new plan: placet retry {case.request_id}, or set `status: pending` in {case.request_path or 'the request'}"
            f"; in {case.plan_path or 'the plan'} that asks for a revision of it. Whoever writes it reads the report.",
            f"A request that starts from where it broke: placet why {case.request_id} --request",
        ],
    }


def journal_rows(
    vault: Path,
    env: Mapping[str, str],
    ident: str | None,
    *,
    limit: int | None,
    follow: bool,
    routine: bool,
) -> Iterator[dict[str, Any]]:
    """Give the last `limit` rows, in order; with `follow` also those that are written from now on.

    Without a limit it is all rows of one request, or the last LAST of all. `routine` is for git
    processes that went well.
    """
    path = vault_state(vault, env).journal
    with open_reader(path) if ident is None else _reader(vault, env, ident) as reader:
        trace = find(reader, ident).trace_id if ident is not None else None
        most = limit if limit is not None else LAST if trace is None else -1
        rows: Sequence[CommittedActivity] = reader.activity(
            trace, limit=most, newest=True, routine=routine
        )
        newest = reader.activity(limit=1, newest=True)
    last = newest[0].id if newest else 0
    while True:
        for row in rows:
            last = row.id
            yield _row(row)
        if not follow:
            return
        time.sleep(FOLLOW_STEP_S)
        with open_reader(path) as reader:
            rows = reader.activity(trace, after_id=last, routine=routine)


def live_events(vault: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Give what the daemon's socket sends, a line of JSON each, until the daemon stops."""
    from placet.host.events import listen, places

    for line in listen(places(vault_state(vault, env).folder, env)):
        yield line.decode().rstrip("\n")


def events_path(vault: Path, env: Mapping[str, str]) -> Path:
    """Return where a client finds the daemon's socket.

    Where there is none now, where it will be.
    """
    from placet.host.events import places

    found = places(vault_state(vault, env).folder, env)
    return next((path for path in found if path.exists()), found[0])


def journal_sql(
    vault: Path, env: Mapping[str, str], sql: str
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run a read-only query on the journal; return its columns and rows."""
    return query(vault_state(vault, env).journal, sql)


@contextmanager
def _reader(vault: Path, env: Mapping[str, str], ident: str) -> Iterator[Reader]:
    """Give the journal to look an ID up in.

    Where there is none yet no ID fits: UserError (exit code 3).
    """
    path = vault_state(vault, env).journal
    if not path.exists():
        raise UserError(
            f"There is no request, plan or mission {ident!r}: the daemon has not run on this vault yet.",
            "placet run",
            exit_code=3,
        )
    with open_reader(path) as reader:
        yield reader


def _seen_now(
    vault: Path, env: Mapping[str, str], folder: Vault, reader: Reader, cases: Sequence[Case]
) -> Glance:
    """Lay the folders over the journal: today's paths of these cases, and what people did that it does not know."""
    newest = reader.activity(limit=1, newest=True)
    busy = {command.trace_id for command in reader.pending_commands()}
    seen = glance(
        folder,
        {case.trace_id: case for case in cases},
        busy,
        _PlannableTools(),
        newest[0].timestamp if newest else "",
    )
    if not seen.undecided:
        return seen
    # what the daemon did meanwhile, nobody else did
    with open_reader(vault_state(vault, env).journal) as later:
        done = {
            trace
            for trace in seen.undecided
            if later.activity(trace, after_id=newest[0].id if newest else 0, limit=1)
        }
    return replace(
        seen, undecided={trace: what for trace, what in seen.undecided.items() if trace not in done}
    )


class _PlannableTools(Collection[str]):
    """The names of the tools that a plan may use.

    They are known only to their modules, which few of those who look need.
    """

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    @staticmethod
    def _names() -> Collection[str]:
        from placet.tools.registry import PLANNABLE

        return PLANNABLE


def _held_back(folder: Vault, reader: Reader, case: Case, quiet_s: float) -> str:
    """Say why a plan that was asked for is not begun although nothing is in its way: its request is still being written."""
    if case.state not in (State.PLANNING, State.REVISING) or not case.request_path:
        return ""
    try:
        raw, mark = folder.read(case.request_path)
    except (Stale, NotAFile, TooLarge, VaultTrouble):
        return ""
    note = look_at(case.request_path, raw, "")
    if note.status == DRAFT:
        return "it says `status: draft`; it is planned once that line goes, or says `pending`"
    asked = reader.last_of(Action.REQUEST_DETECTED, Action.REQUEST_EDITED, trace_id=case.trace_id)
    ready = asked is not None and (asked.details.get("ready") or asked.details.get("via") == "cli")
    if ready and note.digest == case.request_digest:
        # it was complete when it came, or whoever asked for it has said all; what was written since
        # are stamps
        return ""
    age_s = Clock().wall().timestamp() - mark.mtime_ns / 1e9
    if age_s >= quiet_s or any(True for _ in reader.records(case.trace_id, case.generation)):
        return ""
    return f"waits until you stop writing: it is planned once its note has stayed as it is for {quiet_s:g} s ([vault] quiet_s)"


def _last_written(reader: Reader, case: Case) -> bytes | None:
    """Return the text of a case's plan that was published last, None where the journal has it no more."""
    row = reader.last_of(Action.PLAN_CREATED, Action.PLAN_REVISED, trace_id=case.trace_id)
    return None if row is None else _kept(reader, row.details["digest"])


def _kept(reader: Reader, digest: str) -> bytes | None:
    """Return a text to be shown.

    None for one that is not what was written, which `placet journal verify` says.
    """
    try:
        return reader.text(digest)
    except BodyDamaged:
        return None


def _line(
    reader: Reader, case: Case, undecided: Undecided | None, held_back: str
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "request_id": case.request_id,
        "trace_id": case.trace_id,
        "state": case.state.value,
        "title": case.title,
        "agent": case.agent,
        "portal": case.portal,
        "priority": case.priority,
        "revision": case.revision,
        "since": case.since,
        "request": case.request_path,
        "plan": case.plan_path,
        "branch": case.branch,
        "became": case.became,
        "report": case.report_path,
        "failure": case.failure,
        "approved_by": case.approved_by,
        "undecided": None if undecided is None else asdict(undecided),
        "held_back": held_back,
    }
    if case.state in WORKING:
        last = reader.last_of(Action.MODEL_FAILED, Action.MODEL_CALLED, trace_id=case.trace_id)
        line["model_trouble"] = (
            None
            if last is None
            or last.action_type == Action.MODEL_CALLED
            or last.details.get("kind") == ModelErrorKind.CANCELLED
            else last.details["reason"]
        )
    if case.state is State.RUNNING:
        text = _kept(reader, case.approved_digest)
        budget = None if text is None else parse_plan(read_note(text).body, None).scope.budget_usd
        line["progress"] = {
            **_progress(reader.activity(case.trace_id, limit=10_000)),
            "budget_usd": _float(budget),
        }
    return line


def _progress(rows: Sequence[CommittedActivity]) -> dict[str, Any]:
    """Return how far the present mission is: steps, model turns, dollars (None where a price is unknown)."""
    step = of = turns = 0
    cost: float | None = 0.0
    for row in rows:
        data = row.details
        if row.action_type == "execution.started":
            step = turns = 0
            of = data["steps"]
            cost = 0.0
        elif row.action_type == "step.completed":
            step = data["step"]
        elif (
            row.action_type in ("model.called", "model.failed") and data.get("purpose") == "execute"
        ):
            turns += row.action_type == "model.called"
            if row.action_type == "model.called" or data.get("tokens"):
                cost = None if cost is None or data["cost_usd"] is None else cost + data["cost_usd"]
    return {"step": step, "of": of, "iterations": turns, "cost_usd": cost}


def _row(row: CommittedActivity) -> dict[str, Any]:
    return {
        "id": row.id,
        "timestamp": row.timestamp,
        "trace_id": row.trace_id,
        "actor": row.actor,
        "agent": row.agent,
        "action_type": row.action_type,
        "entity_type": row.entity_type,
        "entity_id": row.entity_id,
        "metadata": dict(row.details),
    }


def _text(folder: Vault, path: str) -> bytes | None:
    try:
        return folder.read(path)[0]
    except Gone:
        return None


def user() -> str:
    """Return who works here, as notes and the journal name a person."""
    try:
        return getpass.getuser()
    except (
        KeyError,
        OSError,
    ):  # neither a name in the environment nor an entry of the uid (OSError from Python 3.13 on)
        return f"uid:{os.getuid()}"


def _file_name(title: str) -> str:
    """Return a title as a file name that Obsidian and every file system take."""
    name = "".join(" " if c in '\\/:*?"<>|#^[]' or ord(c) < 32 else c for c in title)
    return " ".join(name.split()).strip(". ")[:80].strip() or "Request"
