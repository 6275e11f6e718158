"""Put anything into a vault: each file gives a plan or one reason, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from looping import Fake, Time, bare_vault, greeter, looping
from placet.disk.vault import Vault
from placet.note.paths import QUEUES
from vaultkit import PLAN, TestVault, make_vault, running, until


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("revise", [{"calls": [("submit_plan", PLAN)]}]),
    )
    return vault


GOOD: dict[str, bytes] = {
    "plain.md": b"Do it.\n",
    "no newline.md": b"Do it.",
    "crlf.md": b"---\r\npriority: 7\r\n---\r\nDo it.\r\n",
    "bom.md": b"\xef\xbb\xbf---\npriority: 3\n---\nDo it.\n",
    "toml.md": b"+++\npriority = 2\n+++\nDo it.\n",
    "Ünïcode ärger 日本.md": "Mach das. 🎉\n".encode(),
    "42.md": b"Do it.\n",
    "notes..md": b"Do it.\n",
    "rule.md": b"---\n\nA rule on top, then text.\n\n---\n",
    "new\nline.md": b"Do it.\n",
    "sub/folder/deep.md": b"Do it.\n",
    "quote's & $(touch x) `y`.md": b"Do it.\n",
    ("long " * 48).strip() + ".md": b"Do it.\n",
    "comment.md": b"---\n# a comment\npriority:   9   # kept\nmine: [1, 2]\n---\nDo it.\n",
}

BAD: dict[str, tuple[bytes, str]] = {
    "empty.md": (b"", "empty"),
    "blank.md": (b" \n\n", "empty"),
    "broken.md": (b"---\npriority: [1\n---\nDo it.\n", "broken YAML"),
    "duplicate.md": (b"---\nagent: a\nagent: b\n---\nDo it.\n", "twice"),
    "binary.md": (bytes(range(256)) * 20, "binary"),
    "latin.md": "Ärger\n".encode("latin-1"),
    "big.md": (b"x" * 10_000_000, "large"),
    "agent.md": (b"---\nagent: nobody\n---\nDo it.\n", "System/Agents/nobody.md"),
    "portal.md": (b"---\nportal: nowhere\n---\nDo it.\n", "no portal `nowhere`"),
    "priority.md": (
        b"---\npriority: 11\ncomplexity: huge\nbudget_usd: -1\n---\nDo it.\n",
        "complexity: huge",
    ),
    "status.md": (b"---\nstatus: pendign\n---\nDo it.\n", "pendign"),
    "several.md": (b"---\nstatus: draf\npriority: high\n---\nDo it.\n", "`priority: high`"),
    "plan (conflicted copy 2026-11-21).md": (b"Do it.\n", "conflict copy"),
    "x.sync-conflict-20261121-120000-ABCDEFG.md": (b"Do it.\n", "conflict copy"),
}


def test_every_request_shape_is_answered_once(vault: TestVault) -> None:
    requests = vault.root / "Inbox" / "Requests"
    before: dict[str, bytes] = {}
    for name, raw in GOOD.items():
        path = requests / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    for name, entry in BAD.items():
        raw = entry if isinstance(entry, bytes) else entry[0]
        (requests / name).write_bytes(raw)
        before[name] = raw
    (requests / "folder.md").mkdir()
    (requests / "link.md").symlink_to("plain.md")
    os.mkfifo(requests / "fifo.md")
    for name in (".hidden.md", "x.md.tmp", "~lock.md~", "4913", ".#emacs.md"):
        (requests / name).write_text("Do it.\n")
    vault.once()
    assert len(vault.rows("plan.created")) == len(GOOD), sorted(set(vault.actions()))
    assert len(vault.notes("Inbox/Plans")) == len(GOOD)
    for name, raw in GOOD.items():
        after = (requests / name).read_bytes()
        assert b"planned" in after, name
        for line in raw.splitlines(keepends=True):
            assert line.removeprefix(b"\xef\xbb\xbf") in after, name
    for name, entry in BAD.items():
        assert (requests / name).read_bytes() == before[name], f"{name} was changed"
        side = requests / (name.removesuffix(".md") + ".placet.md")
        assert side.exists(), f"{name} got no reason"
        if not isinstance(entry, bytes):
            assert entry[1].lower() in side.read_text().lower(), side.read_text()
    for name in ("folder", "link", "fifo"):
        assert (requests / f"{name}.placet.md").exists(), name
    told = len(vault.rows("request.invalid"))
    assert told >= len(BAD)
    vault.once()
    assert len(vault.rows("request.invalid")) == told, "each reason is given once"
    assert len(vault.rows("plan.created")) == len(GOOD)


def test_side_note_says_whether_note_is_used(
    tmp_path: Path,
) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter)) as running:
        vault.drop("", "empty.md")
        vault.drop("Say hello.\n")
        running.settle()
        plan = vault.plan()
        plan.write_text(plan.read_text().replace("status: review", "status: approved"))
        running.settle()
    assert (
        "placet cannot use `empty.md`"
        in (vault.root / "Inbox/Requests/empty.placet.md").read_text()
    )
    assert f"About `{plan.name}`" in plan.with_name("say-hello_plan.placet.md").read_text()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('write = ["hello.txt"]', 'write = ["../x"]', ".."),
        ("## Scope", "## Skope", "scope"),
        ("### 1. Write it", "Write it", "step"),
        ('["write_file"]', '["rm_rf"]', "rm_rf"),
        ("complexity: standard", "complexity: huge", "huge"),
        ("agent: default", "agent: nobody", "System/Agents/nobody.md"),
        ("agent: default", "agent: default\nif_changed: perhaps", "neither `ask` nor `proceed`"),
        ('portal: ""', "portal: nope", "no portal `nope`"),
    ],
)
@pytest.mark.thinned(3)
def test_unrunnable_plan_is_not_approved(vault: TestVault, old: str, new: str, told: str) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    plan = vault.plan()
    assert old in plan.read_text()
    plan.write_text(plan.read_text().replace(old, new))
    vault.approve()
    vault.once()
    assert "plan.approved" not in vault.actions()
    assert not vault.active().exists()
    assert told.lower() in vault.rows("plan.refused")[0]["metadata"]["reason"].lower()
    back = plan.read_text()
    assert "Not approved" in back
    assert told.lower() in back.lower()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_plan_folder_delays_plan(vault: TestVault) -> None:
    plans = vault.root / "Inbox" / "Plans"
    plans.chmod(0o500)
    try:
        vault.drop("Say hello.\n")
        with running(vault):
            vault.await_action("plan.created")
            assert not vault.plan().exists()
            plans.chmod(0o700)
            until(lambda: vault.plan().exists(), "the plan")
    finally:
        plans.chmod(0o700)


def test_temporarily_unlistable_folder_withdraws_nothing(tmp_path: Path) -> None:
    """Its notes are as they were afterwards, and a plan that was moved into it meanwhile was not
    taken away.
    """
    vault, time = bare_vault(tmp_path), Time()
    active, aside = vault.root / "System/Active", vault.root / "aside"
    with looping(vault, time=time, model=lambda: Fake(greeter)) as running:
        vault.drop("Say hello.\n")
        running.settle()
        for folder in (vault.plan().parent, active):
            folder.rename(aside)
            folder.write_text("in the way")
            if folder == active:
                vault.plan().rename(aside / "say-hello.md")
            for _ in range(4):
                running.loop.tick()
                time.pass_time(1)
            folder.unlink()
            aside.rename(folder)
            running.settle()
            there = [path for name in QUEUES for path in (vault.root / name).glob("*.md")]
            assert sorted(running.loop.intake.notes) == sorted(
                str(path.relative_to(vault.root)) for path in there
            )
        assert [said for said in running.said if "cannot be listed" in said] == [
            f"{place} cannot be listed: Not a directory. Until it can, no note counts as removed."
            for place in ("Inbox/Plans", "System/Active")
        ]
        assert "plan.approved" in vault.actions()
        assert "plan.withdrawn" not in vault.actions()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[model]\nprovider = 'openai'\n", "openai"),
        ("[modle]\n", "no such setting"),
        ("[model\n", "not valid TOML"),
        ("[daemon]\nplans_at_once = 0\n", "plans_at_once"),
        (f"[mine]\nx = {'9' * 5_000}\n", "x has more than 4,300 digits (at line 4)"),
        (f"a{'.a' * 20_000} = 1\n", "nested too deeply"),
        ("#" * 1_100_000, "larger than 1024 KiB"),
    ],
)
def test_a_wrong_configuration_is_named(vault: TestVault, text: str, told: str) -> None:
    vault.configure(text)
    done = vault.click("run", "--once", check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert "placet.toml" in done.stderr or "[model]" in done.stderr


def test_an_unmounted_vault_is_not_an_empty_one(vault: TestVault, tmp_path: Path) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    vault.root.rename(tmp_path / "elsewhere")
    vault.root.mkdir()
    done = vault.click("run", "--once", "--vault", str(vault.root), check=False)
    assert done.returncode == 2
    assert "mounted" in done.stderr
    vault.root.rmdir()
    (tmp_path / "elsewhere").rename(vault.root)
    vault.once()
    assert "plan.withdrawn" not in vault.actions()


def test_torn_note_is_read_again(vault: TestVault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many programs empty a file and then write it.

    What is read between a look and the next must not count.
    """
    path, read, torn = vault.drop("Say hello, please.\n"), Vault.read, []

    def torn_once(self: Vault, name: str, **given: int) -> object:
        if name == f"Inbox/Requests/{path.name}" and not torn:
            torn.append(path.read_bytes())
            path.write_bytes(b"")
            try:
                return read(self, name, **given)
            finally:
                path.write_bytes(torn[0])
        return read(self, name, **given)

    monkeypatch.setattr(Vault, "read", torn_once)
    vault.once()
    assert torn
    assert vault.rows("request.detected")[0]["metadata"]["size"] == len(torn[0])
    assert vault.rows("note.explained") == []
    assert vault.rows("request.edited") == []


