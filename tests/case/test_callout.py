"""Test the summary box on a plan: state, permissions and next step."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.case.test_warnings import CASE as BARE
from tests.case.test_warnings import HEAD, PLAN_OF_ONE, note

from placet.case.callout import (
    box_edits_to_text,
    box_of,
    box_written,
    headed,
    is_own_box,
    with_box,
    with_marks,
)
from placet.case.case import Approval, Asking, Case
from placet.case.events import ActiveEdited, BoxStale, Gesture, PlanApproved
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.observe import observe
from placet.case.sorting import sort_notes
from placet.note.box import BEGIN, END, find_box, without_box
from placet.note.box import with_box as boxed
from placet.note.frontmatter import Frontmatter, read_note
from placet.note.hidden_text import find_unseen
from placet.plan.digest import plan_digest
from placet.plan.hosts import NEEDS_LEVEL_3
from placet.plan.parse import parse_plan
from placet.plan.plan import Step
from placet.plan.scope import scope_from
from placet.tools.registry import PLANNABLE
from vaultkit import PLAN, TestVault, make_vault

WRITES: list[dict[str, object]] = [
    {
        "calls": [
            ("write_file", {"path": "hello.txt", "content": "hello\n"}),
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done."}),
        ]
    }
]
GIVES_UP: list[dict[str, object]] = [{"calls": [("give_up", {"reason": "There is no paper."})]}]


def knowing(raw: bytes) -> Case:
    """Return a case whose plan has this box."""
    lines = lines_of_box(raw, BARE)
    return replace(BARE, plan=replace(BARE.plan, box=with_marks("", lines), revision=1))


def lines_of_box(raw: bytes, case: Case) -> tuple[str, ...]:
    """Return the box of a plan's note, made for this case."""
    return shown_in(with_box(raw, box_of(case)))


def shown_in(raw: bytes) -> tuple[str, ...]:
    """Return the lines of the box in a plan's note."""
    found = find_box(read_note(raw).body)
    assert found is not None
    return found.lines


RAW = note(PLAN_OF_ONE)
CASE = knowing(RAW)
REQUEST = inspect_note(
    CASE.request_path, f"---\ntrace_id: {CASE.trace_id}\n---\nHi\n".encode(), "cleo"
)


def seen(case: Case, raw: bytes) -> Gesture | None:
    """Return what placet sees in a plan's note in the case's place."""
    request = replace(REQUEST, path=case.request_path, status="planned")
    case = replace(case, request_digest=request.digest)
    notes = sort_notes({case.trace_id: case}, [request, inspect_note(case.plan.path, raw, "cleo")])
    return observe(case, notes.of_case[case.trace_id], PLANNABLE)


def planned(
    tmp_path: Path, *missions: list[dict[str, object]], name: str = "Say hello.md"
) -> TestVault:
    vault = make_vault(tmp_path)
    plans = [("plan", [{"calls": [("submit_plan", PLAN)]}])] * 3
    vault.script(*plans, *(("execute", mission) for mission in missions or (WRITES,)))
    vault.drop("Say hello.\n", name)
    vault.here()
    return vault


def box(path: Path) -> str:
    found = find_box(read_note(path.read_bytes()).body)
    assert found is not None, path.read_text()
    return "".join(f"{line}\n" for line in found.lines)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new))


def test_box_begins_with_what_plan_may_do() -> None:
    known = replace(CASE.plan, base_branch="main", base_commit=HEAD.base_commit)
    first, second, third, fourth, *_ = lines_of_box(RAW, replace(CASE, plan=known))
    assert first == "> [!question|placet] A plan for [[R]] awaits you"
    assert second == "> **Writes 1 path. No network, no shell. At most 10 iterations.**"
    assert third == "> It may write and delete `a`; run nothing; cost: no limit."
    assert fourth == (
        f"> **Where**: this vault itself, on the new branch `feat/r-{HEAD.trace_id[:8]}`, "
        "made from branch `main`, commit `000000000000`."
    )


RUNS = re.sub(rb"run = .*", b'run = ["make"]', RAW)
REACHES = RUNS.replace(b"network = false", b'network = ["a.example", "*.b.example"]')


