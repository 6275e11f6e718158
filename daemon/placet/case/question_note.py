"""Write and read the notes in which work asks a person: questions and wider scopes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from placet.case.callout import danger_lines, how_to_approve
from placet.case.case import Asking, Case, NoteSeen
from placet.case.events import Asked
from placet.case.life_cycle import State
from placet.case.notes import (
    APPROVE,
    REJECT,
    decision_of,
    in_capitals,
    not_a_word,
    same_moment,
    trace_of,
)
from placet.codec import sha256
from placet.note.box import with_box, without_box
from placet.note.escape import (
    bounded,
    clean,
    code,
    escaped_text,
    fenced,
    link,
    literal,
    paragraphs,
    unescaped_text,
    with_code,
)
from placet.note.frontmatter import new_note, read_note, stamp, written_value
from placet.note.hidden_text import drawn
from placet.note.markdown import commented_lines
from placet.note.outline import outline_of
from placet.note.paths import Folder, show
from placet.plan.scope import Scope
from placet.plan.sections import with_lines

HOW_TO_ANSWER = (
    "Tick one box, set the property `answer`, or write below “Answer”. The work waits until you do."
)
HOW_TO_WIDEN = (
    "**Approve**: set `decision: approve`, or move this note to `System/Active`.",
    "**Reject**: set `decision: reject`, or move it to `Inbox/Rejected`. The agent reads a reason "
    "that you write under a heading “Rejection”.",
)
TAKEN_AWAY = "the note that asked for it was taken away"
_LINE = re.compile(r"(\r\n|\n|\r)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")  # as CommonMark has it
_BOX = re.compile(r"\s*[-*+][ \t]+\[(.)\][ \t]+(.*)")
# What plug-ins append to a line whose box you tick: marks of Tasks, each with a date or a word,
# fields of Dataview, a block id.
_MARKS = "✅❌\N{HEAVY PLUS SIGN}⏳⌛🛫📅📆🗓⏫🔼🔽🔺⏬🏁🆔⛔"
_FIELD = (
    rf"[{_MARKS}]\ufe0f?(?:[ \t]*+[\w,:-]++)?+|🔁(?:[ \t]*+\w++)++"
    r"|\[[\w -]+::[^\]]*\]|\([\w -]+::[^)]*\)|\^[\w-]+"
)
_PLUGIN_FIELDS = re.compile(rf"(?:[ \t]++(?:{_FIELD}))*+[ \t]*+")
_BLANK_ITEM = re.compile(r"[ \t>]*(?:[-*+](?:[ \t]+|$))?(?:\[.\](?:[ \t]|$))?")
_NO_BOX = re.compile(r"(?m)^([ \t]*\S+[ \t]+)(?=\[[ xX]\])")


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer, empty before there is one.

    `problem` says why the text is not an answer. `chosen` is the option's number, 0 for a text,
    which may still be unfinished.
    """

    text: str = ""
    problem: str = ""
    chosen: int = 0


def shown_digest(raw: bytes) -> str:
    """Return the digest of what a wider scope's note shows, box and all, with its case and number.

    Line ends and properties do not count: an editor or a sync tool may change them.
    """
    note = read_note(raw)
    text = "\n".join(line.rstrip() for line in note.body.splitlines()).strip()
    whose = f"{trace_of(raw)} {note.meta.get('amendment')}"
    return sha256(f"{whose}\n{text}".encode())


def question_note(case: Case, asked: Asked, work: State, asked_at: str) -> bytes:
    """Return the note that asks a question; the model's words in it mean nothing."""
    whose = "The mission for" if work is State.RUNNING else "The planning of"
    keys: dict[str, str | int] = {
        "trace_id": case.trace_id,
        "request_id": case.request_id,
        "status": "open",
        "title": bounded(case.request.title or case.request_id),
        "answer": "",
        "asked_at": asked_at,
    }
    box = [f"> [!question|placet] {whose} {_request(case)} asks you"]
    lines = [
        _NO_BOX.sub(r"\1\\", paragraphs(asked.question)),  # a box in it is not an answer
        "",
    ]
    if asked.why.strip():
        lines += [f"**Why**: {with_code(asked.why)}", ""]
    if asked.options:
        lines += ["## Options", "", *(f"- [ ] {literal(option)}" for option in asked.options), ""]
    lines += [f"> [!tip] {HOW_TO_ANSWER}", ""]
    text = "\n".join([*lines, "## Answer", "", ""])
    return new_note(keys, with_box(text, box), asked.frontmatter)


