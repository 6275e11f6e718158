"""Do what the board's buttons say, with the text that was on the screen.

Each takes your Site, the request's ID and the form's fields. All raise UserError if it cannot be
done, and NotAsRead if the note has changed since.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from placet.activity import Action
from placet.agent.instruction_notes import agents
from placet.case.case import Case, Person
from placet.case.intents import What
from placet.client import branches
from placet.client.branches import drop
from placet.client.decisions import (
    NOT_ANSWERED,
    Done,
    NotAsRead,
    awaiting,
    decide,
    must_allow,
    must_say_something,
    to_retry,
)
from placet.client.notes import asking_text, asks_for_more, note_of_plan, text_if_readable
from placet.client.requests import Submitted, submit
from placet.client.signing import must_have_no_remark
from placet.client.site import Site
from placet.client.texts import hint_of
from placet.codec import sha256
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.note.frontmatter import read_note
from placet.plan.digest import QUESTION_STAMPS, digest, plan_digest
from placet_board.markdown import seen, seen_name
from placet_board.passkeys import signature

_AMOUNT = re.compile(r"[0-9]{1,9}([.][0-9]{1,4})?")
_PRIORITIES = frozenset(map(str, range(11)))

_NOT_IN_NAMES = frozenset('\\/:*?"<>|#^[]')

_SAVED = "saved"

Fields = Mapping[str, str]


class Button(NamedTuple):
    """A button of a request: what it does, what is said then, and the state shown at once."""

    act: Callable[[Site, str, Fields], Done | None]
    said: str
    then: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A button that could not do what it says, with the fields of its form."""

    act: str = ""
    what: str = ""
    hint: str = ""
    fields: Fields = field(default_factory=dict)

    def at(self, act: str, step: int | str = "") -> bool:
        """Return whether this button was pressed, at this step."""
        return self.act == act and str(step) in ("", self.fields.get("step"))

    def typed(self, act: str, name: str, step: int | str = "") -> str:
        """Return what was typed into a field of this button's form."""
        # a form has CRLF, and a page shows it as such
        text = self.fields.get(name, "").replace("\r\n", "\n")
        return text if self.at(act, step) else ""


_ON_PAGE = re.compile(
    r": placet (?:show|status|why|plans|review|diff|approve|reject|revise|answer|stop|retry|merge"
    r"|undo|drop)\b[^.;\n]*|: --\w+ '[^']*'"
)
"""Commands in hints for which the page has a button, or which show what it shows."""


def refused(act: str, error: UserError, fields: Fields) -> Refused:
    """Return what the page says of an error at a button: what helps there, not in a terminal."""
    if isinstance(error, NotAsRead):
        what = "This was changed after you read it, so placet did nothing."
        return Refused(act, what, "You see the new text now. Read it, then press again.", fields)
    return Refused(act, error.what, _ON_PAGE.sub("", hint_of(error)), fields)


def act(site: Site, ident: str, name: str, fields: Fields) -> dict[str, str]:
    """Do what the button `name` says; return what the page's address then says of it.

    `said` is a name for `result_message`, `made` the digest of the plan with this change alone.
    Raises UserError (exit code 3) for an unknown button.
    """
    if name not in BUTTONS:
        raise UserError("There is no such button.", "Open the request as it is now.", exit_code=3)
    done = BUTTONS[name].act(site, ident, fields)
    if done is None:
        return {"said": name}
    return {"said": _SAVED if done.is_pending else name, "made": done.digest}


def result_message(name: str) -> str:
    """Return what a page says after a button; "" for an unknown one."""
    if name == _SAVED:
        return NOT_ANSWERED
    return BUTTONS[name].said if name in BUTTONS else ""


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """One of the vault's templates for requests, by the name that the page shows."""

    name: str
    text: str
    agent: str


def form(site: Site, fields: Fields) -> dict[str, Any]:
    """Return what the form for a request offers: what was typed, with the chosen template."""
    found = []
    with Vault(site.vault) as vault:
        for path in sorted((site.vault / "System" / "Templates").glob("*.md")):
            note = read_note(text_if_readable(vault, f"System/Templates/{path.name}") or b"")
            text = note.body.strip().removeprefix("# {{title}}").lstrip()
            agent = str(note.meta.get("agent") or "")
            found.append(RequestTemplate(seen_name(path.stem), seen(text), agent))
    chosen = [one for one in found if one.name == fields.get("template")]
    texts = [_field_text(fields, "text"), *(one.text for one in chosen)]
    return {
        **{name: fields.get(name, "") for name in ("title", "portal", "priority", "budget_usd")},
        "templates": found,
        "chosen": fields.get("template", ""),
        "text": "\n\n".join(filter(None, texts)),
        "agents": agents(site.vault),
        "agent": fields.get("agent") or "".join(one.agent for one in chosen),
        "portals": sorted(site.in_force().config.portals),
    }