def test_note_in_temporarily_missing_folder_is_reread(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read, was_away = vault.root / "Inbox/Requests/sub", Vault.read, []
    folder.mkdir()

    def away_once(self: Vault, name: str, **given: int) -> object:
        if name.startswith("Inbox/Requests/sub/") and not was_away:
            was_away.append(name)
            folder.rename(f"{folder}.away")
            try:
                return read(self, name, **given)
            finally:
                Path(f"{folder}.away").rename(folder)
        return read(self, name, **given)

    monkeypatch.setattr(Vault, "read", away_once)
    vault.drop("Say hello, please.\n", "sub/Say hello.md")
    vault.here()
    assert was_away
    assert vault.rows("request.detected")


@pytest.mark.parametrize("number", ["9" * 5000, "0" * 5000 + "5"])
@pytest.mark.parametrize("fence", ["---\npriority: '{}'\n---\n", "+++\npriority = '{}'\n+++\n"])
def test_request_with_a_huge_priority_stops_nothing(
    vault: TestVault, number: str, fence: str
) -> None:
    vault.plays(PLAN)
    vault.drop(f"{fence.format(number)}Do it.\n", "Huge.md")
    vault.drop("Say hello.\n")
    vault.here()
    assert vault.plan().exists()
    told = (vault.root / "Inbox/Requests/Huge.placet.md").read_text()
    assert "is not a whole number from 0 to 10" in told
    assert len(told) < 1000


@pytest.mark.parametrize("args", [("status", "--vault"), ("journal", "backup")])
def test_unknown_home_folder_is_reported_missing(tmp_path: Path, args: tuple[str, ...]) -> None:
    vault = make_vault(tmp_path)
    vault.once()
    done = vault.click(*args, "~nobodyatall/x", check=False)
    assert done.returncode in (1, 2)
    assert "~nobodyatall/x" in done.stderr


ODD_KEYS = {
    "block scalar above": "note: |+\n  text\napproved_by: me\n\nmore: 1\n",
    "comment below": "note: >\n  text\napproved_by: me\n  # mine\n",
    "anchor": "approved_by: &a x\nnote: *a\n",
}
"""Properties of which placet could set one, and not remove it again."""


@pytest.mark.parametrize("keys", ODD_KEYS.values(), ids=ODD_KEYS)
def test_unknown_plan_with_odd_keys_stops_nothing(vault: TestVault, keys: str) -> None:
    (vault.root / "System/Active/orphan.md").write_text(
        "---\ntrace_id: 550e8400-e29b-41d4-a716-446655440000\nrequest_id: orphan\n"
        f"revision: 1\n{keys}---\n# T\n\ns\n"
    )
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.here()
    assert vault.plan().exists()
    assert (vault.root / "System/Active/orphan.placet.md").exists()


@pytest.mark.parametrize("keys", ODD_KEYS.values(), ids=ODD_KEYS)
@pytest.mark.parametrize("scope", ['"hello.txt"', '"hello.txt", "**"'])
def test_known_plan_with_odd_keys_is_explained(vault: TestVault, keys: str, scope: str) -> None:
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.here()
    text = vault.plan().read_text().replace('write = ["hello.txt"]', f"write = [{scope}]")
    vault.plan().unlink()
    vault.active().write_text(text.replace("\n---\n", f"\n{keys}---\n", 1))
    vault.here()
    assert vault.rows("plan.approved") == []
    assert (vault.root / "System/Active/say-hello.placet.md").exists()


def test_plan_with_odd_keys_is_not_revised(tmp_path: Path) -> None:
    """Its `decision` could not be used up, and would count again after each revision."""
    vault, model = bare_vault(tmp_path), Fake(greeter)
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: model, time=Time()) as running:
        running.settle()
        text = vault.plan().read_text().replace('decision: ""', "decision: revise")
        text += "\n## Review Comments\n\n- Shorter, please.\n"
        odd = ODD_KEYS["block scalar above"]
        vault.plan().write_text(text.replace("\n---\n", f"\n{odd}---\n", 1))
        running.settle(60)
    assert len(model.asks) == 1
    assert (vault.root / "Inbox/Plans/say-hello_plan.placet.md").exists()
