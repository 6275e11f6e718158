"""Search the state space of a case: nothing runs without approval of that very text.

A world is small: the places and texts of the request's and the plan's note, and the case. From each
world the search tries every gesture and every step of the daemon, with the real `observe` and
`decide`. Each text has two versions, so that "that very text" means something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

import pytest

from placet.case import callout as plan_note
from placet.case import decision_builder as builder
from placet.case import explain, sorting
from placet.case import observe as observing
from placet.case.approval import may_begin
from placet.case.callout import box_written
from placet.case.case import CASE_JSON, Asking, Case, NoteSeen
from placet.case.commands import Move, Publish, Rewrite, Stamp, WriteBox
from placet.case.decide import decide, open_case
from placet.case.events import (
    Answering,
    Asked,
    Drafted,
    Event,
    FilesChanged,
    MissionCompleted,
    MissionEnded,
    MissionFailed,
    ModelChanged,
    PlanApproved,
    PlanningFailed,
    PlanSuperseded,
    RequestEdited,
    SandboxWeakened,
    ScopeWidened,
    Started,
    TextLost,
)
from placet.case.life_cycle import OVER, STATUSES, State
from placet.case.mission_result import Drifted
from placet.case.notes import inspect_note, trace_of
from placet.case.observe import observe, stale_statuses
from placet.case.question_note import shown_digest
from placet.case.request import read_request
from placet.case.sorting import CaseNotes, sort_notes
from placet.case.transitions import TABLE, target
from placet.cli import screen
from placet.codec import sha256
from placet.note.frontmatter import read_note, stamp
from placet.note.paths import QUEUES, Folder
from placet.plan.digest import REQUEST_STAMPS, digest, plan_digest
from placet.plan.scope import Scope

TOOLS = ("read_file", "write_file")
NOW = "2026-11-21T12:00:00.000Z"
REQUESTS = {"A": b"Say hello.\n", "B": b"Say goodbye.\n"}
STRANGER = b"Bake a cake.\n"
TRACE = "11111111-2222-3333-4444-555555555555"


def plan_text(version: str, revision: int) -> bytes:
    body = (
        f"# Plan {version}\n\nIt is {version}.\n\n## Steps\n\n### 1. Do it\n\nTools: `write_file`\n\n## Scope\n\n```toml\n"
        'write = ["a.txt"]\n```\n\n## Risks\n\n- none\n'
    )
    return stamp(
        body.encode(),
        {
            "trace_id": TRACE,
            "request_id": "r",
            "status": "review",
            "agent": "default",
            "portal": "",
            "complexity": "standard",
            "revision": revision,
            "base_commit": "0" * 40,
            "created_at": NOW,
            "decision": "",
        },
    )


@dataclass(frozen=True)
class World:
    """What there is.

    `approved` are digests that a person put into System/Active and that no run has used since.
    """

    case: Case
    files: frozenset[tuple[str, bytes]]
    approved: frozenset[str] = frozenset()
    old: tuple[str, bytes] | None = None
    """A note whose `decision: approve` was used, as a sync tool may bring it back."""

    @property
    def by_path(self) -> dict[str, bytes]:
        return dict(self.files)


@cache
def seen(path: str, raw: bytes) -> NoteSeen:
    return inspect_note(path, raw, "alice")


@cache
def stamped(raw: bytes, changes: tuple[tuple[str, str | None], ...]) -> bytes:
    return stamp(raw, dict(changes))


TEXTS: dict[str, bytes] = {}
"""Every text that was stored, by name, as the journal has it."""


def start() -> World:
    path, raw = "Inbox/Requests/r.md", REQUESTS["A"]
    request = read_request(path, read_note(raw), {"default"}, (), "default")
    decision = open_case(seen(path, raw), request, TRACE, "r", NOW)
    return perform(World(decision.case, frozenset({(path, raw)})), decision)


def is_for(raw: bytes, unchanged: str) -> bool:
    """Whether a command of the case may touch this note, as `perform` has it."""
    return trace_of(raw) == TRACE or (
        not trace_of(raw) and (not unchanged or digest(raw, REQUEST_STAMPS) == unchanged)
    )


def perform(world: World, decision) -> World:
    files = world.by_path
    texts = {sha256(text): text for text in decision.texts}
    TEXTS.update(texts)
    for command in decision.commands:
        match command:
            case Stamp(path, changes, unchanged, seen):
                if path in files and is_for(files[path], unchanged):
                    meta = read_note(files[path]).meta
                    kept = {key for key in seen if meta.get(key) not in (None, "", seen[key])}
                    keys = tuple((key, changes[key]) for key in changes if key not in kept)
                    files[path] = stamped(files[path], keys)
            case WriteBox(path, digest=expected, text=text):
                if path in files:
                    new = texts[text] if text else b""
                    files[path] = box_written(files[path], command, decision.case, new)
            case Publish(path, text):
                files.setdefault(path, texts[text] if text in texts else TEXTS[text])
            case Rewrite(path, expected, text):
                if path not in files or sha256(files[path]) == expected:
                    files[path] = texts[text]
            case Move(src, dst, unchanged):
                if (
                    src in files
                    and is_for(files[src], "")
                    and (not unchanged or digest(files[src], REQUEST_STAMPS) == unchanged)
                ):
                    files[dst] = files.pop(src)
    files = {
        p: raw
        for p, raw in files.items()
        if not p.startswith((Folder.ARCHIVE, Folder.REPORTS)) or p.endswith(("/r.md", "/r_plan.md"))
    }
    return replace(world, case=decision.case, files=frozenset(files.items()))


def notes_of(world: World) -> CaseNotes:
    watched = [
        seen(p, raw)
        for p, raw in sorted(world.files)
        if p.split("/")[0] in ("Inbox", "System") and not p.startswith(Folder.ARCHIVE)
    ]
    return sort_notes({TRACE: world.case}, watched).of_case.get(TRACE, CaseNotes())


def gestures(world: World) -> Iterator[tuple[str, World]]:
    """Give everything that a person can do with a mouse and an editor."""
    files = world.by_path
    asked = [p for p in files if "amendment" in p or p.startswith(Folder.QUESTIONS)]
    plans = [p for p in files if "plan" in p or p.startswith(("System/Active", "Inbox/Rejected"))]
    plans = [p for p in plans if p not in asked]
    requests = [p for p in files if p not in plans and p not in asked]

    def after(name: str, new: dict[str, bytes], approved: str = "") -> tuple[str, World]:
        more = world.approved | {approved} if approved else world.approved
        return name, replace(world, files=frozenset(new.items()), approved=more)

    for path in plans:
        raw = files[path]
        rest = {p: r for p, r in files.items() if p != path}
        for where, name in (
            (Folder.PLANS, "r_plan.md"),
            (Folder.ACTIVE, "r.md"),
            (Folder.REJECTED, "r_rejected.md"),
            (Folder.REQUESTS, "r_plan.md"),
        ):
            target = f"{where}/{name}"
            if target != path and target not in files:
                # an earlier `decision: approve` counts where the note lies now
                counts = where is not Folder.REQUESTS and b'decision: "approve"' in raw
                put = plan_digest(raw) if counts or where is Folder.ACTIVE else ""
                yield after(f"move {path} to {target}", {**rest, target: raw}, put)
        yield after(f"delete {path}", rest)
        if path.startswith(Folder.PLANS) and not any(p.startswith(Folder.ACTIVE) for p in files):
            yield after(
                "reject and approve at once",
                {**rest, "System/Active/r.md": stamped(raw, (("status", "rejected"),))},
            )
        commented = raw if b"Not so." in raw else raw + b"\n> @placet Not so.\n"
        for status in ("review", "needs_revision", "rejected", "approved"):
            text = commented if status == "needs_revision" else raw
            yield after(
                f"set {path} to {status}", {**rest, path: stamped(text, (("status", status),))}
            )
        for said in ("approve", "reject", "revise"):
            counts = said == "approve"  # also where it has no effect before the note is moved
            put = plan_digest(raw) if counts else ""
            decided = stamped(commented if said == "revise" else raw, (("decision", said),))
            name, then = after(f"decide {said} in {path}", {**rest, path: decided}, put)
            yield name, replace(then, old=(path, decided)) if counts else then
        if world.old is not None and world.old[1] != raw:
            yield after("bring an old decision back", {**rest, world.old[0]: world.old[1]})
        if b"It is A." in raw:
            edited = raw.replace(b"It is A.", b"It is edited.")
            yield after(f"edit {path}", {**rest, path: edited})
            yield after(f"comment in {path}", {**rest, path: commented})
        if b"|placet] " in raw and not path.startswith((Folder.ARCHIVE, Folder.REQUESTS)):
            yield after(
                f"edit the callout of {path}",
                {**rest, path: raw.replace(b"|placet] ", b"|placet] Not ", 1)},
            )
        if path.startswith(Folder.REJECTED):
            yield after(
                f"say in {path} why",
                {**rest, path: stamped(raw, (("rejection_reason", "Too broad"),))},
            )
        if b"It is A." in raw and path.startswith(Folder.ACTIVE):
            yield after(
                f"put an old copy of {path} back",
                {**rest, path: stamped(raw, (("status", "approved"),))},
            )
    for path in asked:
        raw, asking = files[path], world.case.asking
        rest = {p: r for p, r in files.items() if p != path}
        yield after(f"delete {path}", rest)
        if b"- [ ] yes" in raw:
            yield after(f"tick {path}", {**rest, path: raw.replace(b"- [ ] yes", b"- [x] yes")})
            continue
        own = asking is not None and shown_digest(raw) == asking.digest
        put = asking.amended if own and asking is not None else ""
        for said in ("approve", "reject"):
            decided = stamped(raw, (("decision", said),))
            yield after(f"decide {said} in {path}", {**rest, path: decided}, put)
        yield after(f"approve {path}", {**rest, "System/Active/amendment.md": raw}, put)
        if b"why not" in raw:
            edited = raw.replace(b"why not", b"why")
            yield after(f"edit {path}", {**rest, path: edited})
    if not requests:
        yield after(
            "put the request back",
            {
                **files,
                "Inbox/Requests/r.md": stamped(
                    REQUESTS["A"], (("trace_id", TRACE), ("status", "planned"))
                ),
            },
        )
    for path in requests:
        raw = files[path]
        rest = {p: r for p, r in files.items() if p != path}
        yield after(f"delete {path}", rest)
        yield after(
            f"set {path} to pending", {**rest, path: stamped(raw, (("status", "pending"),))}
        )
        if b"hello" in raw:
            yield after(f"edit {path}", {**rest, path: raw.replace(b"hello", b"goodbye")})
        if (
            TRACE.encode() in raw
            and "Inbox/Requests/renamed.md" not in files
            and path.startswith(Folder.REQUESTS)
        ):
            yield after(
                f"rename {path} and write another",
                {**rest, "Inbox/Requests/renamed.md": raw, path: STRANGER},
            )
        if path.startswith(Folder.ARCHIVE):
            yield after(f"take {path} out of the archive", {**rest, "Inbox/Requests/r.md": raw})


def events(world: World) -> Iterator[Event]:
    """Give everything that the daemon's own work can come to in this state."""
    case = world.case
    if case.state in (State.PLANNING, State.REVISING):
        text = plan_text("A", case.plan.revision + 1)
        there = world.by_path.get(case.plan.path)
        is_there = there is not None and case.plan.path.startswith(Folder.PLANS)
        note = seen(case.plan.path, there) if is_there else None
        yield Drafted(case.generation, text, case.plan.revision + 1, note=note)
        yield PlanningFailed(case.generation, "no", "X")
        if not case.asked:
            yield Asked(case.generation, "call:1:0", "Which?", ("yes",), "why not")
    if case.state is State.APPROVED:
        if may_begin(case, notes_of(world)):
            yield Started(case.generation)
        yield from (
            void(plan, "another")
            for void in (SandboxWeakened, ModelChanged)
            for plan in notes_of(world).plans[:1]
        )
    if case.state in (State.APPROVED, State.RUNNING):
        yield from (TextLost(plan, "damaged") for plan in notes_of(world).plans[:1])
    if case.state is State.RUNNING:
        yield from (
            FilesChanged(plan, Drifted("a.txt changed", ("a.txt",), "1" * 40, ()))
            for plan in notes_of(world).plans[:1]
            if plan.folder is Folder.ACTIVE and not case.stop
        )
        if not case.stop and not case.amendments:
            approved, first = TEXTS[case.approval.digest], TEXTS[case.first_approved]
            wider = Scope(write=("more.txt",))
            yield Asked(
                case.generation,
                "call:1:0",
                why="why not",
                wider=wider,
                approved=approved,
                first=first,
            )
        ended = (case.generation, b"report", "Knowledge/Reports/x.md", {})
        yield MissionCompleted(*ended)
        yield MissionFailed(*ended, reason="why")


