"""Open cases for new requests, and adopt plans that are not in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from placet.agent.prompts import agents
from placet.case.case import Case, NoteSeen, Request
from placet.case.commands import Decision
from placet.case.decide import open_case
from placet.case.notes import DRAFT
from placet.case.request import RequestProblems, read_request
from placet.case.results import adopt_plan
from placet.case.settle import Quiet
from placet.case.sorting import CaseNotes
from placet.disk.scan import Scan
from placet.errors import BUGS, describe_bug
from placet.loop.cases import Cases, Taken
from placet.loop.intake import Intake
from placet.loop.threads import expect_model
from placet.note.frontmatter import Frontmatter, UnsafeEdit, read_note, stamp
from placet.note.paths import Folder, is_request_id, is_unnamed, request_id, trace_id


@dataclass(slots=True)
class Drafts:
    """The requests and answers that somebody is still writing.

    Either they say so, or their text changed less than `quiet_s` ago. `known` has by trace_id
    whether the request was a draft when that was last certain. `unfinished` are new requests with
    problems that are not reported while they are being written. `no_wait` skips the waiting.
    """

    book: Cases
    intake: Intake
    no_wait: bool = False
    known: dict[str, bool] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    quiet: Quiet = field(default_factory=Quiet)

    def look(self, scan: Scan) -> None:
        """Update from the requests that were read."""
        clock, written = self.book.ports.clock, (f"{Folder.REQUESTS}/", f"{Folder.QUESTIONS}/")
        self.quiet.look(
            (n for n in self.intake.notes.values() if n.path.startswith(written)),
            {p: f.fingerprint for p, f in scan.found.items() if p.startswith(written)},
            clock.monotonic(),
            clock.wall().timestamp(),
        )

    def learn(self, shown: Mapping[str, CaseNotes]) -> None:
        """Update from the notes of cases that are certain."""
        held = self.book.cases.held
        self.known = {trace: was for trace, was in self.known.items() if trace in held} | {
            trace: its.request is not None and its.request.status == DRAFT
            for trace, its in shown.items()
        }

    def is_draft(self, case: Case) -> bool:
        """Return whether a case's request is a draft, or was not read since the start.

        A folder is no draft.
        """
        path = case.request_path
        return self.known.get(case.trace_id, bool(path) and not self.intake.is_no_note(path))

    def explainable(self, problems: Mapping[str, str]) -> dict[str, str]:
        """Return the problems of new requests that are finished; the others become `unfinished`."""
        self.unfinished = frozenset(path for path in problems if self.left_s(path))
        return {path: why for path, why in problems.items() if path not in self.unfinished}

    def left_s(self, path: str) -> float:
        """Return for how many seconds a request or an answer must stay unchanged to count."""
        if self.no_wait:
            return 0.0
        ports = self.book.ports
        return self.quiet.left_s(path, ports.clock.monotonic(), ports.config.vault.quiet_s)


@dataclass(slots=True)
class Requests:
    """Open cases."""

    book: Cases
    drafts: Drafts

    def read(self, note: NoteSeen) -> Request | str:
        """Return the request that a note states, or its problems."""
        ports = self.book.ports
        table = ports.config.vault
        try:
            request = read_request(
                note.path,
                read_note(note.raw),
                agents(ports.vault),
                ports.config.portals,
                table.default_agent,
                table.own_keys,
            )
            marks = {"status": "planning", "trace_id": "0" * 8}
            stamp(note.raw, marks, kind_if_none=Frontmatter(table.frontmatter))
        except RequestProblems as found:
            return "\n".join(found.problems)
        except UnsafeEdit as error:
            return str(error)
        return request

    def take_up(self, new: Sequence[NoteSeen], taken: Taken) -> dict[str, str]:
        """Open cases for new requests; return the problems of others by path.

        `taken` are the request ids in use; the new ones are added.
        """
        book = self.book
        clock = book.ports.clock
        problems: dict[str, str] = {}
        opened: dict[str, Decision] = {}
        for note in new:
            name = PurePosixPath(note.path).name
            try:
                request = self.read(note)
            except BUGS as error:  # a bug must not stop the other notes
                request = f"{describe_bug(error)}."
            if isinstance(request, str):
                problems[note.path] = request
                continue
            if is_unnamed(name) and self.drafts.left_s(note.path):
                problems[note.path] = "It has no name yet."  # else its id would stay `untitled`
                continue
            trace, ordinal = note.trace_id, 0
            while not trace or trace in book.cases or trace in opened:
                trace, ordinal = trace_id(name, note.digest, ordinal), ordinal + 1
            named = request_id(name, taken)
            taken.given.add(named)
            self.drafts.known[trace] = False
            ready = not self.drafts.left_s(note.path)
            opened[trace] = open_case(note, request, trace, named, clock.now(), ready=ready)
        if opened:
            book.record(*opened.values())
            expect_model(book.ports)
        return problems

    def adopt(
        self, orphans: Sequence[NoteSeen], notes: Iterable[NoteSeen], taken: Taken
    ) -> dict[str, str]:
        """Open cases for plans that are not in the journal; return the problems by path.

        `notes` are all that were read. `taken` are the request ids in use; the new ones are added.
        """
        problems: dict[str, str] = {}
        asked = {
            n.trace_id: n
            for n in notes
            if orphans and not n.is_plan and not n.problem and n.folder is Folder.REQUESTS
        }
        for note in sorted(orphans, key=lambda n: (n.folder is not Folder.ACTIVE, n.path)):
            named = str(note.meta.get("request_id") or "")
            if note.trace_id in self.book.cases:
                # The second of two plans with one trace_id. The first was adopted just now, and the
                # next look sees both.
                continue
            if is_request_id(named) and named not in taken:
                taken.given.add(named)
                now = self.book.ports.clock.now()
                try:
                    self.book.record(adopt_plan(note, asked.get(note.trace_id), now))
                except BUGS as error:  # a bug must not stop the other notes
                    problems[note.path] = f"{describe_bug(error)}."
            else:
                problems[note.path] = (
                    "The journal does not know this plan, and its request_id is taken by another, "
                    "missing, or not one that placet would give."
                )
        return problems
