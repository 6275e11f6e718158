"""Test scans, reads and changes of a vault on real files, with swaps, crashes and faults."""

from __future__ import annotations

import errno
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from placet.disk import errors as e
from placet.disk import replace as r
from placet.disk import scan as s
from placet.disk.files import is_missing
from placet.disk.handles import EntryKind
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.note.paths import MARKER, QUEUES, TEMP_PREFIX, Folder

DAEMON = str(Path(s.__file__).parents[2])


def sha(data: bytes) -> str:
    return sha256(data).hexdigest()


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


def temporaries(root: Path) -> list[Path]:
    return list(root.rglob(f"{TEMP_PREFIX}*"))


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
    }


# Folders and the marker


def test_ensure_folders_is_idempotent(root, vault):
    assert all((root / folder).is_dir() for folder in Folder)
    before = tree(root)
    vault.ensure_folders()
    assert tree(root) == before


@pytest.mark.parametrize(
    "make",
    [
        Path.touch,
        lambda p: p.symlink_to("/tmp"),
        lambda p: p.symlink_to("nowhere"),
    ],
)
@pytest.mark.parametrize("path", ["Inbox", "System/Active"])
def test_file_or_link_at_folder_path_is_named(root, path, make):
    (root / path).parent.mkdir(exist_ok=True)
    make(root / path)
    with Vault(root) as vault, pytest.raises(UserError, match=path) as refused:
        vault.ensure_folders()
    assert refused.value.exit_code == 2


def test_missing_vault_is_user_error(tmp_path):
    with pytest.raises(UserError, match="nowhere") as refused:
        Vault(tmp_path / "nowhere")
    assert refused.value.exit_code == 2


def test_the_marker_keeps_its_first_id(root, vault):
    assert vault.marker()
    assert vault.create_marker("vault-2") == "vault-1" == vault.marker()
    with Vault(root) as again:
        assert again.marker() == "vault-1"


def test_an_empty_marker_is_refused(root):
    with Vault(root) as vault:
        vault.ensure_folders()
        (root / MARKER).touch()
        with pytest.raises(UserError):
            vault.create_marker("x")


def test_without_its_marker_the_vault_is_not_present(root, vault):
    (root / "Inbox/Requests/a.md").write_text("a")
    assert vault.scan(QUEUES).found
    (root / MARKER).unlink()
    assert vault.scan(QUEUES) == s.Scan(present=False)
    assert vault.marker() is None


def test_another_vault_in_its_place_is_not_present(root, vault):
    (root / MARKER).write_text("vault-2\n")
    assert not vault.scan(QUEUES).present


def test_remounted_vault_is_scanned_again(root, vault, tmp_path):
    (root / "Inbox/Requests/a.md").write_text("a")
    root.rename(tmp_path / "away")
    assert not vault.scan(QUEUES).present
    root.mkdir()
    assert not vault.scan(QUEUES).present
    root.rmdir()
    shutil.copytree(tmp_path / "away", root)
    shutil.rmtree(tmp_path / "away")
    (root / "Inbox/Requests/b.md").write_text("b")
    assert vault.scan(QUEUES).found.keys() == {"Inbox/Requests/a.md", "Inbox/Requests/b.md"}
    assert vault.publish("Inbox/Plans/p.md", b"p")
    assert (root / "Inbox/Plans/p.md").read_bytes() == b"p"


# Scanning


def test_a_scan_lists_notes_with_their_fingerprints(root, vault):
    note = root / "Inbox/Requests/a b.md"
    note.write_text("text")
    (root / "Inbox/Plans/p_plan.md").write_text("plan")
    scan = vault.scan(QUEUES)
    info = note.stat()
    assert scan.present
    assert not scan.problems
    assert scan.found.keys() == {"Inbox/Requests/a b.md", "Inbox/Plans/p_plan.md"}
    found = scan.found["Inbox/Requests/a b.md"]
    assert found.kind is EntryKind.FILE
    assert found.fingerprint == (info.st_dev, info.st_ino, 4, info.st_mtime_ns, info.st_ctime_ns)
    assert vault.scan([Folder.PLANS]).found.keys() == {"Inbox/Plans/p_plan.md"}


