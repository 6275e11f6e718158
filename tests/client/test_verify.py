"""Test that a receipt is believed only for an honest mission: mutated branches, forged receipts."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from gitkit import git, write
from placet.case.receipt import DAEMON, NAMESPACE, STATED
from placet.client.verify import NotHeld, Verified, verify_receipt
from placet.errors import UserError
from placet.git.repository import open_repo
from placet.host.signers import sign
from receiptkit import REF, WRITE, Done, Keys, begun, must_sign, plan_of, template
from signkit import Passkey
from vaultkit import DONE, PLAN, make_vault


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Keys]:
    folder = tmp_path_factory.mktemp("receipts")
    return template(folder / "template"), Keys.made(folder / "keys")


@pytest.fixture
def done(made: tuple[Path, Keys], tmp_path: Path, home: None) -> Done:
    """A mission with one commit."""
    found = begun(made[0], tmp_path / "repo", made[1])
    found.step(lambda top: write(top, {"src/app.py": "a = 2\n"}))
    return found


def verified(done: Done, at: str | None = None, listed: bytes = b"") -> Verified:
    return verify_receipt(open_repo(done.folder), REF, listed or done.keys.listed, at)


def why_not(done: Done, at: str | None = None, listed: bytes = b"") -> str:
    with pytest.raises(NotHeld) as found:
        verified(done, at, listed)
    return str(found.value)


def test_honest_mission_holds(done: Done) -> None:
    done.write()
    found = verified(done)
    stated = found.receipt
    assert (stated.base, stated.commits) == (done.base, (done.tip,))
    assert [one.path for one in stated.files] == ["src/app.py"]
    assert found.signers == (f"anna {done.keys.signer('anna').fingerprint}",)


def test_last_approved_text_decides(done: Done) -> None:
    done.plans.append(plan_of([*WRITE, "secret.txt"]))
    done.step(lambda top: write(top, {"secret.txt": "wider\n"}))
    done.write()
    assert len(verified(done).signers) == 2
    done.plans.reverse()
    done.write()
    assert "secret.txt is outside" in why_not(done)


def test_vaults_notes_may_move_on(done: Done) -> None:
    """A plan for a vault with a history is based on today's notes."""
    done.portal, done.stated_base = "", git(done.folder, "rev-parse", "main^")
    done.write()
    assert verified(done).receipt.base == done.base
    done.portal = "code"
    done.write()
    assert "not on this base" in why_not(done)
    done.portal, done.stated_base = "", git(done.folder, "commit-tree", "-m", "x", "HEAD^{tree}")
    done.write()
    assert "not on this base" in why_not(done)


def test_signers_of_the_receipt_do_not_count(done: Done) -> None:
    done.write()
    other = done.keys.signer("mallory")
    lines = (other.line(), other.line(NAMESPACE))
    assert "by a key that your list does not have" in why_not(
        done, listed=f"{lines[0]}\n".encode() + done.keys.listed.split(b"\n")[1]
    )
    without_daemon = done.keys.listed.split(b"\n")[0]
    assert f'receipt.json.sig is by a key that your list does not have for "{NAMESPACE}"' in (
        why_not(done, listed=without_daemon)
    )
    swapped = done.keys.listed.replace(NAMESPACE.encode(), b"x").replace(
        b"placet-approval", NAMESPACE.encode()
    )
    assert "your list does not have" in why_not(done, listed=swapped)
    with pytest.raises(UserError, match="cannot be used"):
        verified(done, listed=b"* ssh-ed25519 AAAA\n")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({}, ""),
        ({"flags": 0x01}, "its holder confirmed"),
        ({"origin": "https://other.example"}, "this is by another"),
    ],
)
def test_passkey_signs_with_finger_on_its_page(done: Done, how: dict[str, Any], why: str) -> None:
    passkey, files = Passkey(), done.files()
    files["approval-1.txt.sig"] = passkey.sign(files["approval-1.txt"].decode(), **how).encode()
    done.write(files)
    listed = passkey.line().encode() + done.keys.listed.splitlines()[1]
    if why:
        assert why in why_not(done, listed=listed)
    else:
        assert verified(done, listed=listed).signers[0].startswith("anna SHA256:")