def key(world: World) -> tuple[object, ...]:
    """Return what makes a world different from another: counters that only grow do not."""
    case = replace(
        world.case,
        generation=0,
        version=0,
        plan=replace(world.case.plan, revision=min(world.case.plan.revision, 2), box=""),
        spent_approvals=world.case.spent_approvals[-1:],
        stamped=(),
    )
    files = frozenset(
        (p, raw.replace(b"revision: 3", b"revision: 2").replace(b"revision: 4", b"revision: 2"))
        for p, raw in world.files
    )
    return CASE_JSON.dump_json(case), files, world.approved, world.old


def search(limit: int, look) -> int:
    """Visit every world that can be reached, breadth first.

    `look` is shown each step of the daemon.
    """
    first = start()
    seen_keys = {key(first)}
    queue = deque([first])
    while queue and len(seen_keys) < limit:
        world = queue.popleft()
        following: list[World] = []
        gesture = observe(world.case, notes_of(world), TOOLS)
        if isinstance(gesture, ScopeWidened):
            assert world.case.asking is not None
            gesture = replace(gesture, written=TEXTS[world.case.asking.amended])
        if isinstance(gesture, PlanSuperseded):
            gesture = replace(gesture, newest=TEXTS[world.case.plan.digest])
        if gesture is not None:
            # What a person did is always acknowledged before the daemon's own work goes on.
            decision = decide(world.case, gesture, NOW)
            assert decision is not None, (
                f"{world.case.state}: observed {gesture.words}, which means nothing there"
            )
            look(world, gesture, decision)
            following.append(perform(world, decision))
        else:
            for event in events(world):
                decision = decide(world.case, event, NOW)
                assert decision is not None
                look(world, event, decision)
                after = perform(world, decision)
                if isinstance(event, MissionEnded):
                    after = replace(after, approved=frozenset())
                following.append(after)
            following += [new for _, new in gestures(world)]
        for new in following:
            if len(new.files) <= 4 and (k := key(new)) not in seen_keys:
                seen_keys.add(k)
                queue.append(new)
    return len(seen_keys)


