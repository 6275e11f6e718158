"""Test the sentences that placet tells of the journal's rows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.cli.test_run import a_row

from placet.activity import Action, CommittedRow
from placet.case.story import Story, Verbosity, facts
from placet.cli.stderr_writer import StderrWriter
from placet.plan.differences import diff_callout


def test_every_action_is_printable_with_any_metadata() -> None:
    story = Story()
    for action in [*Action, "of.tomorrow"]:
        for metadata in (
            "{}",
            '{"reason": null, "steps": null, "files_changed": null, "cost_usd": null, "kind": "transient"}',
        ):
            story.line(
                CommittedRow(
                    1,
                    "2026-11-22T10:00:00.000Z",
                    "t" * 8,
                    "system",
                    "",
                    str(action),
                    "mission",
                    "say-hello",
                    metadata,
                    "0" * 64,
                )
            )


def test_request_name_cannot_move_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    row = CommittedRow(
        1,
        "2026-11-22T10:00:00.000Z",
        "t" * 8,
        "human",
        "",
        "request.detected",
        "request",
        "odd",
        '{"path": "Inbox/Requests/\\u001b[2J\\u202eodd.md", "reviewed_by": "ada"}',
        "0" * 64,
    )
    with StderrWriter(Verbosity.EVENT, times=False) as writer:
        writer.rows([row])
        writer.say("two\nlines")
    assert capsys.readouterr().err == (
        "odd: request seen: Inbox/Requests/\\x1b[2J\\u202eodd.md; a plan follows\ntwo\nlines\n"
    )


@pytest.mark.parametrize(
    ("action", "metadata", "line"),
    [
        ("pr.merged", '{"commit_sha": 1}', "pr.merged: this row cannot be read"),
        ("git.ran", "[" * 100_000, "git.ran: this row cannot be read"),
        ("step.completed", '{"step": 1}', "step 1 of ? done"),
    ],
)
def test_row_of_another_writer_is_one_line(action: str, metadata: str, line: str) -> None:
    row = replace(a_row(action, {}), entity_id="hello\n10:00 other", metadata=metadata)
    told = Story().line(row)
    assert told is not None
    assert told[1] == f"hello 10:00 other: {line}"


def test_run_line_omits_difference_and_repeats() -> None:
    story = Story()
    why = "It was changed while its mission runs.\n" + diff_callout(
        "a\n" * 9 + "b\n", "a\n" * 9 + "c\n"
    )
    assert "diff" in why
    cut = why[:-20]
    for action, reason in (("note.explained", why), ("request.invalid", cut)):
        _, line = story.line(a_row(action, {"path": "System/Active/x.md", "reason": reason})) or (
            None,
            "",
        )
        assert line.endswith("It was changed while its mission runs.")
    assert story.line(
        a_row("failure.detected", {"description": "Noticed: 3 iterations in a row."})
    ) == (
        Verbosity.EVENT,
        "say-hello: noticed: 3 iterations in a row.",
    )
    assert story.line(
        a_row(
            "execution.failed",
            {"reason": "model_error", "iterations": 3, "detail": "The server said no."},
        )
    ) == (
        Verbosity.TROUBLE,
        "say-hello: failed: the model could not continue after 3 iterations: The server said no.",
    )
    assert story.line(a_row("pr.reverted", {"branch": "feat/x", "reviewed_by": "cleo"})) == (
        Verbosity.EVENT,
        "say-hello: the merge of feat/x was undone by cleo",
    )
    seen = {"branch": "feat/x", "into": "main", "commit_sha": "0123456789abcdef"}
    assert story.line(a_row("pr.reverted", seen)) == (
        Verbosity.EVENT,
        "say-hello: feat/x was reverted on main by commit 0123456789ab",
    )
    assert story.line(a_row("pr.merged", seen)) == (
        Verbosity.EVENT,
        "say-hello: feat/x was merged into main by commit 0123456789ab",
    )


def test_long_line_is_cut_between_words() -> None:
    row = a_row("request.invalid", {"path": "x.md", "reason": "`priority: 1234567` " * 40})
    told = Story().line(row)
    assert told is not None
    assert re.search(r" (`priority:|1234567`) …$", told[1])


def test_mission_without_change_did_not_give_up() -> None:
    detail = "the plan was to change files, and none was changed"
    ended = {"reason": "nothing_changed", "iterations": 4, "cost_usd": 0.01, "detail": detail}
    said = facts("execution.failed", ended)
    assert said == "failed: the agent finished without changing a file, $0.0100"
    gave_up = facts("execution.failed", {**ended, "reason": "gave_up", "detail": "Why."})
    assert gave_up == "failed: the agent gave up after 4 iterations, $0.0100: Why."