Files = dict[str, bytes]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"plan-1.md": plan_of(["**"])}, "not the text that approval-1.txt approves"),
        ({"approval-1.txt": b"placet approval 1\n"}, "not the one that receipt.json has"),
        ({"approval-1.txt.sig": b"\xff"}, "not an SSH signature"),
        ({"approval-1.txt.sig": b""}, "not an SSH signature"),
        ({"approval-1.txt": None}, "lacks approval-1.txt"),
        ({"run-me.sh": b"true\n"}, "does not belong to it: run-me.sh"),
        ({STATED: b"{}"}, "does not hold"),
        ({f"{STATED}.sig": None}, "not a receipt"),
    ],
)
def test_changed_file_does_not_hold(
    done: Done, change: Mapping[str, bytes | None], why: str
) -> None:
    files = {**done.files(), **change}
    done.write({name: raw for name, raw in files.items() if raw is not None})
    assert why in why_not(done)


def _signed_again(done: Done, **other: object) -> Files:
    files = done.files()
    said = json.dumps({**json.loads(files[STATED]), **other})
    armour = sign(done.keys.folder / DAEMON, said, NAMESPACE)
    return {**files, STATED: said.encode(), f"{STATED}.sig": armour.encode()}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"approvals": []}, "no approval"),
        ({"trace_id": "6" * 36}, "about another request"),
        ({"commits": ["HEAD"]}, "names no commits"),
        ({"base": "--output=x"}, "not on this base"),
        ({"commits": ["0" * 40], "tip": "0" * 40}, "git cannot read all of it"),
        ({"files": []}, "names other changes"),
        ({"tip": "0" * 40}, "do not end at"),
    ],
)
def test_statement_of_daemon_must_fit(done: Done, other: dict[str, object], why: str) -> None:
    done.write(_signed_again(done, **other))
    assert why in why_not(done)


def test_incomplete_repository_does_not_hold(done: Done) -> None:
    done.write()
    tree = git(done.folder, "rev-parse", "work^{tree}")
    (done.folder / ".git/objects" / tree[:2] / tree[2:]).unlink()
    assert "git cannot read all of it" in why_not(done)


# --- mutated branches


def _random_step(top: Path, dice: random.Random) -> None:
    name = dice.choice(["src/app.py", "docs/a.md", "docs/b.md", "docs/new/c.md", "link", "x"])
    if name == "link":
        (top / name).unlink(missing_ok=True)
        (top / name).symlink_to(f"docs/{dice.randrange(99)}.md")
    elif name == "x":
        (top / "docs/a.md").chmod(0o755)
        write(top, {"docs/a.md": f"{dice.random()}\n"})
    elif name == "docs/b.md" and (top / name).exists():
        (top / name).unlink()
    else:
        write(top, {name: f"{dice.random()}\n"})


def honest(place: Path, folder: Path, keys: Keys, dice: random.Random) -> Done:
    done = begun(place, folder, keys)
    for _ in range(dice.randint(1, 3)):
        done.step(lambda top: _random_step(top, dice))
    if dice.random() < 0.2:
        done.plans.append(plan_of([*WRITE, "more/**"]))
        done.step(lambda top: write(top, {"more/m.md": "m\n"}))
    return done


def _module(done: Done, dice: random.Random, *, at: str = "docs/module") -> None:
    hidden = dice.random() < 0.5
    add = f"160000,{done.base},{at}"
    git(done.folder, "update-index", "--add", "--cacheinfo", add)
    git(done.folder, "commit", "-q", "-m", "Step")
    done.commits.append(done.tip)
    if hidden:
        for key, value in (("path", at), ("url", "./x"), ("ignore", "all")):
            git(done.folder, "config", f"submodule.{at}.{key}", value)
        git(done.folder, "config", "diff.ignoreSubmodules", "all")