def test_only_requests_are_scanned_with_subfolders(root, vault):
    for folder in ("Inbox/Requests", "Inbox/Plans"):
        (root / folder / "deep/er").mkdir(parents=True)
        (root / folder / "deep/er/x.md").write_text("x")
        (root / folder / ".trash").mkdir()
        (root / folder / ".trash/y.md").write_text("y")
    assert vault.scan(QUEUES).found.keys() == {"Inbox/Requests/deep/er/x.md"}


def test_scan_ignores_temporary_and_foreign_files(root, vault):
    for name in (
        ".hidden.md",
        "a.md~",
        "a.md.tmp",
        "4913",
        "picture.png",
        "~$a.md",
        ".placet-tmp-1",
        "x",
    ):
        (root / "Inbox/Requests" / name).write_text("x")
    assert vault.scan(QUEUES) == s.Scan(present=True)


def test_side_notes_are_listed_apart(root, vault):
    explanation = "Mine.\n\n> [!warning] About `a.md`\n> - It is odd.\n"
    (root / "Inbox/Requests/a.placet.md").write_text(explanation)
    (root / "Inbox/Requests/emptied.placet.md").write_text("")
    (root / "Inbox/Requests/Docs of x.placet.md").write_text("Fix them.\n")
    for _ in range(2):
        scan = vault.scan(QUEUES)
        assert scan.found.keys() == {"Inbox/Requests/Docs of x.placet.md"}
        assert scan.side_notes.keys() == {
            "Inbox/Requests/a.placet.md",
            "Inbox/Requests/emptied.placet.md",
        }


def test_scan_reports_kind_of_special_files(root, vault, monkeypatch):
    requests = root / "Inbox/Requests"
    (requests / "folder.md").mkdir()
    (requests / "folder.md/inner.md").write_text("x")
    (requests / "link.md").symlink_to("/etc/passwd")
    (requests / "dangling.md").symlink_to("nowhere")
    (requests / "elsewhere").symlink_to(root / "Knowledge")
    os.mkfifo(requests / "fifo.md")
    monkeypatch.chdir(requests)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("socket.md")
        with (requests / "sparse.md").open("wb") as sparse:
            sparse.truncate(1 << 40)
        scan = vault.scan(QUEUES)
    kinds = {path.removeprefix("Inbox/Requests/"): found.kind for path, found in scan.found.items()}
    assert kinds == {
        "folder.md": EntryKind.DIRECTORY,
        "link.md": EntryKind.SYMLINK,
        "dangling.md": EntryKind.SYMLINK,
        "elsewhere": EntryKind.SYMLINK,
        "fifo.md": EntryKind.OTHER,
        "socket.md": EntryKind.OTHER,
        "sparse.md": EntryKind.FILE,
    }


def test_non_utf8_name_is_scanned_and_read(root, vault):
    folder = os.fsencode(root / "Inbox/Requests")
    Path(os.fsdecode(folder + b"/\xff\xfe.md")).write_text("x")
    (root / "Inbox/Requests/ok.md").write_text("y")
    Path(os.fsdecode(folder + b"/new\nline\x1b.md")).write_text("z")
    scan = vault.scan(QUEUES)
    assert len(scan.found) == 3
    assert sorted(vault.read(path)[0] for path in scan.found) == [b"x", b"y", b"z"]


def test_missing_or_linked_folder_is_problem_not_deletion(root, vault):
    (root / "Inbox/Plans").rmdir()
    (root / "System/Active").rmdir()
    (root / "System/Active").symlink_to(root / "Knowledge")
    (root / "Knowledge/k.md").write_text("x")
    scan = vault.scan(QUEUES)
    assert scan.present
    assert {p.path for p in scan.problems} == {"Inbox/Plans", "System/Active"}
    assert not scan.found


def test_folders_that_lie_too_deep_are_a_problem(root, vault):
    deep = root / "Inbox/Requests"
    for n in range(s.MAX_DEPTH + 1):
        deep /= f"d{n}"
        deep.mkdir()
        (deep / "x.md").write_text("x")
    scan = vault.scan(QUEUES)
    assert len(scan.found) == s.MAX_DEPTH
    assert [p.path for p in scan.problems] == [str(deep.relative_to(root))]


# Reading


