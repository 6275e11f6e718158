"""The builder of one decision, with what several events need: approvals used up, plans put back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.life.case import Approval, Asking, Case, NoteSeen, Request, State
from placet.core.life.commands import Decision, Move, Publish, Rewrite, Show, Stamp
from placet.core.life.gestures import Hand
from placet.core.life.plan_note import headed, show
from placet.core.life.rows import row_of
from placet.core.text.names import Folder, active_name, plan_name, rejected_name
from placet.core.text.note import PLAN_STAMPS, REQUEST_STAMPS, stamp, without_keys
from placet.core.wording import local

NO_APPROVAL: Mapping[str, None] = {"approved_by": None, "approved_at": None}
TO_REVIEW: Mapping[str, str | None] = {"status": "review", **NO_APPROVAL}
NO_DECISION: Mapping[str, str] = {"decision": ""}
"""A plan's `decision`, used up: a value counts once."""
SPENT_KEPT = 20
"""Maximum of used approvals that a case remembers, the last ones."""
_SOMEBODY = Hand()


class DecisionBuilder:
    """Collects the case, the rows, the texts and the commands of one decision, in order."""

    def __init__(self, case: Case, to: State, now: str) -> None:
        # The branches of a request that is planned again stay watched.
        self.case = replace(
            case,
            state=to,
            since=case.since if case.state is to else now,
            earlier=case.earlier if to is State.COMPLETED else case.watched,
            notice=case.notice if case.state is to else "",
        )
        self.now = now
        self.before = show(case).above
        self.rows: list[Activity] = []
        self.commands: list[Stamp | Publish | Rewrite | Move | Show] = []
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

    def spend_approval(self, moment: str = "") -> None:
        """Use an approval up, else one of `moment`.

        Its stamp never approves again, wherever a copy of the note turns up.
        """
        if spent := moment or self.case.approval.at:
            kept = self.case.spent_approvals[1 - SPENT_KEPT :]
            self.set(spent_approvals=(*kept, spent))
        self.set(approval=Approval(level=self.case.approval.level))

    def row(self, action: Action, entity: Entity, actor: Actor, **metadata: Any) -> None:
        """Add a journal row about the case."""
        row = row_of(self.case, self.now, action, metadata, actor=actor, entity=entity)
        self.rows.append(row)

    def by_human(
        self, action: Action, entity: Entity, hand: Hand = _SOMEBODY, **metadata: Any
    ) -> None:
        """Add a journal row about a person's act."""
        via = hand.via or "move"
        self.row(action, entity, Actor.HUMAN, reviewed_by=hand.who, via=via, **metadata)

    def text(self, raw: bytes) -> str:
        """Store a text with the decision and return its name."""
        self.texts.append(raw)
        return sha256(raw)

    def keep_request(self, note: NoteSeen) -> None:
        """Store a request's text as the one that is planned."""
        self.set(request_path=note.path, request_digest=note.digest)
        self.text(without_keys(note.raw, REQUEST_STAMPS))

    def learn_request(self, request: NoteSeen | None, plan: NoteSeen) -> None:
        """Store the request's text, or for want of one the plan's, which a revision starts from."""
        if request is not None:
            self.keep_request(request)
        else:
            self.set(request_digest=self.text(plan.raw))

    def take_keys(self, request: Request | None) -> None:
        """Plan for the request's keys as they are now; without a request, as they were last."""
        plan = self.case.plan
        if plan.revision and not plan.keys:  # of a journal that is older than this
            self.set_plan(keys=self.case.request.keys)
        if request is not None:
            self.set(request=request)

    def set_basis(self, plan: NoteSeen | None) -> None:
        """Remember the plan's text that a revision starts from; empty for a first plan."""
        if plan is None or self.case.state is not State.REVISING:
            self.set_plan(basis_digest="")
            return
        self.set_plan(basis_digest=plan.digest)
        self.text(without_keys(plan.raw, PLAN_STAMPS))
        # A person may have changed these in the plan; the next one says what becomes of that.
        own = {
            key: str(plan.meta.get(key) or "") for key in ("agent", "portal") if key in plan.meta
        }
        self.set_plan(keys=tuple((key, own.get(key, value)) for key, value in self.case.plan.keys))

    def stamp_request(self, request: NoteSeen | None, status: str) -> None:
        """Write the request's status, and its trace_id if it has none."""
        path = request.path if request is not None else self.case.request_path
        if path:
            digest = request.digest if request is not None else self.case.request_digest
            marks = {"status": status, "trace_id": self.case.trace_id}
            self.commands.append(Stamp(path, marks, digest))

    def shown(self, plan: NoteSeen) -> str:
        """Have the plan's callout written for the new state; return the note's new digest."""
        what = replace(show(self.case, plan.path), before=self.before)
        self.commands.append(what)
        return self._know(plan, headed(plan.raw, what))

    def move(self, plan: NoteSeen, folder: Folder) -> None:
        """Have a plan moved to `folder`, under its case's name there, unless it is there."""
        home = plan.path
        if plan.folder is not folder:
            home = _HOMES[folder](self.case)
            self.commands.append(Move(plan.path, home))
        self.set_plan(path=home)

    def put_back(
        self,
        plan: NoteSeen,
        heading: str,
        why: str,
        changes: Mapping[str, str | None] = TO_REVIEW,
        home: str = "",
        tail: str = "",
    ) -> None:
        """Move a plan to `home` and put a callout with `why` on top.

        `home` is Inbox/Plans by default, `heading` heads the callout. `changes` are stamped, `tail`
        is put below its text. The callout comes last: written in System/Active it would approve a
        note that is renamed there in just this moment. A plan that was carried out cannot be
        approved, and its name is often taken in the archive, so its callout is written first.
        """
        home = home or plan_path(self.case)
        self.set(notice=f"**{heading}** ({local(self.now)}):\n{why}")
        self.set_plan(path=home)
        raw = plan.raw
        if tail:
            raw += (b"\n" if raw.endswith(b"\n") else b"\n\n") + tail.encode()
        cleared = cleared_decision(plan)
        text = stamp(raw, {**changes, **cleared})
        text = headed(text, replace(show(self.case), before=self.before))
        self._know(plan, text)
        over = self.case.state is State.COMPLETED
        rewrite = Rewrite(plan.path if over else home, plan.digest, self.text(text))
        self.commands += [rewrite] if over else []
        removed = {key: None for key, value in changes.items() if value is None}
        if removed or cleared:
            # also if it is edited in this moment, and so not rewritten
            self.commands.append(Stamp(plan.path, {**removed, **cleared}))
        if plan.path != home:
            self.commands.append(Move(plan.path, home))
        self.commands += [] if over else [rewrite]

    def _know(self, plan: NoteSeen, text: bytes) -> str:
        """Return the digest of the plan's new text.

        It is known as the daemon's own if the old one was: a callout is no edit.
        """
        unstamped = without_keys(text, PLAN_STAMPS)
        if plan.digest == self.case.plan.digest:
            self.set_plan(digest=self.text(unstamped))
        return sha256(unstamped)


def cleared_decision(plan: NoteSeen) -> Mapping[str, str]:
    """Return the stamp that clears a plan's `decision`, empty for a plan without the key."""
    return NO_DECISION if "decision" in plan.meta else {}


def sha256(raw: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex: the name of a stored text."""
    return hashlib.sha256(raw).hexdigest()


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
