"""Test how a vault's files are replaced, moved and published without a loss."""

from __future__ import annotations

import os
import sys
import threading
from hashlib import sha256

import pytest
from tests.disk.test_vault import (
    DONE,
    FAULTS,
    WORK,
    injected,
    needs_strace,
    prepared,
    run,
    sha,
    temporaries,
    tree,
)

from placet.disk import errors as e
from placet.disk import replace as r
from placet.disk import scan as s
from placet.disk.vault import Vault
from placet.note.paths import QUEUES, conflict_of


@pytest.fixture
def root(tmp_path):
    top = tmp_path / "vault"
    top.mkdir()
    return top


@pytest.fixture
def vault(root):
    with Vault(root) as opened:
        opened.ensure_folders()
        opened.create_marker("vault-1")
        yield opened


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.write_bytes(b"other"),
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(b"text and more"),
        lambda p: p.symlink_to("/etc/hostname"),
        lambda p: p.symlink_to("nowhere"),
        lambda p: p.mkdir(),
        os.mkfifo,
    ],
)
def test_publish_never_overwrites(root, vault, make, tmp_path):
    make(root / "Inbox/Plans/p.md")
    before = s.fingerprint(os.lstat(root / "Inbox/Plans/p.md"))
    with pytest.raises(e.AlreadyThere):
        vault.publish("Inbox/Plans/p.md", b"text")
    assert s.fingerprint(os.lstat(root / "Inbox/Plans/p.md")) == before
    assert not (root / "Inbox/Plans/nowhere").exists()
    assert not temporaries(root)


def test_one_of_concurrent_publishers_wins(root, vault):
    outcomes: list[object] = []

    def publish(n: int) -> None:
        try:
            outcomes.append(vault.publish("Inbox/Plans/p.md", bytes([65 + n]) * 5000))
        except e.AlreadyThere as error:
            outcomes.append(error)

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 1
    assert len(outcomes) == 8
    assert len(set((root / "Inbox/Plans/p.md").read_bytes())) == 1
    assert not temporaries(root)


# Replacing


def test_replace_requires_expected_digest(root, vault):
    note = root / "Inbox/Requests/a.md"
    note.write_bytes(b"old")
    note.chmod(0o640)
    fingerprint = vault.replace("Inbox/Requests/a.md", sha(b"old"), b"new")
    assert note.read_bytes() == b"new"
    assert note.stat().st_mode & 0o777 == 0o640
    assert fingerprint == vault.scan(QUEUES).found["Inbox/Requests/a.md"].fingerprint
    # repeated after a crash
    assert vault.replace("Inbox/Requests/a.md", sha(b"old"), b"new") == fingerprint
    with pytest.raises(e.Changed):
        vault.replace("Inbox/Requests/a.md", sha(b"old"), b"other")
    assert note.read_bytes() == b"new"
    with pytest.raises(e.Gone):
        vault.replace("Inbox/Requests/b.md", sha(b""), b"x")
    assert not (root / "Inbox/Requests/b.md").exists()
    assert not temporaries(root)


@pytest.mark.skipif(sys.platform != "linux", reason="Python has no call for them elsewhere")
def test_replacing_keeps_extended_attributes(root, vault):
    note = root / "Inbox/Requests/a.md"
    note.write_bytes(b"old")
    try:
        os.setxattr(note, "user.tags", b"red")
    except OSError:
        pytest.skip("this file system has none")
    vault.replace("Inbox/Requests/a.md", sha(b"old"), b"new")
    assert os.getxattr(note, "user.tags") == b"red"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_replacing_keeps_the_owner(root, vault):
    note = root / "Inbox/Requests/a.md"
    note.write_bytes(b"old")
    os.chown(note, 54321, 54322)
    vault.replace("Inbox/Requests/a.md", sha(b"old"), b"new")
    assert (note.stat().st_uid, note.stat().st_gid) == (54321, 54322)


def test_replacing_never_goes_through_a_link(root, vault, tmp_path):
    outside = tmp_path / "outside.md"
    outside.write_bytes(b"old")
    (root / "Inbox/Requests/a.md").symlink_to(outside)
    with pytest.raises(e.NotAFile):
        vault.replace("Inbox/Requests/a.md", sha(b"old"), b"new")
    (root / "Inbox/Requests/hard.md").hardlink_to(outside)
    vault.replace("Inbox/Requests/hard.md", sha(b"old"), b"new")
    assert outside.read_bytes() == b"old"
    assert (root / "Inbox/Requests/hard.md").read_bytes() == b"new"


def test_save_during_replace_is_kept(root, vault, monkeypatch):
    """Saves come between the last look at the old text and each exchange."""
    real, note = r._renameat2, root / "Inbox/Requests/a.md"
    for saves in (1, 2, 3):
        note.write_bytes(b"old")
        left = list(range(saves))

        def late(*args, left=left):
            if left:
                (root / "save").write_bytes(b"save %d" % left.pop(0))
                (root / "save").rename(note)
            return real(*args)

        monkeypatch.setattr(r, "_renameat2", late)
        with pytest.raises(e.Changed):
            vault.replace("Inbox/Requests/a.md", sha(b"old"), b"new")
        assert note.read_bytes() == b"save %d" % (saves - 1)
        assert not temporaries(root)