def test_read_returns_bytes_and_scan_fingerprint(root, vault):
    (root / "Inbox/Requests/a.md").write_bytes(b"\xef\xbb\xbfa\r\n")
    data, fingerprint = vault.read("Inbox/Requests/a.md")
    assert data == b"\xef\xbb\xbfa\r\n"
    assert fingerprint == vault.scan(QUEUES).found["Inbox/Requests/a.md"].fingerprint


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: p.symlink_to("/etc/passwd"), e.NotAFile),
        (lambda p: p.mkdir(), e.NotAFile),
        (os.mkfifo, e.NotAFile),
        (lambda p: None, e.Gone),
        (lambda p: p.write_bytes(bytes(s.NOTE_LIMIT + 1)), e.TooLarge),
    ],
)
def test_reading_special_or_large_file_is_refused(root, vault, make, error):
    make(root / "Inbox/Requests/x.md")
    began = time.monotonic()
    with pytest.raises(error, match=r"x\.md"):
        vault.read("Inbox/Requests/x.md")
    assert time.monotonic() - began < 30  # who opens a pipe waits for ever


def test_linked_folder_is_not_read_through(root, vault, tmp_path):
    (tmp_path / "secret.md").write_text("secret")
    (root / "Inbox/Requests/sub").symlink_to(tmp_path)
    with pytest.raises(e.VaultTrouble) as trouble:
        vault.read("Inbox/Requests/sub/secret.md")
    assert trouble.value.errno in {errno.ENOTDIR, errno.ELOOP}
    assert trouble.value.path == "Inbox/Requests/sub/secret.md"


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "./a", "a//b", "a\0b", "."]
)
def test_paths_that_leave_the_vault_are_bugs(vault, path):
    for call in (
        vault.read,
        vault.owner,
        lambda p: vault.publish(p, b""),
        lambda p: vault.move(p, "x", ""),
        lambda p: vault.move("x", p, ""),
        lambda p: vault.replace(p, "", b""),
    ):
        with pytest.raises(ValueError, match="not a path"):
            call(path)


def test_file_changing_during_read_is_not_settled(root, vault):
    note, stop, outcomes = root / "Inbox/Requests/a.md", threading.Event(), set()
    note.write_bytes(b"a" * 200_000)

    def scribble():
        with note.open("r+b", buffering=0) as file:
            while not stop.is_set():
                for letter in (b"a", b"b"):
                    file.seek(0)
                    file.write(letter * 200_000)

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        end = time.monotonic() + 60
        while e.NotSettled not in outcomes and time.monotonic() < end:
            try:
                vault.read("Inbox/Requests/a.md")
            except e.NotSettled:
                outcomes.add(e.NotSettled)
    finally:
        stop.set()
        writer.join()
    assert e.NotSettled in outcomes


def test_the_owner_is_named(root, vault):
    note = root / "Inbox/Requests/a.md"
    note.write_text("x")
    assert vault.owner("Inbox/Requests/a.md") == getpass.getuser()
    if os.geteuid() == 0:
        os.chown(note, 54321, -1)
        assert vault.owner("Inbox/Requests/a.md") == "uid:54321"
    with pytest.raises(e.Gone):
        vault.owner("Inbox/Requests/b.md")


# Publishing


def test_publish_creates_file_and_folders_once(root, vault):
    assert vault.publish("Knowledge/Reports/2026/r.md", b"text") is True
    assert vault.publish("Knowledge/Reports/2026/r.md", b"text") is False
    note = root / "Knowledge/Reports/2026/r.md"
    assert note.read_bytes() == b"text"
    assert note.stat().st_nlink == 1
    umask = os.umask(0)
    os.umask(umask)
    assert note.stat().st_mode & 0o777 == 0o666 & ~umask
    assert not temporaries(root)


# Moving and removing


def test_move_keeps_inode_and_is_idempotent(root, vault):
    note = root / "Inbox/Plans/p.md"
    note.write_bytes(b"plan")
    inode = note.stat().st_ino
    for _ in range(2):
        vault.move("Inbox/Plans/p.md", "Inbox/Archive/2026/p.md", sha(b"plan"))
    assert not note.exists()
    assert (root / "Inbox/Archive/2026/p.md").stat().st_ino == inode
    assert (root / "Inbox/Archive/2026/p.md").stat().st_nlink == 1


def test_repeated_move_succeeds_without_source_folder(root, vault):
    (root / "Inbox/Archive/a.md").write_bytes(b"x")
    vault.move("Inbox/Requests/sub/a.md", "Inbox/Archive/a.md", sha(b"x"))