def test_box_names_every_host() -> None:
    assert REACHES != RAW
    assert (
        "> **Writes 1 path, runs 1 command. Reaches `a.example`, `*.b.example`, no shell. "
        "At most 10 iterations.**"
    ) in lines_of_box(REACHES, CASE)
    fewer = REACHES.replace(b', "*.b.example"', b"")
    assert "Reaches `a.example`, no shell." in "".join(lines_of_box(fewer, CASE))


def test_dangers_stand_first_in_box() -> None:
    title, blank, danger, *rest = lines_of_box(REACHES, CASE)
    assert title.startswith("> [!question|placet]")
    assert (blank, danger) == (">", "> > [!danger] Look twice at the scope")
    end = next(at for at, line in enumerate(rest) if not line.startswith("> > - "))
    assert rest[end] == ">", "a blank line ends the inner callout"
    assert rest[end + 1].startswith("> **Writes ")


def test_long_list_of_box_is_cut_after_six() -> None:
    def told(*paths: str) -> str:
        listed = ", ".join(f'"{path}"' for path in paths).encode()
        (line,) = (
            line
            for line in lines_of_box(re.sub(rb"write = .*", b"write = [%s]" % listed, RAW), CASE)
            if line.startswith("> It may")
        )
        return line

    many = [f"src/{n}.py" for n in range(30)]
    assert "`src/5.py`; run" in told(*many[:6])
    cut = told(*many)
    assert re.search(r"`src/5\.py` and 24 more, below \(checksum `[0-9a-f]{16}`\); run", cut)
    # an approval rests on a box that says the scope: any other entry makes it another box
    assert told(*many[:-1], "secret.py") != cut


def test_title_is_no_part_of_what_is_approved() -> None:
    titled = RAW.replace(b"title: T\n", b"title: Another\n")
    assert titled != RAW
    assert plan_digest(titled) == plan_digest(RAW)
    head = replace(HEAD, title="<% tp %> a\nb: [[c]]\u202e")
    meta = read_note(headed(head, "# T\n", Frontmatter.YAML)).meta
    assert meta["title"] == "< % tp %> a b: [[c]]\\u{202E}"


def test_box_says_what_hosts_need() -> None:
    weak = replace(CASE, plan=replace(CASE.plan, command_notes=(NEEDS_LEVEL_3,)))
    assert f"> {NEEDS_LEVEL_3}" in lines_of_box(REACHES, weak)
    assert f"> {NEEDS_LEVEL_3}" not in lines_of_box(RUNS, weak)


def mdformat(text: str) -> str:
    """Format the box as mdformat does (1.0.0; with mdformat_obsidian it writes capitals)."""
    head = re.sub(r"\[!(\w+)\|placet\]", lambda m: m[0].upper(), text)
    return head.replace(f"\n{END}\n", f"\n>   {END}\n").replace(f"{BEGIN}\n", f"\n{BEGIN}\n\n")


def plain_mdformat(text: str) -> str:
    escaped = re.sub(r"\[!(\w+)\|placet\]", r"\\[!\1|placet\\]", text)
    return escaped.replace(f"\n{END}\n", f"\n> {END}\n").replace(f"{BEGIN}\n", f"{BEGIN}\n\n")


def wrapping(text: str) -> str:
    """Break the lines of the box, as prettier does with `proseWrap: always`."""
    above, below = text.split(f"{END}\n", 1)
    return re.sub(r"(?m)^(> \S.{50,60}\S) (?=\S)", r"\1\n> ", above) + f"{END}\n{below}"


def stars(text: str) -> str:
    """Change the bullets of the box, as Linter does with the unordered list style `*`."""
    return re.sub(r"(?m)^> - ", "> * ", text)


def pluses(text: str) -> str:
    return re.sub(r"(?m)^> - ", "> + ", text)


