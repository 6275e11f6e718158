"""Build one decision, and share what several events need: spent approvals, restored plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from placet.activity import Action, Activity, Actor, Entity
from placet.case.callout import box_lines, box_of, with_marks
from placet.case.case import (
    SOMEBODY,
    Approval,
    Asking,
    Case,
    NoteSeen,
    Person,
    Request,
    Signed,
    row_of,
)
from placet.case.commands import BY_PEOPLE, Command, Decision, Move, Stamp, WriteBox
from placet.case.life_cycle import STATUSES, State
from placet.codec import sha256
from placet.note.box import find_box
from placet.note.frontmatter import read_note, stamp, without_keys
from placet.note.paths import Folder, active_name, plan_name, rejected_name
from placet.plan.digest import REQUEST_STAMPS, plan_digest, plan_text
from placet.wording import local

NO_APPROVAL: Mapping[str, None] = {"approved_by": None, "approved_at": None}
TO_REVIEW: Mapping[str, str | None] = {"status": STATUSES[State.REVIEW].plan, **NO_APPROVAL}
NO_DECISION: Mapping[str, str] = {"decision": ""}
"""A plan's `decision`, used up: a value counts once."""
SPENT_KEPT = 20
"""How many used approvals a case remembers. Older ones are dropped."""
_ASKS_AGAIN = frozenset(
    {Action.PLAN_REVISION_REQUESTED, Action.QUESTION_ANSWERED, Action.REQUEST_DETECTED}
)
"""Acts with which a person asks for another planning."""
_EDITS = frozenset({Action.REQUEST_EDITED, Action.PLAN_EDITED, Action.PLAN_CHANGED_AFTER_APPROVAL})


def value_of(note: NoteSeen, key: str) -> str:
    """Return the value of a property as it was read; empty without one."""
    return str(note.meta.get(key) or "")