FORM_VAULT = "."
"""The value of the form's field for a request about the vault, where there are portals, too."""


def ask_for(site: Site, fields: Fields) -> Submitted:
    """Write a request; return its path in the vault and its ids."""
    if site.in_force().config.portals and not fields.get("portal"):
        raise UserError("The request names no repository.", "Choose one, or the vault itself.")
    meta: dict[str, Any] = {
        name: fields[name]
        for name in ("agent", "portal")
        if fields.get(name, "").strip() not in ("", FORM_VAULT)
    }
    if budget := fields.get("budget_usd", "").strip():
        meta["budget_usd"] = float(budget) if _AMOUNT.fullmatch(budget) else budget
    if priority := fields.get("priority", "").strip():
        # what is not a number is refused when the note is read
        meta["priority"] = int(priority) if priority in _PRIORITIES else priority
    text = fields.get("text", "").replace("\r\n", "\n")
    title = " ".join(fields.get("title", "").split())
    # a file's name would lose some characters, and text that begins as frontmatter is text here
    if set(title) & _NOT_IN_NAMES or text.lstrip("\ufeff").startswith("---"):
        text = f"# {title}\n\n{text}"
    return submit(site, text, title=fields.get("title"), meta=meta)


def _approve(site: Site, ident: str, fields: Fields) -> Done:
    case = _with_plan(site, ident, "approve")
    remark = _field_text(fields, "remark")
    read = _seen(site, case, fields)
    signed = signature(site, case, fields)
    remarks = [remark] if remark else []
    if signed:
        must_have_no_remark(remarks)
    return decide(site, case, "approve", remarks, seen=read, signature=signed)


def _reject(site: Site, ident: str, fields: Fields) -> Done:
    case = _with_plan(site, ident, "reject")
    reason = _field_text(fields, "reason")
    must_say_something("reason", [reason], "Say why", "it is too broad")
    return decide(site, case, "reject", [reason], seen=_seen(site, case, fields))


def _revise(site: Site, ident: str, fields: Fields) -> Done:
    case = site.case(ident)
    must_allow(case, "revise")
    comment = _field_text(fields, "comment")
    read = _seen(site, case, fields)
    return decide(site, case, "revise", [_at_step(fields, comment)] if comment else [], seen=read)


def _comment(site: Site, ident: str, fields: Fields) -> Done:
    case = site.case(ident)
    must_allow(case, "comment")
    comment = _field_text(fields, "comment")
    must_say_something("comment", [comment], "Say what to change", "leave the tests alone")
    text = _at_step(fields, comment)
    return decide(site, case, "comment", [text], seen=_seen(site, case, fields))


def _tick(site: Site, ident: str, fields: Fields) -> Done:
    case = site.case(ident)
    must_allow(case, "tick")
    number = _field_text(fields, "step")

    return decide(site, case, "tick", [number], seen=_seen(site, case, fields))


def _answer(site: Site, ident: str, fields: Fields) -> Done:
    case = site.case(ident)
    if case.asking is None or case.asking.amended:
        raise _closed(site, case)
    text = _field_text(fields, "own") or _field_text(fields, "option")
    if not text:
        raise UserError("The answer is empty.", "Choose an option, or write your own answer.")
    raw = asking_text(site, case)
    if digest(raw, QUESTION_STAMPS) != fields.get("digest"):
        raise NotAsRead(case.asking.path)
    return decide(site, case, "answer", [text.strip()], seen=raw)


def _closed(site: Site, case: Case) -> UserError:
    """Return the error for an answer that comes too late, with the answer that counts."""
    with site.reader(case.trace_id) as reader:
        row = reader.last_of(Action.QUESTION_ANSWERED, trace_id=case.trace_id)
        fact = reader.text(case.answers[-1]) if case.answers else None
    _, is_answer, words = (fact or b"").decode().partition(" answered:\n")
    if row is None or not is_answer:
        return UserError("The mission ended before this question was answered.")
    person = Person(row.details["reviewed_by"], name=row.details.get("login", ""))
    return UserError(f"{person.as_subject} has answered it: {words.strip()}")


def _widen(site: Site, ident: str, fields: Fields) -> Done:
    case = _wider(site, ident)
    read = _seen_wider(site, case, fields)
    return decide(site, case, "approve", seen=read, signature=signature(site, case, fields))