FORMATTERS = [mdformat, plain_mdformat, wrapping, stars, pluses]


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_reformatted_box_is_rewritten(formatter: Callable[[str], str]) -> None:
    formatted = formatter(RAW.decode()).encode()
    assert formatted != RAW
    assert plan_digest(box_edits_to_text(formatted, CASE)) == plan_digest(RAW), "it is no edit"
    assert box_written(formatted, box_of(CASE), CASE) == RAW
    gesture = seen(CASE, formatted.replace(b'decision: ""', b"decision: approve"))
    assert gesture is not None
    assert isinstance(gesture, PlanApproved)


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_reformatted_box_keeps_approval(formatter: Callable[[str], str]) -> None:
    box = box_of(replace(CASE, state=State.APPROVED))
    active = with_box(RAW, box)
    lines = shown_in(active)
    case = replace(
        CASE,
        state=State.APPROVED,
        plan=replace(CASE.plan, path="System/Active/r.md", box=with_marks("", lines)),
        approval=Approval(digest=plan_digest(active), at="2026-11-21T12:00:00.000Z"),
    )
    assert not isinstance(seen(case, formatter(active.decode()).encode()), ActiveEdited)


def test_words_in_reformatted_box_are_kept() -> None:
    formatted = mdformat(RAW.decode())
    assert "> **Where**" in formatted
    said = formatted.replace("> **Where**", "> Leave the tests alone.\n> **Where**")
    text = box_written(said.encode(), box_of(CASE), CASE).decode()
    assert text.count(BEGIN) == text.count("Leave the tests alone.") == 1
    assert text.index(END) < text.index("Leave the tests alone.")
    assert text.count("**Where**") == 1


def test_box_follows_edits_and_leaves_rest_unchanged(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    edit(vault.plan(), 'write = ["hello.txt"]', 'write = ["hello.txt", "**"]')
    edit(vault.plan(), "network = false", "network = true # ${x}$\u200b")
    before = vault.plan().read_text()
    assert "say-hello" in vault.click("plans").stdout, "it waits, whatever its box says by now"
    vault.here()
    text = vault.plan().read_text()
    shown = box(vault.plan())
    assert "> **Writes 2 paths. Uses the network, no shell. At most 10 iterations.**" in shown
    assert "> It may write `hello.txt`, `**`; run nothing; cost: no limit." in shown
    assert "> > [!danger] Look twice at the scope" in text
    warned = re.search(r"> > - line (\d+) below this box, zero-width character", text)
    assert warned is not None
    below = without_box(read_note(text.encode()).body)
    assert "\u200b" in below.splitlines()[int(warned[1]) - 1], "what a person hides is said, too"
    assert text.endswith(before[before.index("> [!info] About this plan") :])
    vault.here()
    assert vault.plan().read_text() == text, "once is enough"
    vault.approve()
    vault.here()
    assert [row["metadata"]["edited"] for row in vault.rows("plan.approved")] == [True]


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Live where it is 14 hours later than in UTC."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "XXX-14")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    "change",
    [
        ('write = ["hello.txt"]', 'write = ["hello.txt", "**"]'),
        ("network = false", "network = true"),
        ("It may write `hello.txt`", "It may write nothing"),
        ("> [!question|placet]", "> [!question]"),
    ],
)
@pytest.mark.thinned(3)
def test_unseen_scope_needs_second_approval(
    far_east: None, tmp_path: Path, change: tuple[str, str]
) -> None:
    vault = planned(tmp_path)
    edit(vault.plan(), *change)
    vault.approve()
    vault.here()
    assert not vault.rows("plan.approved")
    assert not vault.active().exists()
    shown = box(vault.plan())
    told = re.search(r"\*\*Not approved\*\* \((.*?)\)", shown)
    assert told is not None
    assert abs(datetime.fromisoformat(told[1]) - datetime.now()) < timedelta(hours=1), "local time"  # noqa: DTZ005
    assert len(told[1]) == len("2026-11-22 21:30:00"), "to the second"
    wanted = "planned for this vault" if "portal" in change[0] else "placet updated the box"
    assert wanted in shown
    scope = parse_plan(read_note(vault.plan().read_bytes()).body).scope
    assert all(f"`{glob}`" in shown for glob in scope.write)
    assert ("Uses the network" if scope.network else "No network") in shown
    if "portal" in change[0]:
        return
    vault.approve()
    vault.here()
    assert len(vault.rows("plan.approved")) == 1
    assert len(vault.rows("plan.refused")) == 1


