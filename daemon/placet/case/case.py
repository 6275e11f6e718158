"""Define a request's case: its states, and which text a person has approved.

A case is one request and its history. What people want is where their notes are; what
the daemon last acknowledged is the case. `observe` compares the two and names the difference,
`TABLE` says which differences mean something in which state, and `decide` turns one into a new
case, journal rows and commands. All of it is pure: start-up, a missed event and an ordinary save
are the same path.

A person approves a plan by moving its note to System/Active. The approval binds a digest, not a
file: `plan.digest` is the text that the daemon wrote, `approval.digest` the text that settled in
System/Active, without the keys that change during a plan's life. Only that text runs. It is stored
with the decision, so a later edit cannot change it, and the mission begins only while the note,
read again in that moment, still has it. Five rules follow:

- Only a text that was shown is approved. placet's box says what the plan may do; a note whose box
  says something else (an edited scope, another place) returns to review with a new box.
- The mark of an approval is used once. `approval.at` goes to `spent_approvals` when the mission
  ends, or when the plan is edited, returned to review, rejected or revised; a copy of the note that
  a sync tool brings back approves nothing.
- If a case has two plans, neither can be approved. The same holds while an unread file may be a
  second plan.
- An approval ends when its basis changes: files that changed under the plan, a weaker sandbox
  (`approval.level`) and a damaged text send it back to review.
- Work carries the case's `generation`. Voiding an approval increments it, and an outcome
  of an older generation is dropped.

A decision's commands are recorded with it and performed afterwards, and retried until they
succeed. A case is not observed while it has commands to perform, so a half-done move is not a
gesture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from placet.activity import Action, Activity, Actor, Entity
from placet.case.life_cycle import WORKING, State
from placet.chat.budget import Complexity
from placet.codec import Stored
from placet.note.paths import Folder


@dataclass(frozen=True, slots=True)
class Asking:
    """The question, or the request for a wider scope, that work waits for."""

    work: State
    """The state that resumes after the answer."""
    call: str
    """The record's key of the call that gets the answer."""
    path: str
    """Where placet wrote the note that asks."""
    digest: str
    """Digest of that note, as placet wrote it."""
    asked_at: str
    number: int
    options: tuple[str, ...] = ()
    amended: str = ""
    """Name of the stored plan with the wider scope; empty for a question."""
    question: str = ""
    """The agent's words."""


@dataclass(frozen=True, slots=True)
class Request:
    """The content of a request.

    `priority` is 0 to 10, 10 first; `portal` is empty for the vault itself.
    """

    title: str = ""
    agent: str = ""
    portal: str = ""
    priority: int = 5
    complexity: Complexity | None = None
    budget_usd: Decimal | None = None

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Its keys and values."""
        return (
            ("agent", self.agent),
            ("portal", self.portal),
            ("priority", str(self.priority)),
            ("complexity", self.complexity.value if self.complexity is not None else ""),
            ("budget_usd", str(self.budget_usd) if self.budget_usd is not None else ""),
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """The branch of a completed mission; a field is empty if unknown."""

    trace_id: str
    name: str
    base: str
    """The commit before the mission's work."""
    tip: str
    """The commit after it."""
    base_branch: str = ""
    """The branch that was checked out when the mission was planned."""
    digest: str = ""
    """Digest of the mission's plan."""
    portal: str = ""
    report_path: str = ""
    became: str = ""
    """Its fate: `merged`, `dropped`, `gone`, `reverted`, or empty."""
    merged_as: str = ""
    """The commit that merged it."""
    dropped_reason: str = ""
    """The last reason that was journalled; it counts once."""
    doubts: tuple[str, ...] = ()
    """As in `LastOutcome`."""
    refused: str = ""
    """Why the last `decision` in its report was not done."""
    receipt: str = ""
    """The ref of the mission's receipt."""

    @property
    def is_watched(self) -> bool:
        """Whether people may still merge it, drop it or bring it back."""
        return self.became not in ("merged", "reverted")

    @property
    def ref(self) -> str:
        """Its full name."""
        return f"refs/heads/{self.name}"


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """The plan of a case: its note, and what the daemon wrote into it."""

    keys: tuple[tuple[str, str], ...] = ()
    """Keys of the request, as the plan was written for them."""
    revision: int = 0
    path: str = ""
    digest: str = ""
    """Digest of the text that the daemon wrote."""
    base_branch: str = ""
    """The branch whose tip the base commit was; empty for a detached HEAD."""
    based_on: tuple[tuple[str, str], ...] = ()
    """Digests of the files that its planning read, by path."""
    basis_digest: str = ""
    """Digest of the text that the current revision starts from."""
    basis_meaning: str = ""
    """Meaning of the text that the current revision starts from."""
    base_commit: str = ""
    """The commit that it was planned from, whatever its note says by now."""
    uncommitted: int = 0
    """Number of changed files in the checkout that the planning did not see."""
    about_worktree: tuple[str, ...] = ()
    """Sentences on what the mission's worktree will lack."""
    day_usd: Decimal = Decimal(0)
    """The limit of a day's work when it was planned; 0 for none."""
    command_notes: tuple[str, ...] = ()
    """Sentences on what commands see of the checkout, and cannot do here."""
    box: str = ""
    """Marks of the lines that placet wrote into boxes."""
    left: str = ""
    """Name of the stored plan before, if that has comments without an answer."""
    models: tuple[str, ...] = ()
    """Provider and name of each model that a person knows may work on it."""
    instructions: tuple[tuple[str, str], ...] = ()
    """Digests of the vault's notes that its agent reads, by path; empty if unknown."""
    names_tools: bool = False
    """Whether placet wrote the line `tools` into its scope."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A case's approval: its text, its maker and its time.

    `digest` is empty while nothing is approved. `level` is how strong the box for commands was
    then; a weaker one asks again.
    """

    digest: str = ""
    by: str = ""
    at: str = ""
    level: int = 0
    meaning: str = ""  # of the approved text, to tell a person's edit from a program's