def _refuse(site: Site, ident: str, fields: Fields) -> Done:
    case, reason = _wider(site, ident), _field_text(fields, "reason")
    must_say_something("reason", [reason], "Say why", "the tests are enough")
    return decide(site, case, "reject", [reason], seen=_seen_wider(site, case, fields))


def _stop(site: Site, ident: str, _: Fields) -> Done:
    case = site.case(ident)
    must_allow(case, "stop")
    return decide(site, case, "stop")


def _retry(site: Site, ident: str, fields: Fields) -> Done:
    case, source = to_retry(site, ident)
    comment = _field_text(fields, "comment")
    return decide(site, case, "retry", [comment] if comment else [], source=source)


def _merge(site: Site, ident: str, fields: Fields) -> None:
    def ask(doubts: Sequence[str]) -> bool:
        return fields.get("doubts") == digest_of_names(doubts)

    branches.merge(site, ident, here=False, seen=fields.get("digest", ""), ask=ask)


def _undo(site: Site, ident: str, fields: Fields) -> None:
    case = site.case(ident)
    if branches.became_now(site, case) != "merged":
        raise UserError("This is not merged.", "Open it as it is now.")
    if branches.tip_of(site, ident) != fields.get("digest", ""):
        raise UserError("The branch has other commits than you saw.", "Open it as it is now.")
    others = branches.also_undone(site, ident)
    if others and fields.get("others") != digest_of_names(others):
        raise UserError(
            f"The undo also changes files that are not the mission's: {branches.named(others)}.",
            "Read which ones on the page of the request, then press the button there.",
        )
    branches.undo(site, ident, lambda _: True)


def digest_of_names(paths: Sequence[str]) -> str:
    """Return a value by which a form says which files you saw."""
    return sha256("\0".join(paths).encode("utf-8", "surrogateescape"))


def _drop(site: Site, ident: str, fields: Fields) -> None:
    reason = _field_text(fields, "reason")
    must_say_something("reason", [reason], "Say why", "no longer needed")
    drop(site, ident, reason, seen=fields.get("digest", ""))


BUTTONS: Mapping[str, Button] = {
    "approve": Button(_approve, "Approved.", "Starts soon"),
    "reject": Button(_reject, "Rejected.", "Rejected"),
    "revise": Button(_revise, "Changes requested.", "Being revised"),
    "comment": Button(_comment, "The comment is in the plan."),
    "tick": Button(_tick, "The steps are as you ticked them."),
    "answer": Button(_answer, "Answered.", "Answered"),
    "widen": Button(_widen, "The wider scope is approved.", "Wider scope approved"),
    "refuse": Button(_refuse, "The wider scope is rejected.", "Wider scope rejected"),
    "stop": Button(_stop, "The mission stops at its next safe point.", "Stopping"),
    "retry": Button(_retry, "A new plan is requested.", "Being planned"),
    "merge": Button(_merge, "Merged.", "Merging"),
    "undo": Button(_undo, "The merge is undone.", "Undoing the merge"),
    "drop": Button(_drop, "The branch is dropped. Its commits are kept.", "Dropping"),
}


def _field_text(fields: Fields, name: str) -> str:
    return fields.get(name, "").replace("\r\n", "\n").strip()


def _at_step(fields: Fields, comment: str) -> str:
    number = _field_text(fields, "step")
    return f"{number}. {comment}" if number.isdecimal() else comment


def _with_plan(site: Site, ident: str, decision: What) -> Case:
    """Return a case whose plan can be decided on; a stale button must not widen a scope."""
    case = awaiting(site, ident, decision)
    if asks_for_more(case):
        raise UserError(
            "This plan is approved by now. Its mission asks for a wider scope.",
            "Open it as it is now.",
        )
    return case


def _seen(site: Site, case: Case, fields: Fields) -> bytes:
    """Return a plan's text if it is the one that was on the screen."""
    raw = note_of_plan(site, case)
    if plan_digest(raw) != fields.get("digest"):
        raise NotAsRead(case.plan.path)
    return raw


def _wider(site: Site, ident: str) -> Case:
    case = site.case(ident)
    if case.asking is None or not case.asking.amended:
        raise UserError("The mission no longer asks for a wider scope.", "Open it as it is now.")
    return case


def _seen_wider(site: Site, case: Case, fields: Fields) -> bytes:
    assert case.asking is not None, "only what is asked is decided on"
    raw = asking_text(site, case)
    if plan_digest(raw) != fields.get("digest"):
        raise NotAsRead(case.asking.path)
    return raw