def test_no_state_reaches_run_without_approval() -> None:
    """Exhaustive over the table: take the approvals away, and no run can be reached any more."""
    reached, queue = {State.PLANNING}, [State.PLANNING]
    while queue:
        state = queue.pop()
        for (source, kind), to in TABLE.items():
            if source is state and kind is not PlanApproved and to not in reached:
                reached.add(to)
                queue.append(to)
    assert reached == set(State) - {State.APPROVED, State.RUNNING, State.COMPLETED}


def test_answer_returns_to_work_that_asked() -> None:
    """What stands still is decided on as before, so it adds no way to a run."""
    for work in State:
        asking = Asking(work, "call:1:0", "Inbox/Questions/r_1.md", "", NOW, 1)
        case = replace(start().case, state=State.ASKING, asking=asking)
        for kind in get_args(Event):
            to = target(case, kind)
            assert to is (work if issubclass(kind, Answering) else TABLE.get((work, kind)))


def test_only_approved_text_runs() -> None:
    """The same with real texts and real moves: every step of the daemon in the first worlds that
    can be reached.
    """
    runs = []

    def look(world: World, event: Event, decision) -> None:
        # As if the look that should have seen what a person did were skipped: the start itself
        # rests on the note.
        if may_begin(world.case, its := notes_of(world)):
            assert [plan.digest for plan in its.plans] == [world.case.approval.digest], (
                "the note says something else"
            )
            assert its.plans[0].folder is Folder.ACTIVE
        if isinstance(event, Started):
            runs.append(world)
            assert world.case.approval.digest in world.approved, (
                "started a text that nobody put into System/Active"
            )
        if decision.case.approval.digest != world.case.approval.digest != "":
            assert decision.case.approval.digest in {"", *world.approved}
        if decision.case.state is State.APPROVED and world.case.state is not State.APPROVED:
            assert decision.case.approval.digest in world.approved

    assert search(1_500, look) >= 1_500
    assert runs