def test_a_plan_without_its_box_gets_it_back() -> None:
    shown = "".join(f"{line}\n" for line in shown_in(RAW))
    bare = RAW.replace(f"{BEGIN}\n{shown}{END}\n\n".encode(), b"")
    assert bare != RAW
    gesture = seen(CASE, bare)
    assert gesture is not None
    assert isinstance(gesture, BoxStale)
    assert box_written(bare, box_of(CASE), CASE) == RAW
    edited = RAW.replace(b"\nS.\n", b"\nA friendly S.\n")
    assert edited != RAW
    gesture = seen(CASE, edited.replace(b'decision: ""', b"decision: approve"))
    assert gesture is not None
    assert isinstance(gesture, PlanApproved), "prose is the person's"


def test_failed_plan_can_be_reapproved_once(
    tmp_path: Path,
) -> None:
    vault = planned(tmp_path, GIVES_UP, WRITES)
    vault.approve()
    old = vault.active().read_bytes()
    vault.here()
    assert vault.notes("Inbox/Requests") == ["Say hello.md"], "the requests are requests"
    head = box(vault.plan())
    assert head.startswith(
        "> [!failure|placet] This plan for [[Say hello]] failed\n> **Report**: [["
    )
    assert "**Approve again**" in head
    assert "awaits you" not in head
    meta = read_note(vault.plan().read_bytes()).meta
    assert meta["status"] == "error"
    assert "approved_at" not in meta
    assert "its mission failed" in vault.click("plans").stdout
    vault.here()
    assert box(vault.plan()) == head, "lying there is rest"
    assert len(vault.rows("plan.approved")) == 1
    failed = vault.plan().read_bytes()

    vault.plan().unlink()
    # what a sync tool brings back is the old text, and it has been carried out
    vault.active().write_bytes(old)
    vault.here()
    assert len(vault.rows("plan.approved")) == 1
    assert "**Not approved**" in box(vault.plan())

    vault.plan().write_bytes(failed)
    vault.here()
    vault.approve()
    vault.here()
    assert [row["metadata"]["edited"] for row in vault.rows("plan.approved")] == [False, False]
    assert len(vault.rows("execution.started")) == 2
    assert f"> **Report**: [[{vault.reports()[0].stem}]]\n" in box(vault.plan()), "the new one"
    assert not dangling(vault)


