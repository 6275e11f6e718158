"""The facts that a report is made from, and the parts that reports of success and failure share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import PurePosixPath
from string import Template

from placet.case.case import Case
from placet.chat.budget import Complexity
from placet.chat.result import MOST_FILES, ChangedFile, Ended, Finished, WorkDone
from placet.core.life.why_failed import Events
from placet.core.text.blocks import Frontmatter
from placet.core.text.characters import visible
from placet.core.wording import counted, local
from placet.note.escape import cell, code, link, literal, paragraphs
from placet.note.outline import clean, fenced
from placet.note.paths import Folder, show
from placet.plan.changes import where
from placet.plan.comments import Comment
from placet.plan.partial import left_out
from placet.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The report's facts besides the mission's result.

    `rows` are the mission's in the journal, `typical_usd` what missions of its size cost (None: too
    few are known), `is_there` says whether the vault has something at a path, `pictures` are PNGs.
    """

    case: Case
    plan: Plan
    complexity: Complexity
    model: str
    provider: str
    sandbox: str
    now: datetime
    stamp: str
    kind: Frontmatter
    rows: Events = ()
    typical_usd: float | None = None
    is_there: Callable[[str], bool] = lambda _path: False
    pictures: Sequence[bytes] = ()
    remarks: Sequence[Comment] = ()
    asked: str = ""  # the section on what a person was asked

    @property
    def named_pictures(self) -> tuple[tuple[str, bytes], ...]:
        """The pictures, with their places next to the report."""
        name = f"{self.case.trace8}_{self.case.request_id}-{self.case.generation}"
        return tuple(
            (f"{Folder.REPORTS}/{name}-{number}.png", picture)
            for number, picture in enumerate(self.pictures, 1)
        )


def cost_key(work: WorkDone) -> dict[str, float]:
    """Return what it cost as a property that the vault's tables can add up.

    None where it is unknown.
    """
    return {} if work.spent.cost_usd is None else {"cost_usd": float(work.spent.cost_usd)}


def common(at: Circumstances) -> dict[str, str]:
    """Return the fields that both templates have."""
    case = at.case
    # Wikilinks by bare name: Obsidian finds the note wherever it is moved, and what is archived
    # keeps its name.
    request_name = case.request_path and PurePosixPath(case.request_path).stem
    return {
        "title": literal(at.plan.title),
        "agent": literal(case.request.agent),
        "sandbox": at.sandbox,
        "approved_by": literal(case.approval.by),
        "approved_at": local(case.approval.at) if case.approval.at else "an unknown time",
        "digest8": case.approval.digest[:8],
        "model": code(at.model)
        + (" (scripted: replies were replayed from a file)" if at.provider == "scripted" else ""),
        "remarks": _remarks(at),
        "asked": at.asked,
        "request": link(request_name) if request_name else "taken away meanwhile",
        "plan": link(f"{case.request_id}_plan"),
        "left_out": f" (left out by a person: {gone})" if (gone := left_out(at.plan)) else "",
    }


def _remarks(at: Circumstances) -> str:
    """Return the section of the comments with which the plan was approved; empty without one."""
    if not at.remarks:
        return ""
    lines = ["## Remarks on the Approval"]
    for remark in at.remarks:
        first, *rest = paragraphs(remark.text).split("\n")
        place = f"{where(remark)}: " if where(remark) else ""
        lines.append("\n".join([f"- {place}{first}", *(f"  {line}".rstrip() for line in rest)]))
    if all(step.actions for _, step in at.plan.kept):
        lines.append("\nEvery step was literal, so no agent read them.")
    return "\n".join(lines) + "\n\n"


_CHANGES = {"A": "new", "M": "changed", "D": "deleted", "T": "of another kind"}


def files_table(ended: Ended) -> str:
    """Return the changed files as a table, and below it those that are in no commit."""
    work, finished = ended.work, isinstance(ended, Finished)
    lines = (
        ["None."]
        if not work.files
        else [
            "| file | change | lines |",
            "|---|---|---|",
            *(
                f"| {cell(show(f.path))}{_target(f)} | {_CHANGES.get(f.status, f.status)} "
                f"| {_lines(f.added, f.deleted)} |"
                for f in work.files[:MOST_FILES]
            ),
        ]
    )
    if len(work.files) > MOST_FILES:
        lines += ["", f"And {counted(len(work.files) - MOST_FILES, 'more file')}."]
    if work.left_out:
        lines += [
            "",
            "Changed by commands but outside the approved scope, so in no commit: "
            + listed(work.left_out)
            + "."
            + (f" They are kept at `{work.kept}`." if finished and work.kept else ""),
        ]
    if work.not_kept:
        lines += ["", not_kept(work)]
    if isinstance(ended, Finished) and ended.ignored:
        lines += [
            "",
            "In the scope, but ignored by git (see `.gitignore`), so in no commit, "
            f"and gone with the worktree: {listed(ended.ignored)}.",
        ]
    return "\n".join(lines)


def not_kept(work: WorkDone) -> str:
    """Return the sentence on files that are kept nowhere."""
    return (
        "Gone with the worktree, as placet could not look for secrets in them (a file with a "
        f"second hard link, over 16 MiB, or too deep in folders): {listed(work.not_kept)}."
    )


def listed(paths: Sequence[str], most: int = 20) -> str:
    """Return paths for a sentence, at most so many by name."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(code(show(path)) for path in paths[:most]) + more


def _target(file: ChangedFile) -> str:
    return f", a link to {cell(show(file.link))}" if file.link else ""


def _lines(added: int | None, deleted: int | None) -> str:
    if added is None or deleted is None:
        return "binary"
    return f"+{added} −{deleted}"  # noqa: RUF001 - a minus sign


def cost_line(work: WorkDone, at: Circumstances) -> str:
    """Return iterations, tokens, dollars and seconds of a mission."""
    spent = work.spent
    cost = spent.cost("cost unknown (no price for this model)")
    limit = at.plan.scope.budget_usd
    return (
        f"{counted(work.iterations, 'iteration')}; {spent.input_tokens:,} tokens in, "
        f"{spent.cache_read_tokens:,} from the cache, {spent.output_tokens:,} out; {cost}"
        + (f" of at most ${limit}" if limit is not None else "")
        + f"; {work.duration_s:.1f} s"
    )


def template(name: str) -> Template:
    """Return a text of `agent/texts` with its fields still open."""
    return Template(resources.files("placet.agent").joinpath("texts", name).read_text())


def fenced_text(text: str, language: str) -> str:
    """Return a code block that ends where the text does.

    What a comment would begin with is written apart in it.
    """
    return fenced(visible(clean(text).replace("%%", "% %")), language)