def _modules_file(done: Done, _: random.Random) -> None:
    text = '[submodule "docs/module"]\n\tpath = docs/module\n\turl = ./x\n\tignore = all\n'
    done.plans[-1] = plan_of([*WRITE, ".gitmodules"])
    done.step(lambda top: write(top, {".gitmodules": text}))


def _extra(done: Done, dice: random.Random) -> None:
    done.step(lambda top: write(top, {"docs/a.md": f"{dice.random()} foreign\n"}), own=False)


def _outside(done: Done, dice: random.Random) -> None:
    name = dice.choice(["secret.txt", "src/other.py", "SRC/app.py", "doc/a.md", "old.txt"])
    done.step(lambda top: write(top, {name: f"{dice.random()}\n"}))


def _mode(done: Done, dice: random.Random) -> None:
    name = dice.choice(["secret.txt", "old.txt"])
    done.step(lambda top: (top / name).chmod(0o755))


def _link(done: Done, dice: random.Random) -> None:
    target = dice.choice(["../secret.txt", "/etc/passwd", "a.md"])
    done.step(lambda top: (top / "docs/l.md").symlink_to(target))


def _base(done: Done, dice: random.Random) -> None:
    """The same work on another commit."""
    done.stated_base = done.base
    git(done.folder, "checkout", "-q", "-B", "work", "main^" if dice.random() < 0.5 else "main")
    done.base = done.step(lambda top: write(top, {"secret.txt": "other\n"}), own=False)
    done.commits.clear()
    done.step(lambda top: write(top, {"src/app.py": f"{dice.random()}\n"}))


def _merge(done: Done, dice: random.Random) -> None:
    git(done.folder, "checkout", "-q", "-b", "theirs", done.base)
    done.step(lambda top: write(top, {"docs/theirs.md": f"{dice.random()}\n"}), own=False)
    git(done.folder, "checkout", "-q", "work")
    git(done.folder, "merge", "-q", "--no-ff", "-m", "Merge", "theirs")
    done.commits.append(done.tip)


def _hidden_parent(done: Done, dice: random.Random) -> str:
    before = done.tip
    done.step(lambda top: write(top, {"secret.txt": f"{dice.random()}\n"}), own=False)
    done.step(lambda top: write(top, {"docs/a.md": f"{dice.random()}\n"}))
    return before


def _graft(done: Done, dice: random.Random) -> None:
    before = _hidden_parent(done, dice)
    write(done.folder / ".git", {"info/grafts": f"{done.tip} {before}\n"})


def _replace(done: Done, dice: random.Random) -> None:
    if dice.random() < 0.5:
        before = _hidden_parent(done, dice)
        git(done.folder, "replace", "--graft", done.tip, before)
        return
    before = done.tip
    _outside(done, dice)
    tree = git(done.folder, "rev-parse", f"{before}^{{tree}}")
    clean = git(done.folder, "commit-tree", "-p", before, "-m", "Clean", tree)
    git(done.folder, "replace", done.tip, clean)


def _out_and_back(done: Done, dice: random.Random) -> None:
    name = dice.choice(["secret.txt", "new.txt"])
    before = (done.folder / name).read_text() if name == "secret.txt" else None
    done.step(lambda top: write(top, {name: f"{dice.random()}\n"}))
    if before is None:
        done.step(lambda top: (top / name).unlink())
    else:
        done.step(lambda top: write(top, {name: str(before)}))


def _folder(done: Done, dice: random.Random) -> None:
    name = dice.choice(["src/app.py", "link"])

    def change(top: Path) -> None:
        (top / name).unlink(missing_ok=True)
        write(top, {f"{name}/x.py": "x\n"})

    done.step(change)