@pytest.mark.parametrize(
    ("status", "then"),
    [
        ("needs_revision", "plan.revised"),
        ("rejected", "plan.rejected"),
    ],
)
@pytest.mark.thinned(2)
def test_failed_plan_is_revised_or_rejected_by_status(
    tmp_path: Path, status: str, then: str
) -> None:
    vault = make_vault(tmp_path)
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("execute", GIVES_UP),
        ("revise", [{"calls": [("submit_plan", {**PLAN, "answers": []})]}]),
    )
    vault.drop("Say hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    edit(vault.plan(), "## Scope", "> @placet Shorter, please.\n\n## Scope")
    edit(vault.plan(), "status: error", f"status: {status}")
    vault.here()
    assert len(vault.rows(then)) == 1, vault.actions()


def links(vault: TestVault) -> list[tuple[Path, str]]:
    """Return the wikilinks of all notes, and where they stand."""
    found = []
    for folder in ("Inbox", "System", "Knowledge/Reports"):
        for path in sorted((vault.root / folder).rglob("*.md")):
            text = re.sub(r"(?ms)^((?:> ?)*)(`{3,}).*?^\1\2`*$", "", path.read_text())
            found += [
                (path, target.split("|")[0].split("#")[0])
                for target in re.findall(r"(?<!\\)\[\[([^\]]+)\]\]", text)
            ]
    return found


def dangling(vault: TestVault) -> list[str]:
    """Return the links that name no file, by Obsidian's rule: a file's name or its path, `.md` left
    out.
    """
    files = [path for path in vault.root.rglob("*") if path.is_file() and ".git" not in path.parts]
    names = {path.name for path in files} | {path.stem for path in files if path.suffix == ".md"}
    names |= {str(path.relative_to(vault.root).with_suffix("")) for path in files}
    return [
        f"{path.relative_to(vault.root)}: {target}"
        for path, target in links(vault)
        if target not in names
    ]


@pytest.mark.parametrize("name", ["Say hello.md", "deep/Say hello.md"])
@pytest.mark.parametrize("end", ["completed", "failed", "rejected", "planned anew", "withdrawn"])
@pytest.mark.thinned(3)
def test_box_links_resolve_in_every_state(tmp_path: Path, end: str, name: str) -> None:
    vault = planned(tmp_path, GIVES_UP if end in ("failed", "planned anew") else WRITES, name=name)
    assert links(vault)
    assert not dangling(vault)
    request = vault.root / "Inbox/Requests" / name
    match end:
        case "rejected":
            vault.plan().rename(vault.root / "Inbox/Rejected/say-hello_rejected.md")
        case "withdrawn":
            request.unlink()
        case _:
            vault.approve()
    vault.here()
    if end == "withdrawn":  # its request is gone: nothing names it but by name
        return
    if end == "planned anew":
        edit(request, "status: error", "status: pending")
        vault.here()
        assert len(vault.rows("plan.created")) + len(vault.rows("plan.revised")) == 2
    assert not dangling(vault), end
    assert request.exists() is (end != "completed")
    if end == "completed":
        done = box(vault.root / "Inbox/Archive/say-hello_plan.md")
        assert done.startswith(
            "> [!success|placet] This plan for [[Say hello]] is done\n> **Report**: [["
        )
        assert "Approve" not in done
        assert "Say hello.md" in vault.notes("Inbox/Archive")
        return
    if end == "rejected":
        rejected = vault.root / "Inbox/Rejected/say-hello_rejected.md"
        assert box(rejected).startswith(
            "> [!quote|placet] This plan for [[Say hello]] was rejected"
        )


def test_odd_request_name_is_escaped_in_box() -> None:
    case = replace(CASE, request_path="Inbox/Requests/Reach 100%% coverage #1.md")
    step = Step("One", "```python\n# %%\nx = 1\n```")
    raw = with_box(note(replace(PLAN_OF_ONE, steps=(step,))), box_of(case))
    shown = "".join(f"{line}\n" for line in lines_of_box(raw, case))
    assert "A plan for `Reach 100%% coverage #1` awaits you" in shown
    assert not find_unseen(shown)
    gesture = seen(case, raw.replace(b'decision: ""', b"decision: approve"))
    assert gesture is not None
    assert isinstance(gesture, PlanApproved)


REMARK = "> Please leave the tests alone.\n"


@pytest.mark.parametrize("old", ["> - **Approve**", "> - **Ask for changes**", "> **Where**"])
def test_text_typed_into_box_moves_below_it(old: str) -> None:
    """In reading view it looks like the place to answer in.

    And in placet's own words nobody else's may stand.
    """
    typed = RAW.decode().replace(f"\n{old}", f"\n{REMARK}{old}")
    assert REMARK in typed
    gesture = seen(CASE, typed.encode())
    assert gesture is not None
    assert isinstance(gesture, BoxStale)
    raw = box_written(typed.encode(), box_of(CASE), CASE)
    text = raw.decode()
    assert shown_in(raw) == shown_in(RAW)
    assert text.count(REMARK) == 1
    kept = f"\n\n> [!note] Moved here from placet's box\n{REMARK}\n"
    assert f"{kept}> [!info] About this plan" in text
    assert box_written(raw, box_of(CASE), CASE) == raw, "once is enough"
    gesture = seen(CASE, raw.replace(b'decision: ""', b"decision: approve"))
    assert gesture is not None
    assert isinstance(gesture, PlanApproved)
    assert plan_digest(raw) != plan_digest(RAW), "it is an edit"


def test_text_typed_during_approval_is_kept_once(
    tmp_path: Path,
) -> None:
    vault = planned(tmp_path)
    edit(vault.plan(), "> It may write", f"{REMARK}> It may write")
    vault.approve()
    vault.here()
    assert REMARK in vault.plan().read_text()
    assert "Not approved" in box(vault.plan())
    edit(vault.plan(), "network = false", "network = true")
    vault.here()
    text = vault.plan().read_text()
    assert text.count("Moved here from") == text.count("Not approved") == text.count(REMARK) == 1


@pytest.mark.parametrize("text", ["# Plan\n", "\n\n# Plan\r\n", "", "%% placet %%\nmine\n"])
def test_text_below_a_box_keeps_every_character(text: str) -> None:
    body = boxed(text, ["> one", ">", "> two"])
    assert without_box(body) == text
    found = find_box(body)
    assert found is not None
    assert found.lines == ("> one", ">", "> two")


@pytest.mark.parametrize(
    "body",
    [
        "%% placet %%\n> one\n\n# Plan\n",
        "# Plan\n\n%% placet %%\n> one\n%% /placet %%\n",
        "%% placet %% x\n> one\n%% /placet %%\n",
        "%% placet %%\n> one %% /placet %%\n",
    ],
)
def test_box_marks_elsewhere_are_plain_text(body: str) -> None:
    assert find_box(body) is None
    assert without_box(body) == body


def test_box_is_not_part_of_digest() -> None:
    head, text = "---\ntrace_id: x\nstatus: review\n---\n", "# Plan\n"
    notes = [head + boxed(text, lines) for lines in (["> one"], ["> two", "> three"])]
    assert len({plan_digest(raw.encode()) for raw in [head + text, *notes]}) == 1
    open_box = notes[0].replace(END, "")
    assert plan_digest(open_box.encode()) != plan_digest((head + text).encode())


def test_a_failed_plans_comments_reach_the_next_planner(tmp_path: Path) -> None:
    vault = planned(tmp_path, GIVES_UP)
    vault.approve()
    vault.here()
    plan = vault.plan()
    plan.write_text(plan.read_text() + "\n## Review Comments\n\n- Use ZEBRA\n")
    edit(vault.root / "Inbox/Requests/Say hello.md", "status: error", "status: pending")
    vault.here()
    assert "has 1 comment without an answer" in vault.plan().read_text()
    assert "[[say-hello_plan_r1]]" in vault.plan().read_text()


@pytest.mark.parametrize("work", [State.APPROVED, State.RUNNING])
def test_approved_plan_is_not_shown_as_awaiting(work: State) -> None:
    asking = Asking(work, "call", "Inbox/Questions/q.md", "d", "t", 1)
    for case in (
        replace(CASE, state=work),
        replace(CASE, state=State.ASKING, asking=asking),
    ):
        title, *_ = lines_of_box(RAW, case)
        assert "is approved" in title
        assert "awaits you" not in title


def test_rejected_plan_without_properties_gets_no_box() -> None:
    case = replace(
        CASE, state=State.REJECTED, plan=replace(CASE.plan, path="Inbox/Rejected/r_rejected.md")
    )
    raw = RAW.replace(b"status: review", b"status: rejected")
    gesture = seen(case, raw)
    assert gesture is not None
    assert isinstance(gesture, BoxStale)
    bare = re.sub(r"(?m)^trace_id.*\n", "", raw.decode()).replace("%% placet %%\n", "").encode()
    assert seen(case, bare) is None
    assert box_written(bare, box_of(case), case) == bare


@pytest.mark.parametrize("key", ["revision", "request_id", "trace_id"])
@pytest.mark.parametrize("folder", ["Inbox/Plans", "System/Active"])
def test_plan_that_lost_a_key_is_not_approved(key: str, folder: str) -> None:
    case = replace(CASE, plan=replace(CASE.plan, path=f"{folder}/r_plan.md", revision=1))
    approved = RAW.replace(b'decision: ""', b"decision: approve")
    gesture = seen(case, approved)
    assert gesture is not None
    assert isinstance(gesture, PlanApproved)
    gesture = seen(case, re.sub(rf"(?m)^{key}:.*\n", "", approved.decode()).encode())
    assert not isinstance(gesture, PlanApproved)


@pytest.mark.parametrize("key", ["revision", "request_id"])
def test_line_in_the_box_survives_a_lost_key(tmp_path: Path, key: str) -> None:
    vault = planned(tmp_path)
    text = re.sub(rf"(?m)^{key}:.*\n", "", vault.plan().read_text())
    vault.plan().write_text(text.replace(END, f"> My own line.\n{END}", 1))
    vault.here()
    kept = [path for path in vault.root.rglob("*.md") if "My own line." in path.read_text()]
    assert kept == [vault.plan()]


def test_long_box_is_recognised_as_placets() -> None:
    write = ["hello.txt", *(f".*/f{number}.txt" for number in range(199))]
    raw = note(replace(PLAN_OF_ONE, scope=scope_from({"write": write})))
    case = knowing(raw)
    assert len(shown_in(raw)) > 900
    assert is_own_box(shown_in(raw), case)
    assert box_edits_to_text(raw, case) == raw
    assert box_written(raw, box_of(case), case) == raw