@pytest.mark.sweep
def test_only_approved_text_runs_in_whole_space() -> None:
    def look(world: World, event: Event, decision) -> None:
        if isinstance(event, Started):
            assert world.case.approval.digest in world.approved

    print(search(120_000, look), "worlds")


def test_same_gesture_is_never_answered_twice() -> None:
    """Acknowledging a gesture makes it disappear: the daemon never answers the same thing twice in
    a row.
    """

    def look(world: World, event: Event, decision) -> None:
        after = perform(world, decision)
        again = observe(after.case, notes_of(after), TOOLS)
        same = (
            again is not None
            and type(again) is type(event)
            and getattr(again, "note", None) == getattr(event, "note", None)
        )
        assert not same, (event.words, world.case.state)

    search(1_500, look)


def test_a_decision_leaves_no_stale_status() -> None:
    """But in a note that was renamed meanwhile or edited, which a later look stamps."""

    def look(world: World, event: Event, decision) -> None:
        after = perform(world, decision)
        notes = notes_of(after)
        others = STATUSES[after.case.acting] != STATUSES[world.case.acting]
        is_edited = isinstance(event, RequestEdited)
        if others and not is_edited and observe(after.case, notes, TOOLS) is None:
            before = {note.path for note, _ in stale_statuses(world.case, notes_of(world))}
            stale = {note.path for note, _ in stale_statuses(after.case, notes)} - before
            found = [path for path in stale if path in after.case.places]
            assert not found, (world.case.state, event.words)

    search(1_500, look)