MUTATIONS: Mapping[str, Callable[[Done, random.Random], None]] = {
    "extra commit": _extra,
    "file out of scope": _outside,
    "mode": _mode,
    "symlink": _link,
    "submodule": _module,
    ".gitmodules": _modules_file,
    "other base": _base,
    "merge": _merge,
    "graft": _graft,
    "replace ref": _replace,
    "out and back": _out_and_back,
    "folder for a file": _folder,
}


def mutated(place: Path, folder: Path, keys: Keys, number: int) -> tuple[str, Done]:
    """Make a mission, with a receipt that says the best of it that its maker can.

    The maker has the daemon's key, or only the honest receipt, or a key of their own.
    """
    dice = random.Random(number)
    name = [*MUTATIONS][number % len(MUTATIONS)]
    done = honest(place, folder, keys, dice)
    before = done.files()
    MUTATIONS[name](done, dice)
    who = dice.choice(["daemon", "daemon", "old receipt", "own key"])
    by = DAEMON if who == "daemon" else "mallory"
    done.write(before if who == "old receipt" else done.files(by))
    return f"{name}, {who}", done


def mutations_hold(made: tuple[Path, Keys], tmp_path: Path, numbers: range) -> Counter[str]:
    counted: Counter[str] = Counter()
    for number in numbers:
        folder = tmp_path / str(number)
        name, done = mutated(*[made[0], folder], made[1], number)
        try:
            verified(done)
        except NotHeld:
            counted[name.partition(",")[0]] += 1
        else:
            raise AssertionError(f"{number}, {name}: a mutated branch holds")
        shutil.rmtree(folder)
    return counted


def test_mutated_branch_does_not_hold(made: tuple[Path, Keys], tmp_path: Path, home: None) -> None:
    assert mutations_hold(made, tmp_path, range(36)).total() == 36


@pytest.mark.sweep
def test_sweep_of_mutated_branches(made: tuple[Path, Keys], tmp_path: Path, home: None) -> None:
    for name, count in sorted(mutations_hold(made, tmp_path, range(2000)).items()):
        print(f"{count:5}  {name}")


def _squashed(done: Done) -> str:
    git(done.folder, "merge", "-q", "--squash", "work")
    git(done.folder, "commit", "-q", "-m", "Squashed")
    return done.tip


def _rebased(done: Done) -> str:
    git(done.folder, "cherry-pick", "--allow-empty", f"{done.base}..work")
    return done.tip


def _merged(done: Done) -> str:
    git(done.folder, "merge", "-q", "--no-ff", "-m", "Merge", "work")
    return done.tip


def honest_hold(made: tuple[Path, Keys], tmp_path: Path, numbers: range) -> None:
    """Verify honest missions and how they were merged, and near misses of that, in a clone."""
    for number in numbers:
        folder, dice = tmp_path / str(number), random.Random(number)
        done = honest(made[0], folder / "repo", made[1], dice)
        if git(done.folder, "diff", "--name-only", done.base, "work") == "":
            continue  # it took its own change back: nothing can be squashed
        done.write()
        verified(done)
        git(done.folder, "checkout", "-q", "main")
        done.step(lambda top: write(top, {"else.txt": "meanwhile\n"}), own=False)
        merge = [_squashed, _rebased, _merged][number % 3]
        at = merge(done)
        git(folder, "clone", "-q", "repo", "clone")
        git(folder / "clone", "fetch", "-q", "origin", f"{REF}:{REF}")
        done.folder = folder / "clone"
        verified(done, at)
        done.step(lambda top: write(top, {"docs/a.md": "more\n"}), own=False)
        git(done.folder, "reset", "-q", "--soft", f"{at}^")
        git(done.folder, "commit", "-q", "-m", "More than the mission")
        assert "does not change exactly" in why_not(done, done.tip)
        shutil.rmtree(folder)