def test_interrupted_move_is_finished(root, vault):
    (root / "Inbox/Plans/p.md").write_bytes(b"plan")
    (root / "System/Active/p.md").hardlink_to(root / "Inbox/Plans/p.md")
    vault.move("Inbox/Plans/p.md", "System/Active/p.md", sha(b"plan"))
    assert not (root / "Inbox/Plans/p.md").exists()
    assert (root / "System/Active/p.md").read_bytes() == b"plan"


def test_removing_is_for_unchanged_side_notes_alone(root, vault):
    side = root / "Inbox/Requests/a.placet.md"
    side.write_bytes(b"why")
    with pytest.raises(e.Changed):
        vault.remove("Inbox/Requests/a.placet.md", sha(b"else"))
    assert vault.remove("Inbox/Requests/a.placet.md", sha(b"why")) is True
    assert vault.remove("Inbox/Requests/a.placet.md", sha(b"why")) is False
    (root / "Inbox/Requests/a.md").write_bytes(b"x")
    with pytest.raises(ValueError, match="not a side note"):
        vault.remove("Inbox/Requests/a.md", sha(b"x"))
    assert (root / "Inbox/Requests/a.md").exists()


# Left-overs


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_unreadable_path_is_not_missing(tmp_path, monkeypatch, number):
    assert is_missing(tmp_path / "a")
    assert is_missing(tmp_path / "a/b")
    assert not is_missing(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        assert not is_missing(tmp_path / "a")


def test_sweep_removes_leftovers_but_keeps_live_files(root, vault):
    (root / "Inbox/Requests/sub").mkdir()
    for folder in (
        "Inbox/Requests",
        "Inbox/Requests/sub",
        "System/Active",
        "Knowledge/Reports",
        "System",
    ):
        (root / folder / f"{TEMP_PREFIX}dead").write_bytes(b"half")
    (root / "Inbox/Plans" / f"{TEMP_PREFIX}link").symlink_to("/etc/passwd")
    with vault._folder(["Inbox", "Plans"]) as folder, r.new_file(folder, b"alive") as alive:
        assert vault.sweep_temporaries() == 5
        assert temporaries(root / "Inbox/Plans") != []
        assert (root / "Inbox/Plans" / alive.name).exists()
    assert vault.marker()
    assert vault.sweep_temporaries() == 0


# Attacks: a folder or file that is swapped for a link while we work


def exchange_for_ever(one: Path, other: Path, stop: threading.Event) -> None:
    with Vault(one.parent) as here:
        handle = here._handle
        while not stop.is_set():
            r._renameat2(handle, one.name, handle, other.name, r._EXCHANGE)
    if one.is_symlink():
        one.unlink()
        other.rename(one)


@pytest.mark.skipif(sys.platform != "linux", reason="needs an exchange of two names")
def test_folder_swapped_for_link_redirects_nothing(root, vault, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_bytes(b"secret")
    real = root / "Inbox/Requests/sub"
    real.mkdir()
    (real / "a.md").write_bytes(b"note")
    (root / "Inbox/Requests/evil").symlink_to(outside)
    stop = threading.Event()
    swapper = threading.Thread(
        target=exchange_for_ever, args=(real, root / "Inbox/Requests/evil", stop)
    )
    swapper.start()
    tries = n = 0
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and (n < 20 or tries - n < 50):
            tries += 1
            try:
                assert vault.read("Inbox/Requests/sub/a.md")[0] == b"note"
                vault.publish(f"Inbox/Requests/sub/new{n}.md", b"mine")
                vault.move(
                    f"Inbox/Requests/sub/new{n}.md", f"Inbox/Requests/sub/moved{n}.md", sha(b"mine")
                )
                n += 1
            except (e.VaultTrouble, e.Gone):
                pass
    finally:
        stop.set()
        swapper.join()
    assert n
    assert tree(outside) == {"a.md": b"secret"}


# Faults


def run(code: str, *argv: str, wrap: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """Run code in a process of its own, with `V` an open vault at argv[1]."""
    program = textwrap.dedent("""
        import os, sys
        from hashlib import sha256
        from pathlib import Path
        from placet.note.paths import Folder
        from placet.disk import errors as e
        from placet.disk.vault import Vault
        sha = lambda data: sha256(data).hexdigest()
        V = Vault(Path(sys.argv[1]))
    """) + textwrap.dedent(code)
    return subprocess.run(
        [*wrap, sys.executable, "-c", program, *argv],
        capture_output=True,
        text=True,
        timeout=150,
        env={"PYTHONPATH": DAEMON, "PATH": os.environ["PATH"]},
    )


def test_full_disk_error_leaves_vault_unchanged(root, vault):
    (root / "Inbox/Requests/a.md").write_bytes(b"old")
    before = tree(root)
    done = run(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for work in (lambda: V.publish("Inbox/Plans/p.md", b"x" * 5000),
                     lambda: V.replace("Inbox/Requests/a.md", sha(b"old"), b"x" * 5000)):
            try:
                work()
            except e.VaultTrouble as error:
                print(error.path, error.errno)
    """,
        str(root),
    )
    assert done.stdout.splitlines() == [
        f"Inbox/Plans/p.md {errno.EFBIG}",
        f"Inbox/Requests/a.md {errno.EFBIG}",
    ], done.stderr
    assert tree(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_folders_without_permission_are_reported(tmp_path_factory):
    # pytest's own folders are closed to others
    top = Path(tempfile.mkdtemp(prefix="placet-test-", dir="/tmp"))
    top.chmod(0o755)
    try:
        with Vault(top) as vault:
            vault.ensure_folders()
            vault.create_marker("vault-1")
        (top / "Inbox/Requests/shut").mkdir(mode=0o700)
        (top / "Inbox/Requests/a.md").write_bytes(b"a")
        (top / "Inbox/Plans").chmod(0o000)
        done = run(
            """
            os.setgroups([]), os.setgid(65534), os.setuid(65534)
            scan = V.scan([Folder.REQUESTS, Folder.PLANS])
            print(scan.present, sorted(scan.found), sorted(p.path for p in scan.problems))
            for work in (lambda: V.publish("Inbox/Archive/p.md", b"x"),
                         lambda: V.move("Inbox/Requests/a.md", "Inbox/Archive/a.md", sha(b"a")),
                         lambda: V.replace("Inbox/Requests/a.md", sha(b"a"), b"b"),
                         lambda: V.read("Inbox/Plans/p.md")):
                try:
                    work()
                except e.VaultTrouble as error:
                    print(error.errno, error.hint != "")
            print(V.sweep_temporaries())
        """,
            str(top),
        )
        assert done.stdout.splitlines() == [
            "True ['Inbox/Requests/a.md'] ['Inbox/Plans', 'Inbox/Requests/shut']",
            *[f"{errno.EACCES} True"] * 4,
            "0",
        ], done.stderr
    finally:
        shutil.rmtree(top)


def can_mount() -> bool:
    try:
        return subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace")
def test_cross_device_move_fails_and_full_disk_recovers(root, vault):
    active = root / "System/Active"
    (root / "Inbox/Plans/p.md").write_bytes(b"plan")
    done = run(
        """
        for work in (lambda: V.move("Inbox/Plans/p.md", "System/Active/p.md", sha(b"plan")),
                     lambda: V.publish("System/Active/big.md", b"x" * 100_000)):
            try:
                work()
            except e.VaultTrouble as error:
                print(error.errno, error.hint != "", os.listdir(sys.argv[1] + "/System/Active"))
        print(V.publish("System/Active/small.md", b"x"), os.listdir(sys.argv[1] + "/Inbox/Plans"))
    """,
        str(root),
        wrap=(
            "unshare",
            "-Urm",
            "sh",
            "-c",
            f'mount -t tmpfs -o size=64k tmpfs "{active}" && exec "$@"',
            "sh",
        ),
    )
    assert done.stdout.splitlines() == [
        f"{errno.EXDEV} True []",
        f"{errno.ENOSPC} True []",
        "True ['p.md']",
    ], done.stderr


# Crashes: killed at the K-th call of each system call that changes something, then done again

WORK = """
    V.sweep_temporaries()
    V.publish("Knowledge/Reports/new/r.md", b"report")
    V.replace("Inbox/Requests/a.md", sha(b"old"), b"new")
    V.move("Inbox/Plans/p.md", "Inbox/Archive/sub/p.md", sha(b"plan"))
    V.remove("Inbox/Requests/a.placet.md", sha(b"why"))
"""
DONE = {
    "Knowledge/Reports/new/r.md": b"report",
    "Inbox/Requests/a.md": b"new",
    "Inbox/Archive/sub/p.md": b"plan",
    "System/.placet-vault": b"vault-1\n",
}
CALLS = {
    "mkdirat": 9,
    "write": 9,
    "fsync": 20,
    "renameat2": 9,
    "unlinkat": 9,
    "linkat": 9,
    "renameat": 9,
}


def prepared(top: Path) -> Path:
    top.mkdir()
    with Vault(top) as vault:
        vault.ensure_folders()
        vault.create_marker("vault-1")
    (top / "Inbox/Requests/a.md").write_bytes(b"old")
    (top / "Inbox/Plans/p.md").write_bytes(b"plan")
    (top / "Inbox/Requests/a.placet.md").write_bytes(b"why")
    return top


def injected(*faults: str) -> tuple[str, ...]:
    """The command that makes system calls fail or kill, without a change to the code."""
    options = [option for fault in faults for option in ("-e", f"inject={fault}")]
    return ("strace", "-f", "-qq", "-o", os.devnull, *options)


def cut_off_then_repeated(top: Path, cut: str, *faults: str) -> bool:
    """Whether the cut hit.

    Checks that nothing was half done and that repeating the work finishes it.
    """
    first = run(WORK, str(top), wrap=injected(*faults, cut))
    for path in ("Inbox/Requests/a.md", "Knowledge/Reports/new/r.md"):
        if (top / path).exists():
            whole = {b"old", b"new", b"report", *([b""] if len(faults) == 2 else [])}
            assert (top / path).read_bytes() in whole, (cut, path)
    again = run(WORK, str(top), wrap=injected(*faults) if faults else ())
    assert again.returncode == 0, (cut, again.stderr)
    assert tree(top) == DONE, cut
    return first.returncode != 0


# This system; one without exclusive renames; one without links too, where a crash can leave an
# empty file.
FAULTS: tuple[tuple[str, ...], ...] = (
    (),
    ("renameat2:error=EINVAL",),
    ("renameat2:error=EINVAL", "linkat:error=EPERM"),
)

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


@needs_strace
@pytest.mark.parametrize("point", ["fsync:when=2", "renameat2:when=2", "unlinkat:when=1"])
def test_write_killed_at_point_is_finished_by_repeating(tmp_path, point):
    assert cut_off_then_repeated(prepared(tmp_path / "vault"), f"{point}:signal=SIGKILL")


@needs_strace
@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("faults", FAULTS)
def test_write_killed_at_every_call_is_repeatable(tmp_path, faults):
    points = 0
    for call, most in CALLS.items():
        if any(fault.startswith(f"{call}:") for fault in faults):
            continue
        for k in range(1, most + 1):
            top = prepared(tmp_path / f"{call}{k}")
            if not cut_off_then_repeated(top, f"{call}:signal=SIGKILL:when={k}", *faults):
                break
            points += 1
    print(f"{points} crash points")
    assert points > 15


@needs_strace
@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_write_failing_at_every_call_is_repeatable(tmp_path, error):
    points = 0
    for call in ("mkdirat", "write", "fsync", "renameat2", "unlinkat"):
        for k in range(1, CALLS[call] + 1):
            if not cut_off_then_repeated(
                prepared(tmp_path / f"{call}{k}"), f"{call}:error={error}:when={k}"
            ):
                break
            points += 1
    print(f"{points} fault points")
    assert points > 10


# Cost


@pytest.mark.sweep
def test_cost_of_a_scan(root, vault):
    done = 0
    for count in (100, 2_000, 10_000, 50_000):
        for n in range(done, count):
            (root / f"Inbox/Requests/note {n}.md").write_text("x")
        done = count
        times = []
        for _ in range(7):
            began = time.perf_counter()
            assert len(vault.scan(QUEUES).found) == count
            times.append(time.perf_counter() - began)
        print(f"{count:6} notes: {sorted(times)[3] * 1000:.1f} ms")


@pytest.mark.parametrize("links", [1, 2])
def test_move_to_same_path_changes_nothing(root, vault, links):
    path = root / "Inbox" / "Requests" / "a.md"
    path.write_bytes(b"mine\n")
    if links == 2:
        os.link(path, root / "kept.md")
    vault.move("Inbox/Requests/a.md", "Inbox/Requests/a.md", sha256(b"mine\n").hexdigest())
    assert path.read_bytes() == b"mine\n"
    with pytest.raises(e.Changed):
        vault.move("Inbox/Requests/a.md", "Inbox/Requests/a.md", "0" * 64)