def test_every_working_or_resting_state_has_statuses() -> None:
    assert set(STATUSES) == set(State) - {State.ASKING}


def test_stranger_is_never_mistaken_for_renamed_request() -> None:
    stood = []

    def look(world: World, event: Event, decision) -> None:
        request = notes_of(world).request
        if world.case.request_digest == digest(STRANGER, REQUEST_STAMPS):
            # the renamed one was deleted: what lies at its place counts, as after an editor that
            # dropped the properties
            return
        if any(raw == STRANGER for _, raw in world.files) and any(
            TRACE.encode() in raw
            for path, raw in world.files
            if path == "Inbox/Requests/renamed.md"
        ):
            stood.append(world)
            assert request is not None
            assert request.path == "Inbox/Requests/renamed.md"
            assert STRANGER not in decision.texts
            assert any(raw == STRANGER for _, raw in perform(world, decision).files)

    search(1_500, look)
    assert stood


def test_every_state_can_be_reached_and_left() -> None:
    reached = {State.PLANNING}
    ways: dict[State, set[State]] = {}

    def look(world: World, event: Event, decision) -> None:
        reached.add(decision.case.state)
        ways.setdefault(world.case.state, set()).add(decision.case.state)

    search(12_000, look)
    assert reached == set(State)
    for state in State:
        assert ways[state] - {state}, f"there is no way out of {state}"


def test_the_table_has_no_dead_end() -> None:
    asking = Asking(State.RUNNING, "call:1:0", "Inbox/Questions/r_1.md", "", NOW, 1)
    for state in State:
        case = replace(start().case, state=state, asking=asking if state is State.ASKING else None)
        assert {target(case, kind) for kind in get_args(Event)} - {None, state}, state


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_the_table_has_no_dead_row() -> None:
    used = set(TABLE)

    def look(world: World, event: Event, decision) -> None:
        used.discard((world.case.state, type(event)))

    search(120_000, look)
    assert used == set(), f"rows that nothing can reach: {used}"


@pytest.mark.parametrize("state", list(State))
def test_event_outside_table_changes_nothing(state: State) -> None:
    case = replace(start().case, state=state)
    for event in (
        Started(case.generation),
        PlanningFailed(case.generation, "x", "X"),
        Drafted(case.generation, b"", 1),
    ):
        if (state, type(event)) not in TABLE:
            assert decide(case, event, NOW) is None


def test_result_of_earlier_generation_is_ignored() -> None:
    case = start().case
    assert decide(case, PlanningFailed(case.generation - 1, "late", "X"), NOW) is None


@pytest.mark.parametrize("table", [explain._STATES, screen.COLOURS])
def test_every_state_is_in_every_state_table(table: Mapping[State, object]) -> None:
    assert set(table) >= set(State)


def test_every_folder_is_in_every_folder_table() -> None:
    """Else a note in a new folder ends the daemon, or is not a gesture."""
    assert set(sorting._STRANGER) == set(QUEUES) - {Folder.REQUESTS}
    assert set(observing._IN_FOLDER) == set(QUEUES) - {Folder.REQUESTS, Folder.QUESTIONS}
    assert set(builder._HOMES) == set(observing._IN_FOLDER)


def test_every_final_state_has_its_own_box() -> None:
    """Else the plan says that it awaits a person."""
    assert set(plan_note._BOXES) >= OVER