def test_merged_work_holds_by_its_tree(made: tuple[Path, Keys], tmp_path: Path, home: None) -> None:
    honest_hold(made, tmp_path, range(6))


@pytest.mark.sweep
def test_sweep_of_honest_missions(made: tuple[Path, Keys], tmp_path: Path, home: None) -> None:
    honest_hold(made, tmp_path, range(300))
    print("300 honest missions: squashed, rebased and merged ones hold")


def test_merge_that_brings_more_history_does_not_hold(done: Done) -> None:
    done.write()
    git(done.folder, "checkout", "-q", "-b", "theirs", "main")
    foreign = done.step(lambda top: write(top, {"x.txt": "x\n"}), own=False)
    git(done.folder, "checkout", "-q", "main")
    tree = git(done.folder, "rev-parse", "work^{tree}")
    at = git(done.folder, "commit-tree", "-p", "main", "-p", foreign, "-m", "Merge", tree)
    assert "does not change exactly" in why_not(done, at)


def test_branch_named_like_a_commit_is_not_that_commit(done: Done) -> None:
    done.write()
    git(done.folder, "checkout", "-q", "main")
    at = _squashed(done)
    other = done.step(lambda top: write(top, {"x.txt": "x\n"}), own=False)
    git(done.folder, "update-ref", f"refs/heads/{at}", other)
    assert verified(done, at).merged == at


def test_commit_after_the_mission_does_not_hold(done: Done) -> None:
    done.write()
    repo = open_repo(done.folder)
    assert verify_receipt(repo, REF, done.keys.listed, branch="work").receipt.tip == done.tip
    assert verify_receipt(repo, REF, done.keys.listed, branch="gone").receipt.tip == done.tip
    done.step(lambda top: write(top, {"src/app.py": "late\n"}), own=False)
    with pytest.raises(NotHeld, match="work ends at"):
        verify_receipt(repo, REF, done.keys.listed, branch="work")


def test_command_verifies_without_a_vault(tmp_path: Path, home: None) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN, *DONE)
    keys = must_sign(vault, tmp_path / "keys")
    vault.drop("Say hello.\n")
    vault.here()
    vault.click("approve", "say-hello", "--yes")
    vault.here()
    ref = git(vault.root, "for-each-ref", "--format=%(refname)", "refs/placet/receipts")
    listed = tmp_path / "signers"
    listed.write_text(git(vault.root, "show", f"{ref}:allowed_signers") + "\n")
    assert "Holds: say-hello" in vault.click("verify", "say-hello", "--signers", str(listed)).stdout
    shown = vault.click("signer", "list", "--lines").stdout
    assert sorted(shown.splitlines()) == sorted(listed.read_text().splitlines())
    git(tmp_path, "clone", "-q", str(vault.root), "clone")
    git(tmp_path / "clone", "fetch", "-q", "origin", f"{ref}:{ref}")
    asked = ["verify", ref, "--signers", str(listed), "--repository", str(tmp_path / "clone")]
    vault.root = tmp_path / "clone"
    assert json.loads(vault.click(*asked, "--json").stdout)["holds"] is True
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    late = Timer(2, lambda: pipe.write_bytes(listed.read_bytes()))
    late.start()
    assert "Holds" in vault.click("verify", ref, "--signers", str(pipe), *asked[4:]).stdout
    late.join()
    for odd, why in (
        (["--at", ""], "There is no commit"),
        (["--signers", "/dev/null"], "is empty"),
    ):
        said = vault.click(*asked, *odd, check=False)
        assert said.returncode in (2, 3), said.stdout
        assert why in said.stderr
    listed.write_text(f"{keys.signer('mallory').line()}\n")
    refused = vault.click(*asked, "--json", check=False)
    assert (refused.returncode, json.loads(refused.stdout)["holds"]) == (1, False)
    missing = vault.click("verify", "refs/x/y", *asked[2:], check=False)
    assert (missing.returncode, "There is no commit refs/x/y" in missing.stderr) == (3, True)
