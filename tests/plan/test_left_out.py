"""Test that left-out steps and scope lines do not run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gitkit import git
from looping import Fake, Running, Time, looping, results, says, turns_taken
from placet.chat.messages import Ask, Purpose, Reply
from placet.cli.decide import proposal_text
from placet.client.decisions import proposal
from placet.note.checkboxes import BOX_WORDS
from placet.note.frontmatter import stamp
from placet.plan.digest import plan_digest
from placet.plan.left_out import contradictions
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import LiteralCall, Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope, ScopeProblems, scope_from
from vaultkit import TestVault, rows

pytestmark = pytest.mark.bare

TICKED, UNTICKED = f"- [x] {BOX_WORDS}", f"- [ ] {BOX_WORDS}"


def literal(path: str, content: str = "x\n") -> dict:
    return {"tool": "write_file", "params": {"path": path, "content": content}}


PARTS = {
    "title": "Write three files",
    "summary": "Each in a step of its own.",
    "steps": [
        {"title": "One", "description": "", "actions": [literal("one.txt", "1\n")]},
        {"title": "Two", "description": "", "actions": [literal("two.txt", "2\n")]},
        {"title": "Three", "description": "Write `three.txt`.", "tools": ["write_file"]},
        {"title": "Four", "description": "Write `four.txt`.", "tools": ["write_file"]},
        {"title": "Five", "description": "", "actions": [literal("five.txt", "5\n")]},
    ],
    "scope": {"write": ["one.txt", "two.txt", "three.txt", "four.txt", "five.txt"]},
    "risks": [],
}


def writer(ask: Ask) -> Reply:
    """Do step 4; then try step 3, which was left out."""
    if ask.purpose is not Purpose.EXECUTE:
        return says(("submit_plan", PARTS))
    if turns_taken(ask) == 0:
        return says(
            ("complete_step", {"step": 3, "summary": "Three"}),
            ("write_file", {"path": "four.txt", "content": "4\n"}),
            ("complete_step", {"step": 4, "summary": "Four"}),
        )
    return says(("finish", {"summary": "Done."}))


def planned(run: Running) -> Path:
    run.vault.drop("Please write files.\n", "files.md")
    run.settle()
    return run.vault.plan("files")


def leave_out(text: str, *numbers: int) -> str:
    """Untick the boxes of these steps, as reading view does it: by their places."""
    pieces = text.split(TICKED)
    marks = [UNTICKED if n in numbers else TICKED for n in range(1, len(pieces))]
    return pieces[0] + "".join(m + p for m, p in zip(marks, pieces[1:], strict=True))


def edit(run: Running, plan: Path, text: str) -> str:
    """Write a plan as a person; return it as it stands when its callout says so."""
    plan.write_text(text)
    run.settle()
    return plan.read_text()


def approve(run: Running, plan: Path) -> None:
    plan.rename(run.vault.root / "System/Active" / plan.name)
    run.settle()


def test_unticked_steps_are_reported_and_never_run(vault: TestVault) -> None:
    model = Fake(writer)
    with looping(vault, model=lambda: model, time=Time()) as run:
        plan = planned(run)
        written = plan.read_text()
        assert written.count(TICKED) == 5
        assert "Left out" not in written
        unticked = leave_out(written, 2, 3)
        edited = edit(run, plan, unticked)
        assert "> **Left out**: steps 2 and 3.\n" in edited
        # 0 bytes changed below the callout
        assert edited.split("# Write three files")[1] == unticked.split("# Write three files")[1]
        approve(run, plan)
    (row,) = rows(vault, "plan.approved")
    (created,) = rows(vault, "plan.created")
    assert row["steps_left_out"] == [2, 3]
    assert row["digest"] != created["digest"]
    assert row["edited"] is True
    (done,) = rows(vault, "execution.completed")
    assert done["files_changed"] == ["five.txt", "four.txt", "one.txt"]
    assert [r["step"] for r in rows(vault, "step.completed")] == [1, 4, 5]
    (ask, last) = [a for a in model.asks if a.purpose is Purpose.EXECUTE]
    opening = str(ask.turns[0].blocks)
    assert opening.count("Not approved: a person left this step out") == 2
    assert "### 2. Two" in opening
    assert "two.txt" not in opening.split("## Scope")[0]
    assert BOX_WORDS not in opening
    assert "step_left_out" in results(last)[0]
    report = next(vault.root.glob("Knowledge/Reports/*files.md")).read_text()
    assert "- 2. ~~Two~~ — you left it out; the scope stayed" in report
    assert "- [x] 4. Four" in report


def test_mission_survives_completing_left_out_step(vault: TestVault) -> None:
    rounds = [
        [("write_file", {"path": "four.txt", "content": "4\n"})],
        [("complete_step", {"step": n, "summary": "Done"}) for n in (4, 3)],
        [("finish", {"summary": "Done."})],
    ]
    model = Fake(
        lambda ask: (
            says(*rounds[turns_taken(ask)]) if ask.purpose is Purpose.EXECUTE else writer(ask)
        )
    )
    with looping(vault, model=lambda: model, time=Time()) as run:
        plan = planned(run)
        edit(run, plan, leave_out(plan.read_text(), 2, 3))
        approve(run, plan)
    assert not rows(vault, "execution.failed")
    assert "do nothing of it. Nothing is left. Call `finish`." in results(model.asks[-1])[-1]


# --- reading

SCOPE = Scope(("a/**", "b.txt"), (("make", "test"), ("ruff", "check")))
VALUE = Plan("t", "", (Step("One"), Step("Two", "Text."), Step("Three")), SCOPE)
TEXT = render_plan(VALUE)


def numbers(text: str) -> tuple[int, ...]:
    return parse_plan(text).left_out


def problems(text: str) -> str:
    with pytest.raises(PlanProblems) as found:
        parse_plan(text)
    return "\n".join(p.message for p in found.value.problems)


@pytest.mark.parametrize(
    "heading",
    [
        "### [ ] 2. Two",
        "### [] 2. Two",
        "### [x] 2. Two",
        "### 2. [ ] Two",
        "### ~~2. Two~~",
        "### 2. ~~Two~~",
        "### 2. Two ~~more",
        "### ~~2. Two~~ ###",
        "~~### 2. Two~~",
        "~~### 2. Two",
    ],
)
@pytest.mark.parametrize("boxes", [True, False])
def test_struck_or_checked_step_title_is_refused(heading: str, boxes: bool) -> None:
    text = TEXT.replace("### 2. Two", heading)
    text = text if boxes else text.replace(TICKED, "")
    with pytest.raises(PlanProblems) as found:
        parse_plan(text)
    told = "untick the box below its heading"
    (line,) = [p.line for p in found.value.problems if told in p.message]
    assert text.split("\n")[line - 1] == heading


@pytest.mark.parametrize(
    "box",
    [
        UNTICKED,
        UNTICKED.replace("-", "*"),
        UNTICKED.replace("-", "2."),
        f"  {UNTICKED}  ",
        UNTICKED.upper(),
    ],
)
def test_unticked_box_leaves_its_step_out(box: str) -> None:
    first, second, rest = TEXT.split(TICKED, 2)
    assert numbers(first + TICKED + second + box + rest) == (2,)
    # also below the text of the step, and below a list in it
    moved = first + TICKED + second + rest.replace("Text.", f"Text.\n\nDone when:\n- x\n{box}", 1)
    assert numbers(moved) == (2,)
    assert parse_plan(moved).steps[1].done_when == ("x",)


def test_box_below_comment_belongs_to_step() -> None:
    for comment in ("> @placet why?\n", "> - @placet why?\n"):
        text = TEXT.replace(TICKED, f"{comment}{UNTICKED}", 1)
        assert numbers(text) == (1,)
        assert parse_plan(text).steps[0].description == ""


def test_upper_case_tick_and_crlf_are_accepted() -> None:
    assert parse_plan(TEXT.replace("[x]", "[X]")) == VALUE
    assert numbers(TEXT.replace(TICKED, UNTICKED, 1).replace("\n", "\r\n")) == (1,)


def test_plan_without_step_boxes_is_complete() -> None:
    text = TEXT.replace(TICKED, "")
    assert parse_plan(text) == VALUE
    own = text.replace("Text.", "- [ ] write it\n- [x] read it\n- [-] do this one later")
    assert parse_plan(own).left_out == ()
    assert "- [ ] write it" in parse_plan(own).steps[1].description
    code = text.replace("Text.", f"```\n{UNTICKED}\n```")
    assert parse_plan(code).left_out == ()


def test_ambiguous_boxes_are_problems() -> None:
    for line in ("- [-] {}", "~~- [x] {}~~", "- [x] ~~{}~~", "- ~~[x] {}~~"):
        damaged = TEXT.replace(TICKED, line.format(BOX_WORDS), 1)
        assert "box that cannot be read" in problems(damaged)
    assert "more than one box" in problems(TEXT.replace(TICKED, f"{TICKED}\n{UNTICKED}", 1))
    assert "comment" in problems(TEXT.replace(TICKED, f"%%\n{UNTICKED}\n%%", 1))
    assert "every step is left out" in problems(TEXT.replace("[x]", "[ ]"))


@pytest.mark.parametrize(
    "title",
    ["~~One~~", "[ ] One", "[x] ~~One~~", "1. ~~One~~", "\\~~One~~", "~~", "[]", "~~~~", "`~~` x"],
)
@pytest.mark.parametrize("out", [True, False])
def test_model_text_cannot_untick_steps(title: str, out: bool) -> None:
    text = f"{UNTICKED}\n~~### 3. Three~~\n~~ ### x~~\n- [ ] do this step\n* [-] Do this step [a]"
    plan = Plan(
        title, text, (Step(title, text, (), (text,), left_out=out), Step("Two")), Scope(), (text,)
    )
    assert parse_plan(render_plan(plan)) == plan


# --- the scope


def scoped(block: str) -> Plan:
    head = TEXT.split("```toml")[0]
    return parse_plan(f"{head}```toml\n{block}\n```\n")


@pytest.mark.parametrize(
    "block",
    [
        'write = [\n  "a/**",\n  ~~"b.txt",~~\n]',
        'write = ["a/**", ~~"b.txt"~~]',
        "write = ['~~b.txt~~', 'a/**']",
        'write = ["a/**"]\n~~shell = true~~',
        "write = []\n~~budget_usd = 0.5~~",
        'write = ["a/**", "!a/~~secret~~"]',
        'write = [\n"a/**",\n~~"b"\n]',
    ],
)
def test_plan_with_struck_scope_entry_is_refused(block: str) -> None:
    with pytest.raises(PlanProblems) as found:
        scoped(block)
    (problem,) = found.value.problems
    assert "delete what you do not allow" in problem.message
    line = next(n for n, text in enumerate(block.split("\n")) if "~~" in text)
    assert problem.line == TEXT.split("```toml")[0].count("\n") + 2 + line


@pytest.mark.parametrize("scope", [{"write": ["a~~b"]}, {"run": ["git diff HEAD~~"]}])
def test_model_cannot_submit_strikethrough_in_scope(scope: dict[str, list[str]]) -> None:
    with pytest.raises(ScopeProblems, match="~~"):
        scope_from(scope)


# --- what cannot stand without what was left out


def write(path: str) -> LiteralCall:
    return LiteralCall("write_file", {"path": path, "content": "x"})


def run(*argv: str) -> LiteralCall:
    return LiteralCall("run_command", {"command": argv[0], "args": list(argv[1:])})


LEFT = Scope(("a/**",), (("ruff", "check"),))


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([Step("s", actions=(write("b.txt"),))], "writes 'b.txt'"),
        ([Step("s", actions=(write("a/../b.txt"),))], "writes 'a/../b.txt'"),
        ([Step("s", actions=(LiteralCall("delete_file", {"path": "b"}),))], "deletes 'b'"),
        ([Step("s", actions=(run("make", "test"),))], "runs `make test`"),
        ([Step("s", actions=(LiteralCall("bash", {"command": "ls"}),))], "uses bash"),
    ],
)
def test_step_needing_removed_permission_is_refused(steps: list[Step], why: str) -> None:
    (said,) = contradictions(Plan("t", "", tuple(steps), LEFT))
    assert why in said
    assert said.startswith(f"Step {len(steps)} ")


def test_leaving_step_out_adds_no_tools() -> None:
    some = (Step("1", tools=("read_file",), left_out=True), Step("2"))
    assert Plan("t", "", some, SCOPE).tools == {"read_file"}
    named = (Step("1", tools=("run_command",), left_out=True), Step("2", tools=("grep",)))
    assert Plan("t", "", named, SCOPE).tools == {"grep"}


# --- in the loop


def refused(vault: TestVault, plan: Path) -> str:
    """The reason for which a plan was not approved, which stands in the note."""
    (row,) = rows(vault, "plan.refused")
    assert not rows(vault, "plan.approved")
    assert not rows(vault, "execution.started")
    text = plan.read_text()
    assert "**Not approved**" in text
    assert row["reason"].splitlines()[0].split("`")[0] in text
    return row["reason"]


@pytest.mark.parametrize(
    ("change", "why", "told"),
    [
        (lambda text: leave_out(text, 1, 2, 3, 4, 5), "every step is left out", ""),
        (
            lambda text: text.replace('    "two.txt",', '    ~~"two.txt",~~'),
            "delete what you do not allow",
            "",
        ),
        (
            lambda text: text.replace('    "two.txt",\n', ""),
            "Step 2 writes 'two.txt', which scope.write does not allow",
            "",
        ),
    ],
)
@pytest.mark.thinned(2)
def test_contradictory_plan_is_refused_with_reason(
    vault: TestVault, change: Callable[[str], str], why: str, told: str
) -> None:
    with looping(vault, model=lambda: Fake(writer), time=Time()) as run:
        plan = planned(run)
        before = plan.read_text()
        text = edit(run, plan, change(before))
        assert "placet cannot run this plan" in text
        assert told in text
        approve(run, plan)
        assert why in refused(vault, plan)
        # made good, it is approved
        plan.write_text(
            plan.read_text().split("# Write three files")[0] + before.split("\n\n", 1)[1]
        )
        edit(run, plan, before)
        approve(run, plan)
    assert "steps_left_out" not in rows(vault, "plan.approved")[0]


def test_tick_counts_after_box_shows_it(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(writer), time=Time()) as run:
        plan = planned(run)
        plan.write_text(leave_out(plan.read_text(), 2, 3))
        approve(run, plan)  # before anybody could have read what is left
        assert "placet updated the box" in refused(vault, plan)
        assert "> **Left out**: steps 2 and 3.\n" in plan.read_text()
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "approve"}))
        run.settle()
    (row,) = rows(vault, "plan.approved")
    assert (row["via"], row["steps_left_out"]) == ("property", [2, 3])
    assert rows(vault, "execution.completed")


def test_plan_digest_covers_step_boxes() -> None:
    note = f"---\nstatus: review\ndecision:\n---\n{TEXT}".encode()
    digests = {
        plan_digest(note),
        plan_digest(note.replace(b"[x]", b"[ ]", 1)),
        plan_digest(note.replace(b'"b.txt",', b"")),
    }
    assert len(digests) == 3
    assert plan_digest(note.replace(b"decision:", b"decision: approve")) in digests


def test_partly_approved_plan_commits_and_replays(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(writer), time=Time()) as run:
        plan = planned(run)
        edit(run, plan, leave_out(plan.read_text(), 2, 3))
        approve(run, plan)
    (done,) = rows(vault, "execution.completed")
    subjects = git(vault.root, "log", "--format=%s", "--reverse", f"{done['commit']}", "-3")
    assert subjects == "One\nFour\nFive"
    assert "two.txt" not in git(vault.root, "log", "-p", "--all", "--", "two.txt", "three.txt")
    assert vault.click("replay", "files").returncode == 0


def test_deleted_permission_is_refused_and_reported(vault: TestVault) -> None:
    def greedy(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return says(("submit_plan", PARTS))
        if turns_taken(ask) == 0:
            return says(
                ("write_file", {"path": "three.txt", "content": "3\n"}),
                ("write_file", {"path": "four.txt", "content": "4\n"}),
                ("complete_step", {"step": 4, "summary": "Four"}),
            )
        return says(("finish", {"summary": "Done."}))

    model = Fake(greedy)
    with looping(vault, model=lambda: model, time=Time()) as run:
        plan = planned(run)
        text = leave_out(plan.read_text(), 3).replace('    "three.txt",\n', "")
        text = edit(run, plan, text)
        assert "> **Left out**: step 3.\n" in text
        assert "It may write `one.txt`, `two.txt`, `four.txt`, `five.txt`;" in text
        approve(run, plan)
    (row,) = rows(vault, "tool.refused")
    assert row["target"] == "three.txt"
    (done,) = rows(vault, "execution.completed")
    assert "three.txt" not in done["files_changed"]
    report = next(vault.root.glob("Knowledge/Reports/*files.md")).read_text()
    assert "files_plan]] (you left out: step 3), appr" in report
    opening = str(next(a for a in model.asks if a.purpose is Purpose.EXECUTE).turns[0].blocks)
    assert '"three.txt"' not in opening


def test_failure_report_excludes_unticked_steps(vault: TestVault) -> None:
    def failing(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return says(("submit_plan", PARTS))
        return says(("give_up", {"reason": "It cannot be done."}))

    with looping(vault, model=lambda: Fake(failing), time=Time()) as run:
        plan = planned(run)
        edit(run, plan, leave_out(plan.read_text(), 2, 3))
        approve(run, plan)
    report = next(vault.root.glob("Knowledge/Reports/*failure.md")).read_text()
    assert "revision 1 for [[files]] (you left out: steps 2 and 3), approved" in report
    assert "Still to be done:\n> - 4. Four\n> - 5. Five\n>\n" in report
    assert "Do not do it:\n> - 2. Two\n> - 3. Three\n" in report
    assert plan.read_text().count(UNTICKED) == 2  # and so it can be approved again


def test_revision_sees_boxes_and_returns_all_ticked(vault: TestVault) -> None:
    model = Fake(writer)
    with looping(vault, model=lambda: model, time=Time()) as run:
        plan = planned(run)
        text = leave_out(plan.read_text(), 2)
        plan.write_text(f"{text}\n## Review Comments\n\n- Less, please.\n")
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "revise"}))
        run.settle()
        assert rows(vault, "plan.revised")
        revised = plan.read_text()
    assert revised.count(f"\n{TICKED}\n") == 5
    assert f"\n{UNTICKED}\n" not in revised
    ask = model.asks[-1]
    assert ask.purpose is Purpose.REVISE
    sent = "\n".join(str(block["text"]) for turn in ask.turns for block in turn.blocks)
    assert f"### 2. Two\n\n{UNTICKED}" in sent
    assert "the person did not want this step" in ask.system[0].replace("\n", " ")


def test_hand_written_plan_needs_no_boxes(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(writer), time=Time()) as run:
        plan = planned(run)
        text = edit(run, plan, plan.read_text().replace(f"{TICKED}\n\n", ""))
        assert "Left out" not in text
        unticked = re.sub(r"(### [23]\. .*)", rf"\1\n\n{UNTICKED}", text)
        edit(run, plan, unticked)
        approve(run, plan)
    (row,) = rows(vault, "plan.approved")
    assert row["steps_left_out"] == [2, 3]
    assert [r["step"] for r in rows(vault, "step.completed")] == [1, 4, 5]


def test_command_line_shows_left_out_steps(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(writer), time=Time()) as run:
        plan = planned(run)
        text = leave_out(plan.read_text(), 3).replace('    "three.txt",\n', "")
        edit(run, plan, text)
        case = next(iter(run.loop.state.cases.values()))
        told = proposal_text(proposal(vault.site, case, plan.read_bytes()))
    assert "3. Three (left out)\n" in told
    assert "left out  step 3\n" in told


def test_failed_plan_is_reapproved_without_step(vault: TestVault) -> None:
    def first_fails(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE and not rows(vault, "execution.failed"):
            return says(("give_up", {"reason": "It cannot be done."}))
        return writer(ask)

    with looping(vault, model=lambda: Fake(first_fails), time=Time()) as run:
        plan = planned(run)
        approve(run, plan)
        assert rows(vault, "execution.failed")
        text = edit(run, plan, leave_out(plan.read_text(), 2, 3))
        assert "> **Left out**: steps 2 and 3.\n" in text
        assert "]] failed\n" in text
        approve(run, plan)
    assert rows(vault, "plan.approved")[-1]["steps_left_out"] == [2, 3]
    assert not rows(vault, "plan.refused")
    assert rows(vault, "execution.completed")


# --- tools


def test_plan_names_tools_only_in_scope(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(writer), time=Time()) as run:
        plan = planned(run)
        text = plan.read_text()
        assert '\ntools = ["write_file"] # tools that the agent may use\n' in text
        assert "Tools:" not in text
        bare = text.replace('tools = ["write_file"] # tools that the agent may use\n', "")
        edit(run, plan, bare.replace("Write `three.txt`.", "Write it.\n\nTools: `write_file`"))
        approve(run, plan)
        assert "The line `tools` is missing in the scope" in refused(vault, plan)
        edit(run, plan, text.replace('["write_file"]', "[]"))
        approve(run, plan)
    assert not rows(vault, "plan.approved")
    assert (
        "uses write_file, which scope.tools does not name"
        in rows(vault, "plan.refused")[1]["reason"]
    )


def test_older_plan_may_use_tools_of_ticked_steps() -> None:
    text = TEXT.replace("Text.", "Text.\n\nTools: `grep`").replace(TICKED, UNTICKED, 1)
    older = parse_plan(text.replace("## Scope", "Tools: `read_file`\n\n## Scope"))
    assert older.scope.tools is None
    assert older.tools == {"grep", "read_file"}
    assert parse_plan(text.replace("write = ", 'tools = ["glob"]\nwrite = ', 1)).tools == {"glob"}