class DecisionBuilder:
    """Collects the case, the rows, the texts and the commands of one decision, in order.

    The new case asks nothing while the decision of another state is made: `asking` is what the old
    one asked, until it is answered. `was` is the state that the event found.
    """

    def __init__(self, case: Case, to: State, now: str) -> None:
        stays = to in (case.state, case.acting)
        written = [STATUSES[to].request] if to in STATUSES else []
        self.asking = case.asking
        self.was = case.acting
        self.case = replace(
            case,
            state=to,
            asking=case.asking if to is State.ASKING else None,
            stamped=tuple(dict.fromkeys([*case.stamped, *written])),
            since=case.since if stays else now,
            notice=case.notice if stays else "",
        )
        self.now = now
        self.rows: list[Activity] = []
        self.commands: list[Command] = []
        self.texts: list[bytes] = []

    def done(self) -> Decision:
        """Return the decision."""
        return Decision(self.case, tuple(self.rows), tuple(self.commands), tuple(self.texts))

    def set(self, **changes: Any) -> None:
        """Change fields of the case."""
        self.case = replace(self.case, **changes)

    def set_plan(self, **changes: Any) -> None:
        """Change fields of the case's plan."""
        self.set(plan=replace(self.case.plan, **changes))

    def void_work(self) -> None:
        """Make outcomes of work under way void."""
        self.set(generation=self.case.generation + 1)

    def spend_approval(self) -> None:
        """Mark the approval as used, so that no copy of the note can approve again."""
        if self.case.approval.at:
            kept = self.case.spent_approvals[1 - SPENT_KEPT :]
            self.set(spent_approvals=(*kept, self.case.approval.at))
        self.set(approval=Approval(level=self.case.approval.level), signed=())

    def keep_signature(self, signed: Signed | None) -> Mapping[str, str]:
        """Keep an approval's signature, if it has one; return what its row says of it.

        The statement is used up.
        """
        self.set(to_sign="")
        if signed is None:
            return {}
        self.set(signed=(*self.case.signed, signed))
        return {
            "signer": signed.signer,
            "key": signed.key,
            "statement": self.text(signed.statement.encode()),
            "signature": self.text(signed.signature.encode()),
        }

    def row(self, action: Action, entity: Entity, actor: Actor, **metadata: Any) -> None:
        """Add a journal row about the case."""
        row = row_of(self.case, self.now, action, metadata, actor=actor, entity=entity)
        self.rows.append(row)

    def by_human(
        self, action: Action, entity: Entity, person: Person = SOMEBODY, **metadata: Any
    ) -> None:
        """Add a journal row about a person's act."""
        via = person.via or ("edit" if action in _EDITS else "move")
        if action in _ASKS_AGAIN or via in ("cli", "board"):
            self.set(plannings=())
        if person.name:
            metadata["login"] = person.name
        self.row(action, entity, Actor.HUMAN, reviewed_by=person.who, via=via, **metadata)

    def text(self, raw: bytes) -> str:
        """Store a text with the decision and return its name."""
        self.texts.append(raw)
        return sha256(raw)

    def keep_request(self, note: NoteSeen) -> None:
        """Store a request's text as the one that is planned."""
        self.set(
            request_path=note.path,
            request_digest=note.digest,
            request_meaning=note.meaning,
            unstamped=note.file if self.case.unstamped is not None else None,
        )
        self.text(without_keys(note.raw, REQUEST_STAMPS))

    def take_keys(self, request: Request | None) -> None:
        """Plan with the request's current properties, or the last known ones."""
        if request is not None:
            self.set(request=request)

    def set_basis(self, plan: NoteSeen | None) -> None:
        """Remember the plan's text that a revision starts from; empty for a first plan."""
        if plan is None or self.case.acting is not State.REVISING:
            self.set_plan(basis_digest="", basis_meaning="")
            return
        self.set_plan(basis_digest=plan.digest, basis_meaning=plan.meaning)
        self.text(plan_text(plan.raw))
        # A person may have changed these in the plan; the next one says what becomes of that.
        own = {
            key: str(plan.meta.get(key) or "") for key in ("agent", "portal") if key in plan.meta
        }
        self.set_plan(keys=tuple((key, own.get(key, value)) for key, value in self.case.plan.keys))

    @property
    def plan_status(self) -> Mapping[str, str]:
        """The stamp with the plan's status in the new state."""
        return {"status": STATUSES[self.case.state].plan}

    def stamp_request(self, request: NoteSeen | None) -> None:
        """Write the request's status in the new state, and its trace_id if it has none."""
        path = request.path if request is not None else self.case.request_path
        if path:
            digest = request.digest if request is not None else self.case.request_digest
            status = STATUSES[self.case.state].request
            marks = {"status": status, "trace_id": self.case.trace_id}
            seen = STATUSES[self.was].request if request is None else value_of(request, "status")
            self.set(unstamped=None)
            self.commands.append(Stamp(path, marks, digest, {"status": seen}))

    def stamp_plan(self, plan: NoteSeen, changes: Mapping[str, str | None]) -> None:
        """Set a plan's keys, except those that a person changes meanwhile."""
        seen = {key: value_of(plan, key) for key in BY_PEOPLE & changes.keys()}
        self.commands.append(Stamp(plan.path, changes, seen=seen))

    def stamp_unread_plan(self, changes: Mapping[str, str | None] = MappingProxyType({})) -> None:
        """Set the status, and `changes`, of the case's plan, which this decision did not read.

        Its status is the one of the former state, or a person has just written another.
        """
        stamps = {**self.plan_status, **changes}
        seen = {"status": STATUSES[self.was].plan}
        self.commands.append(Stamp(self.case.plan.path, stamps, seen=seen))

    def write_box(self, plan: NoteSeen, what: WriteBox | None = None, new: bytes = b"") -> None:
        """Add the command that writes a plan's box: `what`, by default the box of the current case.

        `new` is the plan with another text, which is written as well.
        """
        what = what or box_of(self.case, plan.path)
        old = find_box(read_note(plan.raw).body)
        self.set_plan(box=with_marks(self.case.plan.box, old.lines if old is not None else ()))
        self.remember_box(new or plan.raw, what)
        text = self.text(plan_text(new)) if new else ""
        self.commands.append(replace(what, digest=plan_digest(plan.raw), text=text))

    def remember_box(self, raw: bytes, what: WriteBox) -> None:
        """Remember which lines placet writes into this note's box."""
        self.set_plan(box=with_marks(self.case.plan.box, box_lines(raw, what)))

    def move(self, plan: NoteSeen, folder: Folder) -> None:
        """Have a plan moved to `folder`, under its case's name there, unless it is there."""
        home = plan.path
        if plan.folder is not folder:
            home = _HOMES[folder](self.case)
            self.commands.append(Move(plan.path, home))
        self.set_plan(path=home)

    def return_plan(
        self,
        plan: NoteSeen,
        heading: str,
        why: str,
        changes: Mapping[str, str | None] = TO_REVIEW,
        home: str = "",
        tail: str = "",
    ) -> None:
        """Move a plan to `home`, with `why` in its box below `heading`.

        `home` is Inbox/Plans by default. `changes` are stamped, `tail` is put below its text. The
        box is written last: in System/Active it would approve a note that a person moves there at
        that moment. A plan that has run cannot be approved, and its name is often taken in the
        archive, so its box is written first.
        """
        home = home or plan_path(self.case)
        self.set(notice=f"**{heading}** ({local(self.now)}):\n{why}")
        self.set_plan(path=home)
        changes = {**changes, **cleared_decision(plan)}
        now = replace(plan, raw=stamp(plan.raw, changes))
        gap = b"\n" if now.raw.endswith(b"\n") else b"\n\n"
        new = now.raw + gap + tail.encode() if tail else b""
        if plan.digest == self.case.plan.digest:  # what placet writes is not an edit
            self.set_plan(digest=self.text(plan_text(new or now.raw)))
        self.stamp_plan(plan, changes)
        is_completed = self.case.state is State.COMPLETED
        if is_completed:
            self.write_box(now, new=new)
        if plan.path != home:
            self.commands.append(Move(plan.path, home))
        if not is_completed:
            self.write_box(now, box_of(self.case, home), new)


def cleared_decision(plan: NoteSeen) -> Mapping[str, str]:
    """Return the stamp that clears a plan's `decision`, empty for a plan without the key."""
    return NO_DECISION if "decision" in plan.meta else {}


def plan_path(case: Case) -> str:
    """Return the path of a case's plan in Inbox/Plans."""
    return f"{Folder.PLANS}/{plan_name(case.request_id)}"


def rejected_path(case: Case) -> str:
    """Return the path of a case's plan in Inbox/Rejected."""
    return f"{Folder.REJECTED}/{rejected_name(case.request_id)}"


def active_path(case: Case) -> str:
    """Return the path of a case's plan in System/Active."""
    return f"{Folder.ACTIVE}/{active_name(case.request_id)}"


_HOMES: Mapping[Folder, Callable[[Case], str]] = {
    Folder.PLANS: plan_path,
    Folder.ACTIVE: active_path,
    Folder.REJECTED: rejected_path,
}


def archived_question(case: Case, asking: Asking) -> str:
    """Return the path of a question, or of an amendment, in the archive."""
    sort = "amendment" if asking.amended else "question"
    return f"{Folder.ARCHIVE}/{case.request_id}_{sort}{asking.number}.md"


def archived_path(case: Case, suffix: str = "") -> str:
    """Return the path of a case's plan in the archive."""
    return f"{Folder.ARCHIVE}/{case.request_id}_plan{suffix}.md"