@dataclass(frozen=True, slots=True)
class Signed:
    """A verified signature of an approval.

    `key` is the fingerprint of the signer's key. `flags` and `origin` are as in `SshSignature`.
    """

    signer: str
    key: str
    statement: str
    """The text that was signed (`plan/statement.py`)."""
    signature: str
    """As `ssh-keygen` writes it."""
    flags: int | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The last person who asked for changes, and when: the revision says so."""

    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a person rejected the last plan, for the next one; it may come after the move.

    `reason` is what the daemon stamped as the property `rejection_reason`, `own` what a person had
    written there.
    """

    reason: str = ""
    own: str = ""


@dataclass(frozen=True, slots=True)
class LastOutcome:
    """The outcome of the last mission, or of a planning that failed.

    `failure` tells the next plan how it ended, `detail` quotes the error of a mission. `branch` is
    the one that it worked on, `carried_out` the digest of its plan. `doubts` are sentences on
    planned commands that did not succeed when they ran last. `changed_tests` names the tests that
    the mission changed or deleted. `receipt` is the ref of its receipt.
    """

    failure: str = ""
    detail: str = ""
    report_path: str = ""
    branch: str = ""
    carried_out: str = ""
    doubts: tuple[str, ...] = ()
    changed_tests: str = ""
    receipt: str = ""


SOMEONE = "someone who can write the vault"
"""Actor of a change seen only in the vault: the file system does not say who made it."""


@dataclass(frozen=True, slots=True)
class Person:
    """The maker of a gesture, and the way it was made.

    The way is `cli` or `board`, or `move` and `property`, which the note itself shows. `name` is
    that of a board login, if it differs from `who`.
    """

    who: str = SOMEONE
    via: str = ""
    name: str = ""

    @property
    def as_subject(self) -> str:
        """The name for the beginning of a sentence: that of the login, if there is one."""
        name = self.name or self.who
        return f"{name[0].upper()}{name[1:]}" if name == SOMEONE else name


SOMEBODY = Person()