def amendment_note(
    case: Case, asked: Asked, first: Scope, wider: Scope, number: int, asked_at: str
) -> bytes:
    """Return the note that asks for a wider scope: first all of it, against the first approval."""
    keys: dict[str, str | int] = {
        "trace_id": case.trace_id,
        "request_id": case.request_id,
        "status": "review",
        "title": bounded(case.request.title or case.request_id),
        "amendment": number,
        "asked_at": asked_at,
        "decision": "",
    }
    box = [
        f"> [!question|placet] The mission for {_request(case)} asks for what is marked with `+`",
        *(f"> - {line}" for line in how_to_approve(case, HOW_TO_WIDEN)),
    ]
    lines = [
        difference(first, wider),
        "",
        f"**Why**: {with_code(asked.why)}",
        "",
        *(["", *risks] if (risks := danger_lines(wider)) else []),
        "",
    ]
    return new_note(keys, with_box("\n".join(lines), box), asked.frontmatter)


def difference(before: Scope, after: Scope) -> str:
    """Return the whole of `after` as a code block, a permission a line; `+` marks what is new."""
    had = set(_permissions(before))
    lines = [f"{' ' if line in had else '+'} {bounded(line)}" for line in _permissions(after)]
    return fenced("\n".join(lines), "diff")


def _permissions(scope: Scope) -> list[str]:
    return [
        *(f"write    {pattern}" for pattern in scope.write),
        *(f"run      {command}" for command in scope.commands),
        *(f"host     {host}" for host in scope.hosts),
        *([] if scope.hosts else [f"network  {'yes' if scope.network else 'no'}"]),
        *(["shell    yes"] if scope.shell else []),
        *([] if scope.budget_usd is None else [f"cost     at most ${scope.budget_usd}"]),
    ]


def with_scope(body: str, scope: Scope) -> str:
    """Return a plan's body with this scope in the block of its section; all else stays.

    The body has to be one that `parse_plan` reads.
    """
    from placet.plan.toml_text import scope_toml

    outline = outline_of(body)
    parts = outline.parts(0, len(outline.lines), 2)
    section = next(part for part in parts if part.level == 2 and part.name == "scope")
    start = min(at for at in outline.fences if section.at < at < section.end)
    pieces = _LINE.split(body)
    end = pieces[1] if len(pieces) > 1 else "\n"
    block = [line + end for line in scope_toml(scope).splitlines()]
    first, last = 2 * (start + 1), 2 * outline.fences[start]
    return "".join([*pieces[:first], *block, *pieces[last:]])


def answer_in(note: NoteSeen, options: Sequence[str]) -> Answer:
    """Return the answer that a question's note gives: by a box, the property, or a text."""
    outline = outline_of(read_note(note.raw).body)
    ticked: list[tuple[str, str]] = []
    words = ""
    for part in outline.parts(0, len(outline.lines), 2):
        if part.level and part.name == "options":
            found = map(_BOX.match, outline.texts(part))
            ticked = [(b[1], b[2].strip()) for b in found if b and b[1] != " "]
        elif part.level and part.name == "answer":
            words = _own_words(outline.texts(part))
    known: list[tuple[str, int]] = []
    for mark, text in ticked:
        option = _option_ticked(text, options)
        if mark not in "xX" or not option:
            return Answer(problem=_not_understood(f"- [{mark}] {text}"))
        known.append((options[option - 1], option))
    known += _property(note, options)
    if len({text for text, _ in known}) > 1:
        return Answer(problem="Two answers are given in it. Leave one.")
    texts = [known[0][0]] if known else []
    texts += [words] if words and words not in texts else []
    return Answer("\n".join(texts), chosen=known[0][1] if known and not words else 0)


def _option_ticked(text: str, options: Sequence[str]) -> int:
    """Return the number of the option whose box has this text, 0 for none.

    It stands there as placet wrote it, which may be another option's text. Plug-ins may have added
    fields. The longest option wins.
    """
    for written in ([literal(option) for option in options], options):
        found = [
            (len(option), -n)
            for n, option in enumerate(written, 1)
            if text.startswith(option) and _PLUGIN_FIELDS.fullmatch(text, len(option))
        ]
        if found:
            return -max(found)[1]
    return 0


def _not_understood(line: str) -> str:
    return (
        f"placet does not understand this tick: {code(line)}. Tick an option with `- [x]` and "
        "leave its text as it is, or write below “Answer”."
    )


def _own_words(lines: Sequence[str]) -> str:
    """Return a person's own words, empty if reading view shows none: a bullet, a comment."""
    words = unescaped_text(lines).strip()
    hidden = commented_lines(words)
    shown = [line for n, line in enumerate(words.split("\n"), 1) if n not in hidden]
    return words if any(_BLANK_ITEM.sub("", drawn(line)).strip() for line in shown) else ""