def test_move_never_overwrites_or_moves_other_text(root, vault):
    (root / "Inbox/Plans/p.md").write_bytes(b"plan")
    (root / "System/Active/p.md").write_bytes(b"plan")
    before = tree(root)
    with pytest.raises(e.AlreadyThere):
        vault.move("Inbox/Plans/p.md", "System/Active/p.md", sha(b"plan"))
    with pytest.raises(e.Changed):
        vault.move("Inbox/Plans/p.md", "System/Active/q.md", sha(b"other"))
    with pytest.raises(e.Gone):
        vault.move("Inbox/Plans/none.md", "System/Active/p.md", sha(b"other"))
    with pytest.raises(e.Gone):
        vault.move("Inbox/Plans/no/folder.md", "System/Active/z.md", sha(b"other"))
    (root / "Inbox/Plans/link.md").symlink_to("p.md")
    with pytest.raises(e.NotAFile):
        vault.move("Inbox/Plans/link.md", "System/Active/q.md", sha(b"plan"))
    (root / "Inbox/Plans/link.md").unlink()
    assert tree(root) == before


@pytest.fixture
def unleased(root):
    """Give a vault on a file system without leases, where a note can be opened at any moment."""
    with Vault(root, ask_kernel=False) as opened:
        opened.ensure_folders()
        opened.create_marker("vault-1")
        yield opened


@pytest.mark.parametrize("saved", [b"what the PERSON saved", None])
def test_sweep_keeps_save_of_killed_exchange(root, unleased, saved):
    """Somebody saves right before the exchange, and placet is killed before it puts that back."""
    note = root / "Inbox/Plans/x.md"
    note.write_bytes(b"before")
    if (pid := os.fork()) == 0:
        real = r._renameat2

        def exchange(*args):
            if saved is not None:
                note.write_bytes(saved)
            real(*args)
            unleased.sweep_temporaries()  # another process does so while this one lives
            os._exit(9)

        r._renameat2 = exchange
        unleased.replace("Inbox/Plans/x.md", sha(b"before"), b"after")
    os.waitpid(pid, 0)
    assert note.read_bytes() == b"after"
    assert len(temporaries(root / "Inbox/Plans")) == 1
    assert unleased.sweep_temporaries() == (saved is None)
    assert temporaries(root / "Inbox/Plans") == []
    copies = [one.read_bytes() for one in root.glob("Inbox/Plans/*conflicted copy*.md")]
    assert copies == ([] if saved is None else [saved])


@needs_strace
def test_writes_fall_back_without_renameat2_or_links(tmp_path):
    for n, faults in enumerate(FAULTS[1:]):
        top = prepared(tmp_path / str(n))
        done = run(WORK, str(top), wrap=injected(*faults))
        assert done.returncode == 0, done.stderr
        assert tree(top) == DONE
        again = run(
            """
            for work in (lambda: V.publish("Inbox/Requests/a.md", b"else"),
                         lambda: V.move("Inbox/Requests/a.md", "Knowledge/Reports/new/r.md", sha(b"new")),
                         lambda: V.replace("Inbox/Requests/a.md", sha(b"old"), b"else")):
                try:
                    work()
                except (e.AlreadyThere, e.Changed) as error:
                    print(type(error).__name__)
        """,
            str(top),
            wrap=injected(*faults),
        )
        assert again.stdout.split() == ["AlreadyThere", "AlreadyThere", "Changed"], again.stderr
        assert tree(top) == DONE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two names")
@pytest.mark.parametrize("stem", ["a", "é" * 115])
def test_concurrent_edits_to_old_and_new_file_survive(root, unleased, monkeypatch, stem):
    """One program has opened the note as its name goes to the new text, another one opens it just
    after that.
    """
    path, real = root / f"Inbox/Requests/{stem}.md", r._renameat2
    path.write_bytes(b"old\n")
    done = []

    def exchange(*args):
        if done:
            return real(*args)
        done.append(1)
        with path.open("ab", buffering=0) as early:
            answer = real(*args)
            with path.open("ab", buffering=0) as late:
                late.write(b"to the new\n")
            early.write(b"to the old\n")
        return answer

    monkeypatch.setattr(r, "_renameat2", exchange)
    with pytest.raises(e.Changed):
        unleased.replace(f"Inbox/Requests/{stem}.md", sha(b"old\n"), b"new\n")
    kept = {note.name: note.read_bytes() for note in path.parent.glob("*.md")}
    (copy,) = kept.keys() - {path.name}
    assert sorted(kept.values()) == [b"new\nto the new\n", b"old\nto the old\n"]
    assert conflict_of(copy).startswith(stem[:100])
    assert not temporaries(root)


def test_open_file_handle_does_not_block_replace(root, vault):
    path = root / "Inbox" / "Requests" / "a.md"
    path.write_bytes(b"old\n")
    with path.open("rb"):
        vault.replace("Inbox/Requests/a.md", sha256(b"old\n").hexdigest(), b"new\n")
    assert path.read_bytes() == b"new\n"