@dataclass(frozen=True, slots=True)
class Case:
    """One request and its history, as the daemon last acknowledged them.

    Digests are SHA-256 in hex; those of request and plan leave out the keys that the daemon stamps.
    Times are RFC 3339.
    """

    trace_id: str
    request_id: str
    state: State
    version: int = 0
    """Version of its row in the table `cases`."""
    generation: int = 1
    """Counts up whenever work under way becomes void."""
    request_path: str = ""
    request_digest: str = ""
    unstamped: tuple[int, int] | None = None
    """Device and inode of the request's file, until placet stamps its trace_id."""
    request: Request = field(default_factory=Request)
    plan: KnownPlan = field(default_factory=KnownPlan)
    approval: Approval = field(default_factory=Approval)
    reviewed: Reviewed = field(default_factory=Reviewed)
    spent_approvals: tuple[str, ...] = ()
    """`at` of approvals that were used up or voided."""
    reported_edit: str = ""
    """Digest of an edit during the run that was already reported."""
    stop: str = ""
    """Why the mission is to stop; empty while it is not."""
    stopped_by: Person = SOMEBODY
    rejection: Rejection = field(default_factory=Rejection)
    outcome: LastOutcome = field(default_factory=LastOutcome)
    branches: tuple[Branch, ...] = ()
    """Branches of its completed missions that changed something."""
    since: str = ""
    """When the state was entered."""
    notice: str = ""
    """Why the plan returned to review, for its box; the first line is a heading."""
    asking: Asking | None = None
    """What work waits for, in the state `asking`."""
    asked: int = 0
    """Number of questions asked."""
    last_asked: str = ""
    """`asked_at` of the last question or wider scope; the next one's is later."""
    amendments: int = 0
    """Number of wider scopes asked for."""
    first_approved: str = ""
    """Digest of the approval that the mission began with."""
    stamped: tuple[str, ...] = ()
    """Every `status` that the daemon has given its request."""
    answers: tuple[str, ...] = ()
    """Names of the stored texts with each question and its answer."""
    request_meaning: str = ""
    """Meaning of the text of `request_digest`."""
    must_sign: bool = False
    """Whether its approvals count only with a signature."""
    to_sign: str = ""
    """The statement that the next approval signs; empty if none is made."""
    signed: tuple[Signed, ...] = ()
    """The signatures of what is approved: of the plan, then of each wider scope."""
    plannings: tuple[tuple[int, str], ...] = ()
    """Generation and time of the last plannings without a comment or command in between."""

    @property
    def acting(self) -> State:
        """The state whose gestures count: that of the work while it waits for an answer."""
        return self.state if self.asking is None else self.asking.work

    @property
    def is_working(self) -> bool:
        """Whether it is the daemon's turn: work runs or is due, and no question is open."""
        return self.state in WORKING

    @property
    def places(self) -> tuple[str, ...]:
        """The paths of its notes."""
        asked = "" if self.asking is None else self.asking.path
        return tuple(filter(None, (self.request_path, self.plan.path, asked)))

    @property
    def planned_portal(self) -> str:
        """The portal that the last plan was written for; empty for the vault."""
        return dict(self.plan.keys).get("portal", self.request.portal)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the request names another repository than its last plan was written for."""
        return self.planned_portal != self.request.portal

    @property
    def last_branch(self) -> Branch | None:
        """The branch of the last mission, if it is completed and changed something."""
        last = self.branches[-1] if self.branches else None
        is_its = last is not None and last.report_path == self.outcome.report_path
        return last if self.state is State.COMPLETED and is_its else None

    @property
    def open_branch(self) -> Branch | None:
        """The newest branch that is neither merged nor dropped, else the newest one."""
        there = [branch for branch in self.branches if not branch.became]
        return next(reversed(there or self.branches), None)

    @property
    def branch(self) -> Branch | None:
        """The branch that `placet status` names: that of the last mission, or the open one."""
        return self.last_branch or self.open_branch

    @property
    def watched(self) -> tuple[Branch, ...]:
        """The branches that people may still merge, drop or bring back."""
        return tuple(branch for branch in self.branches if branch.is_watched)

    def with_branch(self, branch: Branch, **changes: Any) -> Case:
        """Return the case with changed fields of one of its branches."""
        now = replace(branch, **changes)
        return replace(self, branches=tuple(now if b == branch else b for b in self.branches))

    @property
    def trace8(self) -> str:
        """The first eight characters of the trace id, as in names."""
        return self.trace_id[:8]


@dataclass(frozen=True, slots=True)
class NoteSeen:
    """A settled note in one of the watched folders."""

    path: str
    folder: Folder
    raw: bytes
    digest: str
    """Digest without the keys that the daemon stamps."""
    owner: str
    """The user who owns the file."""
    trace_id: str = ""
    status: str = ""
    is_plan: bool = False
    """Whether the note has a plan's keys."""
    asks: bool = False
    """Whether it is a question, or asks for a wider scope."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Why it cannot be read or used, in one sentence for a person."""
    box: tuple[str, ...] | None = None
    """The lines of placet's box; None if they were not looked for."""
    meaning: str = ""
    """Digest that programs do not change (`note/meaning.py`)."""
    file: tuple[int, int] = (0, 0)
    """Device and inode."""

    def says(self, digest: str, meaning: str) -> bool:
        """Return whether no person changed it since it had this digest and this meaning."""
        return self.digest == digest or self.meaning == meaning != ""


CASE_JSON: Stored[Case] = Stored(Case)


def row_of(
    case: Case,
    now: str,
    action: Action,
    facts: Mapping[str, Any],
    *,
    actor: Actor = Actor.SYSTEM,
    entity: Entity = Entity.MISSION,
) -> Activity:
    """Return the row of an event of this case at `now`, as its agent's."""
    return Activity(
        now, case.trace_id, actor, action, entity, case.request_id, case.request.agent, facts
    )