def _property(note: NoteSeen, options: Sequence[str]) -> list[tuple[str, int]]:
    """Return what the property `answer` means, as it is written: YAML may read it as another.

    Of a list the only item counts, or each that is an option.
    """
    answer = note.meta.get("answer")
    if isinstance(answer, list):
        items = [option_meant(str(one).strip(), options) for one in answer if one is not None]
        if len(items) < 2 or all(number for _, number in items):
            return [item for item in items if item[0]]
    elif isinstance(answer, str):
        return [option_meant(answer.strip(), options)] if drawn(answer).strip() else []
    given = written_value(note.raw, "answer").strip() if answer or answer in (0, False) else ""
    # as Obsidian writes a checkbox
    given = {"true": "yes", "false": "no"}.get(given, given)
    return [option_meant(given, options)] if given else []


def option_meant(answer: str, options: Sequence[str]) -> tuple[str, int]:
    """Return the option that is meant by its text or its number, with its number; else the text.

    An option that is a number itself is meant by its text.
    """
    texts = [n for n, option in enumerate(options, 1) if answer == option]
    shown = [n for n, option in enumerate(options, 1) if answer == literal(option)]
    by_number = [n for n in range(1, len(options) + 1) if answer == str(n)]
    for number in (*texts, *shown, *by_number):
        return options[number - 1], number
    return unescaped_text([answer]), 0


def with_answer(raw: bytes, answer: str, options: Sequence[str]) -> bytes:
    """Return a question's note with a person's answer in it.

    An option's text or number becomes the property `answer`; other words go below “Answer”. Raises
    UnsafeEdit as `stamp` does.
    """
    option, number = option_meant(answer, options)
    for value in (option, str(number)) if number else ():
        # properties may be read as something else than the text that was written: a time, say
        text = stamp(raw, {"answer": value})
        if option_meant(str(read_note(text).meta["answer"]).strip(), options)[1] == number:
            return text
    body = read_note(raw).body
    outline = outline_of(body)
    lines = escaped_text(clean(answer)).split("\n")
    parts = [p for p in outline.parts(0, len(outline.lines), 2) if p.level and p.name == "answer"]
    end = parts[-1].end if parts else len(outline.lines)
    last = next((n for n in range(end - 1, -1, -1) if outline.lines[n].strip()), -1)
    heading = [] if parts else ["", "## Answer"]
    body_then = with_lines(body, {last: [*heading, "", *lines]})
    return raw[: len(raw) - len(body.encode())] + body_then.encode()


def question_in(raw: bytes) -> str:
    """Return the question that a note asks, as a person reads it: no box, reason or options."""
    lines: list[str] = []
    for line in without_box(read_note(raw).body).splitlines():
        if line.startswith(("**Why**", "## ", "> [!tip]")):
            break
        lines.append(_ESCAPED.sub(r"\1", line))
    return "\n".join(lines).strip()


def is_approved(note: NoteSeen) -> bool:
    """Return whether an amendment's place or `decision` approves it."""
    return note.folder is Folder.ACTIVE or decision_of(note) == APPROVE


def question_warning(asking: Asking, note: NoteSeen, every: Sequence[NoteSeen]) -> str:
    """Return why a note in which something is asked has no effect yet, or an empty string.

    `every` are all notes in which it is asked.
    """
    if len(every) > 1:
        places = ", ".join(f"`{show(one.path)}`" for one in every)
        return (
            f"This is asked in {len(every)} notes: {places}. Different answers count as none. "
            "Delete all but one."
        )
    if not asking.amended:
        return answer_in(note, asking.options).problem or in_capitals(note.meta, "answer")
    if is_approved(note) and shown_digest(note.raw) != asking.digest:
        return (
            "This note was edited, so it approves nothing. Undo the edit, or reject it and say why "
            "under a heading `## Rejection`: the agent can ask for less."
        )
    decision = decision_of(note)
    known = ("", APPROVE, REJECT)
    if decision in known:
        return in_capitals(note.meta, "decision")
    return (
        not_a_word(note.meta, "decision")
        or f"`decision: {decision}` has no effect. {' '.join(HOW_TO_WIDEN)}"
    )


def is_question_note(note: NoteSeen, asking: Asking) -> bool:
    """Return whether a note asks this question."""
    at = note.meta.get("asked_at")
    if at is None:
        unreadable = bool(note.problem) and asking.asked_at.encode() in note.raw[:4096]
        return unreadable or note.path == asking.path
    return same_moment(at, asking.asked_at)


def _request(case: Case) -> str:
    return link(PurePosixPath(case.request_path).stem if case.request_path else case.request_id)
