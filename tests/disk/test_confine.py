"""Test path confinement: what it refuses, what it returns, and that races do not beat it."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import stat
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet.disk import confine
from placet.disk import confine as links
from placet.disk import confine as paths
from placet.disk.confine import Entry, Root
from placet.disk.handles import EntryKind, enter, open_below
from placet.disk.path_text import ALWAYS, VAULT, Denied, Fault
from placet.errors import ToolError, UserError

CANARY = b"the canary is outside"

LINKS = {
    "docs": "src",
    "src/readme": "../README.md",
    "out_file": "../canary.txt",
    "out_folder": "../yard",
    "src/out_then_back": "../../worktree/README.md",
    "dangling": "nowhere",
    "dangling_out": "../fresh.txt",
    "loop": "loop",
    "to_git": ".git",
    "proc": "/proc/self/root",
    "out_absolute": "{up}/yard",
    "in_absolute": "{up}/worktree/README.md",
}


def plant(root: Path) -> None:
    """Put the links into the worktree, those that are not there."""
    for name, target in LINKS.items():
        if not (root / name).is_symlink():
            (root / name).symlink_to(target.format(up=root.parent))
    if not (root / "hard").exists():
        (root / "hard").hardlink_to(root.parent / "canary.txt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A worktree with the usual things in it, a canary beside it, and every kind of link between
    the two.
    """
    root = tmp_path / "up" / "worktree"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "main.py").write_bytes(b"print()\n")
    (root / "src" / "deep" / "leaf.txt").write_bytes(b"leaf")
    (root / "README.md").write_bytes(b"# Read me\n")
    (root / ".git").write_bytes(b"gitdir: elsewhere\n")
    (tmp_path / "up" / "canary.txt").write_bytes(CANARY)
    (tmp_path / "up" / "yard").mkdir()
    (tmp_path / "up" / "yard" / "canary.txt").write_bytes(CANARY)
    plant(root)
    return root


@pytest.fixture
def root(folder: Path) -> Iterator[Root]:
    with Root(folder, writable=True) as opened:
        yield opened


def fault(call: Callable[[], object]) -> Fault:
    """Return the error type that `call` is refused with."""
    with pytest.raises(ToolError) as caught:
        call()
    return Fault(caught.value.error_type)


def handles(folder: Path) -> int:
    """Return how many files and folders of a folder this process has open."""
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link).startswith(str(folder)) for link in links)


def snapshot(folder: Path, *, without: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time and content of everything below `folder`, leaving `without` out."""
    seen: dict[str, tuple[int, int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_relative_to(without) or path == without.parent:
            continue
        info = path.lstat()
        seen[str(path)] = (
            info.st_mode,
            info.st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
    return seen


def test_open_below_refuses_parent_names(folder: Path) -> None:
    """What `relative` lets through holds no `..`; should it ever, the layer below refuses."""
    here = os.open(folder, os.O_RDONLY)
    try:
        for name in ("..", "../canary.txt", "/etc/passwd", "src/../../canary.txt", b".."):
            with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
                enter(here, name, os.O_RDONLY)
        for names in (["..", "canary.txt"], ["src", "..", "..", "canary.txt"]):
            with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
                open_below(here, names, os.O_RDONLY)
    finally:
        os.close(here)


class TestReading:
    def test_root_reads_file_size_and_kind(self, root: Root) -> None:
        assert root.read("src/main.py") == b"print()\n"
        assert root.read(f"{root.path}/src//./main.py") == b"print()\n"
        assert root.stat("src/main.py") == Entry("src/main.py", EntryKind.FILE, 8)
        assert root.stat(".") == Entry(".", EntryKind.DIRECTORY, 0)
        assert root.stat("./src/") == Entry("src", EntryKind.DIRECTORY, 0)
        assert root.exists("README.md")
        assert not root.exists("README.md/below")
        assert not root.exists("nothing")

    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("docs/main.py", b"print()\n"),
            ("docs/deep/leaf.txt", b"leaf"),
            ("src/readme", b"# Read me\n"),
            ("docs/readme", b"# Read me\n"),
        ],
    )
    def test_links_that_stay_inside_are_followed(
        self, root: Root, path: str, content: bytes
    ) -> None:
        assert root.read(path) == content
        assert root.stat(path) == Entry(path, EntryKind.FILE, len(content))

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("out_file", Fault.PATH_OUTSIDE),
            ("out_folder/canary.txt", Fault.PATH_OUTSIDE),
            ("out_absolute/canary.txt", Fault.PATH_OUTSIDE),
            ("src/out_then_back", Fault.PATH_OUTSIDE),
            ("in_absolute", Fault.PATH_OUTSIDE),
            ("proc/etc/passwd", Fault.PATH_OUTSIDE),
            ("dangling_out", Fault.PATH_OUTSIDE),
            ("dangling", Fault.NOT_FOUND),
            ("loop", Fault.BAD_PATH),
            ("to_git", Fault.PATH_DENIED),
            ("hard", Fault.HARD_LINK),
            ("src", Fault.IS_A_DIRECTORY),
            (".", Fault.IS_A_DIRECTORY),
            ("docs", Fault.IS_A_DIRECTORY),
            ("README.md/x", Fault.NOT_A_DIRECTORY),
            ("src/nothing", Fault.NOT_FOUND),
        ],
    )
    def test_refused_read_has_expected_fault(self, root: Root, path: str, expected: Fault) -> None:
        assert fault(lambda: root.read(path)) is expected

    def test_a_chain_of_links_is_bounded(self, root: Root, folder: Path) -> None:
        (folder / "l0").symlink_to("README.md")
        for n in range(1, 42):
            (folder / f"l{n}").symlink_to(f"l{n - 1}")
        assert root.read(f"l{links.MAX_LINKS - 1}") == b"# Read me\n"
        assert fault(lambda: root.read(f"l{links.MAX_LINKS}")) is Fault.BAD_PATH

    def test_a_link_that_grows_the_path_is_bounded(self, root: Root, folder: Path) -> None:
        (folder / "grow").symlink_to("./" + "docs/../" * 60 + "grow")
        assert fault(lambda: root.read("grow")) is Fault.TOO_DEEP

    def test_too_large_is_never_cut(self, folder: Path) -> None:
        with Root(folder, writable=True, max_read_bytes=8) as small:
            assert small.read("src/main.py") == b"print()\n"
            assert fault(lambda: small.read("README.md")) is Fault.TOO_LARGE

    def test_a_sparse_terabyte_is_not_read(self, root: Root, folder: Path) -> None:
        with (folder / "sparse").open("wb") as file:
            file.truncate(2**40)
        assert fault(lambda: root.read("sparse")) is Fault.TOO_LARGE
        assert root.stat("sparse").size == 2**40

    def test_growing_file_is_capped_while_read(self) -> None:
        """/proc files say 0 bytes and give more, as a file does that grows while it is read."""
        if not Path("/proc/self/status").exists():
            pytest.skip("no /proc here")
        with Root(Path("/proc/self"), writable=False) as proc:
            assert len(proc.read("status")) > 100
        with Root(Path("/proc/self"), writable=False, max_read_bytes=100) as proc:
            assert fault(lambda: proc.read("status")) is Fault.TOO_LARGE

    @pytest.mark.timeout(120)
    def test_special_files_are_refused_immediately(
        self, root: Root, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(folder / "fifo")
        monkeypatch.chdir(folder)  # a socket's address is at most 107 bytes
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
            odd = ["fifo", "socket"]
            if os.geteuid() == 0:
                os.mknod("device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
                odd.append("device")
            for path in odd:
                assert root.stat(path).kind is EntryKind.OTHER
                for verb in (root.read, root.delete, lambda p: root.write(p, b"x")):
                    assert fault(lambda v=verb, p=path: v(p)) is Fault.NOT_A_REGULAR_FILE


class TestListing:
    def test_list_is_sorted_without_links_or_git(self, root: Root) -> None:
        found = root.list()
        assert [e.path for e in found] == sorted(e.path for e in found)
        kinds = {e.path: e.kind for e in found}
        assert kinds["src"] is EntryKind.DIRECTORY
        assert kinds["docs"] is kinds["out_folder"] is kinds["loop"] is EntryKind.SYMLINK
        assert kinds["hard"] is EntryKind.FILE
        assert ".git" not in kinds
        assert [e.path for e in root.list("docs")] == [
            "docs/deep",
            "docs/main.py",
            "docs/out_then_back",
            "docs/readme",
        ]
        assert fault(lambda: root.list("out_folder")) is Fault.PATH_OUTSIDE
        assert fault(lambda: root.list("README.md")) is Fault.NOT_A_DIRECTORY
        assert fault(lambda: root.list("nothing")) is Fault.NOT_FOUND

    def test_walk_goes_through_folders_and_not_through_links(
        self, root: Root, folder: Path
    ) -> None:
        (folder / "src" / "sub").mkdir()
        (folder / "src" / "sub" / ".git").mkdir()
        (folder / "src" / "sub" / ".git" / "config").touch()
        (folder / "src" / "sub" / "empty").mkdir()
        assert [e.path for e in root.walk("src", max_entries=99)] == [
            "src/deep/leaf.txt",
            "src/main.py",
            "src/out_then_back",
            "src/readme",
        ]
        through = [e.path for e in root.walk("docs", max_entries=99)]
        assert through == [
            "docs/deep/leaf.txt",
            "docs/main.py",
            "docs/out_then_back",
            "docs/readme",
        ]
        everything = [e.path for e in root.walk(max_entries=99)]
        assert everything == [
            "README.md",
            "dangling",
            "dangling_out",
            "docs",
            "hard",
            "in_absolute",
            "loop",
            "out_absolute",
            "out_file",
            "out_folder",
            "proc",
            "src/deep/leaf.txt",
            "src/main.py",
            "src/out_then_back",
            "src/readme",
            "to_git",
        ]

    def test_walk_stops_aloud_at_its_limit(self, root: Root) -> None:
        assert len(list(root.walk("src", max_entries=5))) == 4  # and one folder
        assert fault(lambda: list(root.walk("src", max_entries=4))) is Fault.TOO_LARGE

    def test_list_stops_aloud_at_its_limit(
        self, root: Root, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(confine, "MAX_LISTED", 4)
        assert len(root.list("src")) == 4
        (folder / "src" / "one more").touch()
        assert fault(lambda: root.list("src")) is Fault.TOO_LARGE

    def test_a_tree_deeper_than_any_path_ends(self, root: Root, folder: Path) -> None:
        here = os.open(folder, os.O_RDONLY)
        for _ in range(paths.MAX_DEPTH + 6):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        last = list(root.walk("d", max_entries=999))
        assert last == [Entry("/".join(["d"] * paths.MAX_DEPTH), EntryKind.OTHER, 0)]
        assert fault(lambda: root.list("d/" * (paths.MAX_DEPTH + 1))) is Fault.TOO_DEEP

    def test_abandoned_walk_holds_no_handle(self, root: Root, folder: Path) -> None:
        if not Path("/proc/self/fd").exists():
            pytest.skip("counts handles in /proc")
        before = handles(folder)
        walk = root.walk(max_entries=99)
        next(walk)
        assert handles(folder) == before + 1
        walk.close()
        assert handles(folder) == before


class TestWriting:
    def test_write_creates_missing_folders(self, root: Root, folder: Path) -> None:
        assert root.write("a/b/c.txt", b"hello") == 5
        assert (folder / "a" / "b" / "c.txt").read_bytes() == b"hello"
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE((folder / "a" / "b" / "c.txt").stat().st_mode) == 0o666 & ~mask
        # and no temporary file
        assert [e.path for e in root.walk("a", max_entries=9)] == ["a/b/c.txt"]
        assert root.write("a/b/empty", b"") == 0

    def test_content_is_flushed_before_rename(
        self, root: Root, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed: list[tuple[int, int, bytes]] = []

        def watched(handle: int, flush: Callable[[int], None] = os.fsync) -> None:
            info = os.fstat(handle)
            flushed.append((info.st_ino, info.st_size, (folder / "README.md").read_bytes()))
            flush(handle)

        monkeypatch.setattr(os, "fsync", watched)
        root.write("README.md", b"new")
        assert flushed == [((folder / "README.md").stat().st_ino, 3, b"# Read me\n")]

    def test_replaced_file_keeps_mode_without_setid_bits(self, root: Root, folder: Path) -> None:
        (folder / "run.sh").touch()
        (folder / "run.sh").chmod(0o4751)
        root.write("run.sh", b"#!/bin/sh\n")
        assert stat.S_IMODE((folder / "run.sh").stat().st_mode) == 0o751

    @pytest.mark.parametrize(
        "path",
        [
            "docs/x.txt",
            "docs/new/x.txt",
            "docs/main.py",
            "src/readme",
            "out_file",
            "out_folder/x",
            "out_folder/n/x",
            "out_absolute/x",
            "dangling",
            "loop",
            "dangling_out",
            "loop/x",
            "dangling/x",
            "proc/tmp/x",
        ],
    )
    def test_no_write_goes_through_a_link(self, root: Root, folder: Path, path: str) -> None:
        """Else `docs/x` would change `src/x` while the scope allows only `docs/**`."""
        before = snapshot(folder.parent, without=folder / "none")
        assert fault(lambda: root.write(path, b"x")) is Fault.PATH_DENIED
        if "/" in path and path != "src/readme":
            assert fault(lambda: root.delete(path)) is Fault.PATH_DENIED
        assert snapshot(folder.parent, without=folder / "none") == before

    def test_writing_hard_link_leaves_outside_file_unchanged(
        self, root: Root, folder: Path
    ) -> None:
        root.write("hard", b"new")
        assert root.read("hard") == b"new"
        assert (folder.parent / "canary.txt").read_bytes() == CANARY

    def test_refused_write_has_expected_fault(self, folder: Path) -> None:
        with Root(folder, writable=True, max_write_bytes=3) as root:
            assert fault(lambda: root.write("x", b"1234")) is Fault.TOO_LARGE
            assert fault(lambda: root.write("src", b"")) is Fault.IS_A_DIRECTORY
            assert fault(lambda: root.write(".", b"")) is Fault.IS_A_DIRECTORY
            assert fault(lambda: root.write("new/", b"")) is Fault.IS_A_DIRECTORY
            assert fault(lambda: root.write("README.md/x", b"")) is Fault.NOT_A_DIRECTORY
            assert fault(lambda: root.write("n" * 300, b"")) is Fault.BAD_PATH
            assert not (folder / "new").exists()

    def test_read_only_root_changes_nothing(self, folder: Path) -> None:
        before = snapshot(folder.parent, without=folder / "none")
        with Root(folder, writable=False) as root:
            for verb in (lambda: root.write("x", b""), lambda: root.delete("README.md")):
                assert fault(verb) is Fault.READ_ONLY
        assert snapshot(folder.parent, without=folder / "none") == before

    def test_delete(self, root: Root, folder: Path) -> None:
        root.delete("src/main.py")
        root.delete("out_file")  # the link goes, not what it points to
        root.delete("hard")
        (folder / "empty").mkdir()
        root.delete("empty")
        assert not (folder / "src" / "main.py").exists()
        assert not (folder / "out_file").is_symlink()
        assert (folder.parent / "canary.txt").read_bytes() == CANARY
        assert fault(lambda: root.delete("src")) is Fault.IS_A_DIRECTORY
        assert fault(lambda: root.delete("src/main.py")) is Fault.NOT_FOUND
        assert fault(lambda: root.delete(".")) is Fault.IS_A_DIRECTORY
        assert fault(lambda: root.delete("docs/deep/leaf.txt")) is Fault.PATH_DENIED

    def test_planted_temporary_link_is_not_followed(
        self, root: Root, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody can know the name; should somebody plant a link there, O_EXCL does not follow it."""
        monkeypatch.setattr(confine.secrets, "token_hex", lambda _: "known")
        (folder / ".placet-known.tmp").symlink_to("../canary.txt")
        assert fault(lambda: root.write("second", b"2")) is Fault.IO_ERROR
        assert not (folder / "second").exists()
        assert (folder.parent / "canary.txt").read_bytes() == CANARY

    def test_a_full_disk_leaves_the_old_file(self, tmp_path: Path) -> None:
        script = f"""
from pathlib import Path
from placet.disk.confine import Root
from placet.errors import ToolError
where = Path({str(tmp_path)!r})
with Root(where, writable=True) as root:
    root.write("kept", b"old")
    try:
        root.write("kept", b"x" * 200_000)
    except ToolError as error:
        print(error.error_type, root.read("kept").decode(), [e.path for e in root.list()])
"""
        mounted = 'mount -t tmpfs -o size=64k none "$0" && exec "$@"'
        done = subprocess.run(
            ["unshare", "-mr", "sh", "-c", mounted, str(tmp_path), sys.executable, "-c", script],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0 and "Traceback" not in done.stderr:
            pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
        assert (done.stdout, done.stderr) == ("disk_full old ['kept']\n", "")

    def test_file_above_system_limit_fails_cleanly(self, folder: Path) -> None:
        script = f"""
import resource
from pathlib import Path
from placet.disk.confine import Root
from placet.errors import ToolError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with Root(Path({str(folder)!r}), writable=True) as root:
    try:
        root.write("src/main.py", b"x" * 2000)
    except ToolError as error:
        print(error.error_type, root.read("src/main.py"), len(root.list("src")))
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("too_large b'print()\\n' 4\n", "")


def test_permission_errors_are_reported_as_such(folder: Path) -> None:
    """In a process of an ordinary user: root may do everything and would hide it."""
    (folder / "secret").touch(mode=0o000)
    (folder / "closed").mkdir(mode=0o000)
    (folder / "search").mkdir()
    (folder / "search" / "known").write_bytes(b"known")
    (folder / "search").chmod(0o711)
    folder.chmod(0o555)
    script = f"""
import os
from pathlib import Path
from placet.disk.confine import Root
from placet.errors import ToolError
root = Root(Path({str(folder)!r}), writable=True)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for verb in (lambda: root.read("secret"), lambda: root.read("closed/x"), lambda: root.list("closed"),
             lambda: root.write("new", b""), lambda: root.write("README.md", b""), lambda: root.write("new/x", b""),
             lambda: root.delete("README.md")):
    try:
        verb()
        print("done")
    except ToolError as error:
        print(error.error_type, error.refused)
print([e.kind.value for e in root.walk(max_entries=99) if e.path == "closed"], root.read("search/known"))
root.close()
"""
    try:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    finally:
        folder.chmod(0o755)
        (folder / "closed").chmod(0o755)
    assert (done.stdout, done.stderr) == (
        "permission_denied False\n" * 7 + "['other'] b'known'\n",
        "",
    )


class TestNames:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("", Fault.BAD_PATH),
            ("a\0b", Fault.BAD_PATH),
            ("\ud800", Fault.BAD_PATH),
            ("\udc2e\udc2e/x", Fault.BAD_PATH),
            ("a" * 300, Fault.BAD_PATH),
            ("é" * 200, Fault.BAD_PATH),
            ("ab/" * 2000, Fault.BAD_PATH),
            ("a/" * 65, Fault.TOO_DEEP),
            ("..", Fault.PATH_OUTSIDE),
            ("a/../..", Fault.PATH_OUTSIDE),
            ("./a//../../b", Fault.PATH_OUTSIDE),
            ("a/../b", Fault.BAD_PATH),
            ("/", Fault.PATH_OUTSIDE),
            ("/etc/passwd", Fault.PATH_OUTSIDE),
            ("//etc/passwd", Fault.PATH_OUTSIDE),
            ("/proc/self/cwd", Fault.PATH_OUTSIDE),
            ("~", Fault.PATH_OUTSIDE),
            ("~/.ssh/id_ed25519", Fault.PATH_OUTSIDE),
            ("./~/x", Fault.PATH_OUTSIDE),
        ],
    )
    def test_impossible_path_is_refused(self, root: Root, path: str, expected: Fault) -> None:
        for verb in (root.read, root.list, root.delete, lambda p: root.write(p, b"")):
            assert fault(lambda v=verb: v(path)) is expected

    @pytest.mark.parametrize(
        "name",
        [
            "notes..md",
            "...",
            "a b",
            "line\nbreak",
            "%2e%2e",
            "..\\x",
            "~root",
            "-rf",
            "\udcff",
            "*",
            "~$a.docx",
            "ü",
            unicodedata.normalize("NFD", "ü"),
            "Inbox",
            ".obsidian",
            ".gitignore",
            ".github",
            "git",
            "x.git",
            "git~",
        ],
    )
    def test_odd_names_are_names(self, root: Root, folder: Path, name: str) -> None:
        root.write(f"odd/{name}", name.encode("utf-8", "surrogateescape"))
        assert root.read(f"odd/{name}") == os.fsencode(name)
        assert [e.path for e in root.list("odd")] == [f"odd/{name}"]
        assert [p.name for p in (folder / "odd").iterdir()] == [name]

    def test_absolute_path_works_by_either_root_name(self, tmp_path: Path, folder: Path) -> None:
        (tmp_path / "alias").symlink_to(folder)
        with Root(tmp_path / "alias", writable=False) as root:
            assert (
                root.relative(f"{tmp_path}/alias/src") == root.relative(f"{folder}/src/") == "src"
            )
            assert root.relative(str(folder)) == "."
            assert fault(lambda: root.relative(f"{folder}2/src")) is Fault.PATH_OUTSIDE
            assert fault(lambda: root.relative(f"{folder}/../canary.txt")) is Fault.PATH_OUTSIDE

    @settings(max_examples=150)
    @given(st.text(alphabet="a./~\\ \u00e9\u200b\udcc3\udca9\x00", max_size=12))
    def test_the_canonical_path_is_a_fixed_point(self, path: str) -> None:
        with Root(Path("/usr"), writable=False) as root:
            try:
                canonical = root.relative(path)
            except ToolError as error:
                Fault(error.error_type)
                return
            assert root.relative(canonical) == canonical
            assert ".." not in canonical.split("/")
            assert not canonical.startswith("/")

    def test_message_names_given_path_on_one_line(self, root: Root) -> None:
        for path in ["out_file", "/etc/passwd", "a\nb\x1b[31m", "\udcff", "z" * 5000, "hard"]:
            with pytest.raises(ToolError) as caught:
                root.read(path)
            message = caught.value.message
            assert message.isprintable()
            assert len(message) < 350
            assert message.encode()
            assert str(root.path) not in message
            assert "canary" not in message
            assert path.isprintable() is (path[:100] in message)

    def test_missing_root_is_user_error(self, tmp_path: Path) -> None:
        for path in (tmp_path / "none", tmp_path / "file"):
            (tmp_path / "file").touch()
            with pytest.raises(UserError):
                Root(path, writable=False)

    def test_a_closed_root_is_a_bug(self, folder: Path) -> None:
        root = Root(folder, writable=False)
        root.close()
        root.close()
        with pytest.raises(RuntimeError):
            root.read("README.md")


GIT = [
    ".git",
    ".GIT",
    ".Git",
    "git~1",
    "GIT~1",
    "git~2",
    ".git.",
    ".git ",
    ".git . .",
    ".g\u200cit",
    ".gi\u00adt",
    "\ufeff.git",
    ".git\u200d",
    ".g\u2060i\ufe0ft",
    "\uff0egit",
    ".\uff47\uff49\uff54",
    ".git:stream",
    ".git::$INDEX_ALLOCATION",
    "\u2024git",
    "x\\.git",
    ".g\udce2\udc80\udc8cit",
    ".\U0001d4d6it",
]
FORMS = ["{}", "{}/config", "{}/hooks/post-commit", "sub/{}", "sub/{}/x", "./{}/", "a//{}"]


class TestDenied:
    @pytest.mark.parametrize("name", GIT)
    def test_git_in_every_disguise_at_every_depth(self, root: Root, name: str) -> None:
        for path in (form.format(name) for form in FORMS):
            for verb in (
                root.relative,
                root.read,
                root.stat,
                root.exists,
                root.list,
                root.delete,
                lambda p: root.write(p, b"x"),
                lambda p: list(root.walk(p, max_entries=9)),
            ):
                assert fault(lambda v=verb, p=path: v(p)) is Fault.PATH_DENIED

    @pytest.mark.parametrize(
        "path",
        [
            "Inbox/a.md",
            "inbox",
            "INBOX/x",
            "System/Active/p.md",
            "system",
            ".obsidian/x",
            ".Obsidian",
            "OBSIDI~1/x",
            "SYSTEM_PROMPT.md",
            "system_prompt.MD",
            "SYSTEM~1.MD",
            "./Inbox//x",
            "Inbox./x",
            "Inbox /x",
            "In\u200bbox/x",
            "\uff29nbox/x",
            "system_prompt.md/",
        ],
    )
    def test_vault_folders_are_read_only(self, folder: Path, path: str) -> None:
        with Root(folder, writable=True, denied=VAULT) as root:
            for verb in (
                root.delete,
                lambda p: root.write(p, b"x"),
            ):
                assert fault(lambda v=verb: v(path)) is Fault.PATH_DENIED
            assert fault(lambda: root.read(path)) is Fault.NOT_FOUND

    @pytest.mark.parametrize(
        "path", ["a/Inbox/x", "Knowledge/System", "Inbox2/x", "sub/SYSTEM_PROMPT.md", "Systems/x"]
    )
    def test_vault_folder_names_elsewhere_are_ordinary(self, folder: Path, path: str) -> None:
        with Root(folder, writable=True, denied=VAULT) as root:
            assert root.write(path, b"x") == 1

    def test_in_a_repository_a_vaults_names_are_ordinary(self, root: Root) -> None:
        for path in ("Inbox/a.md", "System/x", ".obsidian/app.json", "SYSTEM_PROMPT.md"):
            assert root.write(path, b"x") == 1
        assert root.denied is ALWAYS

    def test_link_into_git_reads_nothing(self, root: Root, folder: Path) -> None:
        (folder / "sub" / ".git").mkdir(parents=True)
        (folder / "sub" / ".git" / "config").write_bytes(b"[user]")
        (folder / "g").symlink_to("sub/.git")
        (folder / "h").symlink_to("sub/./.git/config")
        for path in ("g/config", "h", "g"):
            assert fault(lambda p=path: root.read(p)) is Fault.PATH_DENIED
        assert fault(lambda: root.list("g")) is Fault.PATH_DENIED
        assert not [e for e in root.walk(max_entries=99) if ".git" in e.path]

    def test_denied_name_must_be_single(self) -> None:
        for bad in ("", "a/b"):
            with pytest.raises(ValueError, match="single name"):
                Denied(anywhere=(bad,))
        assert not Denied(anywhere=()).hides(".git")


def payloads(root: Path) -> list[str]:
    """Return the table of traversals: ways up, times what to reach, times ways to write it down."""
    ups = [
        "../",
        "..\\",
        "..%2f",
        "%2e%2e/",
        "%2e%2e%2f",
        "%252e%252e%252f",
        "..%252f",
        "..%5c",
        "%2e%2e%5c",
        "..%c0%af",
        "%c0%ae%c0%ae/",
        "..%u2215",
        "..;/",
        "..//",
        "..././",
        "....//",
        "....\\\\",
        ".../",
        "./../",
        "../.",
        "..%00/",
        "..\x00/",
        "..\n/",
        ".. /",
        " ../",
        "\u2025/",
        "\uff0e\uff0e/",
        "..\u2215",
        "..\uff0f",
        ".\u200b./",
        "\u2024\u2024/",
        "src/../../",
        "docs/../../",
        "out_folder/../",
        "src/deep/../../../",
    ]
    ends = ["canary.txt", "yard/canary.txt", "etc/passwd", "yard", ""]
    found = [up * n + end for up in ups for n in (1, 2, 3, 8) for end in ends]
    up = root.parent
    absolute = [
        f"{up}/canary.txt",
        f"{up}/yard/canary.txt",
        "/etc/passwd",
        f"{root}/../canary.txt",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        f"/proc/self/root{up}/canary.txt",
        "/proc/self/cwd/README.md",
        "/proc/1/root/etc/passwd",
        "/proc/self/fd/0",
        "/dev/stdin",
        "/dev/fd/0",
        "/dev/null",
        "~/.ssh/id_rsa",
        "~root/.bashrc",
        "$HOME/x",
        "${HOME}/x",
        "`id`",
        "C:\\Windows\\win.ini",
        "\\\\host\\share\\x",
    ]
    wrapped = [
        "{}",
        "/{}",
        "//{}",
        "./{}",
        "file://{}",
        "{}%00.md",
        "{}\0.md",
        "{}/.",
        "src/{}",
        "\\{}",
    ]
    found += [form.format(path) for path in absolute for form in wrapped]
    planted = [*LINKS, "hard"]
    found += [
        form.format(name)
        for name in planted
        for form in (
            "{}",
            "{}/",
            "./{}",
            "{}/.",
            "{}/canary.txt",
            "{}/../canary.txt",
            "{}/x",
            "docs/../{}",
            "{}//canary.txt",
            "{}/etc/passwd",
        )
    ]
    found += [
        f"proc{up}/canary.txt",
        "proc/self/environ",
        ".git/../../canary.txt",
        "a" * 5000,
        "../" * 1500 + "x",
        "a/" * 3000,
        "\ud800/../x",
        "\udcff/../../canary.txt",
    ]
    return found


def spellings(raw: list[str]) -> list[str]:
    """Return `raw`, URL-decoded once and twice, and in the two normal forms; each once."""
    forms: list[Callable[[str], str]] = [
        str,
        lambda s: unquote(s, errors="surrogateescape"),
        lambda s: unquote(unquote(s, errors="surrogateescape"), errors="surrogateescape"),
        lambda s: unicodedata.normalize("NFKC", s),
        lambda s: unicodedata.normalize("NFD", s),
        lambda s: s.replace("\\", "/"),
    ]
    return list(dict.fromkeys(form(s) for s in raw for form in forms))


def attack(root: Root, table: list[str]) -> tuple[int, list[str]]:
    """Try each payload with every verb.

    Return how many calls were refused, and the payloads that leaked.

    Anything but a ToolError of the closed set ends the test. What a payload that is merely an odd
    name could move or delete is put back, so that each payload meets the same worktree.
    """
    refused = 0
    leaks: list[str] = []
    reading: list[Callable[[str], object]] = [
        root.read,
        root.stat,
        root.exists,
        root.list,
        lambda p: list(root.walk(p, max_entries=99)),
    ]
    writing: list[Callable[[str], object]] = [
        root.delete,
        lambda p: root.write(p, b"w"),
        root.delete,
    ]
    for path in table:
        changed = False
        for verb in (*reading, *writing):
            try:
                got = verb(path)
            except ToolError as error:
                Fault(error.error_type)
                refused += 1
                continue
            if (
                CANARY in got
                if isinstance(got, bytes)
                else ("canary" in str(got) and "canary" not in path)
            ):
                leaks.append(path)
            changed = changed or verb in writing
        if changed:
            plant(root.path)
    return refused, leaks


def naive(root: Path, table: list[str]) -> int:
    """Return how many payloads a plain join and open gives something outside for: the control."""
    leaks = 0
    for path in table:
        try:
            content = (root / path).read_bytes()
        except (OSError, ValueError):
            continue
        leaks += content == CANARY or b"root:" in content
    return leaks


def storm(folder: Path, table: list[str]) -> str:
    """Attack with every payload and check the outside; return the figures."""
    # /dev/stdin would be waited for by the naive variant
    control = naive(folder, [p for p in table if "fd/" not in p and "stdin" not in p])
    assert control >= 30, "the control must leak"
    above = folder.parent.parent
    before = snapshot(above, without=folder)
    with Root(folder, writable=True) as root:
        refused, leaks = attack(root, table)
    assert leaks == []
    assert snapshot(above, without=folder) == before
    assert refused > 5 * len(table)
    return f"{len(table)} payloads, {refused} calls refused, 0 leaks; naive join and open: {control} leaks"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of writes need no flushing of the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def test_traversals_never_reach_outside(folder: Path, quick: None) -> None:
    table = spellings(payloads(folder))
    assert len(table) >= 1000
    print(storm(folder, table))


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_sweep_of_a_payload_file(folder: Path, quick: None) -> None:
    """`PLACET_PAYLOADS=FILE pytest -m sweep`: one payload a line, raw bytes."""
    if "PLACET_PAYLOADS" not in os.environ:
        pytest.skip("PLACET_PAYLOADS names no file")
    lines = Path(os.environ["PLACET_PAYLOADS"]).read_bytes().splitlines()
    table = spellings(
        [line.decode("utf-8", "surrogateescape") for line in lines] + payloads(folder)
    )
    print(f"\n{storm(folder, table)}")


ADVERSARY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
here = os.open(sys.argv[1], os.O_RDONLY)
pairs = ((b"d", b"l"), (b"f", b"m"))
for one, other in pairs:
    if libc.renameat2(here, one, here, other, 2):
        raise SystemExit(f"RENAME_EXCHANGE: {os.strerror(ctypes.get_errno())}")
print("ready", flush=True)
while True:
    for one, other in pairs:
        libc.renameat2(here, one, here, other, 2)
"""


@pytest.fixture
def contested(tmp_path: Path) -> Iterator[Path]:
    """A root in which another process keeps swapping a folder and a file with links to the outside."""
    root = tmp_path / "root"
    (root / "a" / "d").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (root / "a" / "d" / "file").write_bytes(b"inside")
    (root / "a" / "f").write_bytes(b"inside")
    (tmp_path / "out" / "file").write_bytes(CANARY)
    (tmp_path / "out" / "only outside").touch()
    (root / "a" / "l").symlink_to("../../out")
    (root / "a" / "m").symlink_to("../../out/file")
    (root / "in").symlink_to("a")
    with subprocess.Popen(
        [sys.executable, "-c", ADVERSARY, str(root / "a")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as adversary:
        assert adversary.stdout is not None
        assert adversary.stderr is not None
        if adversary.stdout.readline() != b"ready\n":
            pytest.skip(f"no adversary here: {adversary.stderr.read().decode()[-200:]}")
        try:
            yield root
        finally:
            adversary.kill()


def check_then_open(root: Path, path: str) -> bytes:
    """The control: what most tools do."""
    whole = (root / path).resolve()
    if not whole.is_relative_to(root):
        raise ToolError(Fault.PATH_OUTSIDE, "")
    return (root / path).read_bytes()


def race(
    read: Callable[[], bytes], enough: Callable[[int, int, int], bool]
) -> tuple[int, int, int]:
    """Read until `enough(tries, inside, escapes)`.

    Return these: how often, and what was read by it.
    """
    tries = inside = escapes = 0
    while not enough(tries, inside, escapes):
        tries += 1
        try:
            got = read()
        except (ToolError, OSError) as error:
            if isinstance(error, ToolError):
                Fault(error.error_type)
            continue
        inside += got == b"inside"
        escapes += got == CANARY
    return tries, inside, escapes


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="RENAME_EXCHANGE is Linux")


@linux_only
def test_read_race_never_escapes_root(contested: Path) -> None:
    """Each goes on until the swaps were really met, however busy the machine is.

    The time-out is pytest's.
    """
    assert (
        race(lambda: check_then_open(contested, "a/d/file"), lambda _, __, escapes: escapes > 0)[2]
        == 1
    )
    with Root(contested, writable=False) as root:
        for path in ("a/d/file", "in/d/file", "a/f", "in/f"):
            end = time.monotonic() + 0.2
            assert (
                race(
                    lambda p=path: root.read(p),
                    lambda tries, inside, escapes, e=end: (
                        escapes > 0 or (0 < inside < tries and time.monotonic() > e)
                    ),
                )[2]
                == 0
            )


@linux_only
def test_listing_race_never_escapes_root(contested: Path) -> None:
    end = time.monotonic() + 0.4
    seen: set[str] = set()
    with Root(contested, writable=False) as root:
        while time.monotonic() < end or not {"a/d/file", "a/l/file", "in/d/file"} <= seen:
            seen.update(e.path for e in root.walk(max_entries=99))
            try:
                seen.update(e.path for e in root.list("in/d"))
            except ToolError as error:
                Fault(error.error_type)
    assert not [path for path in seen if "outside" in path]


@linux_only
def test_write_race_never_escapes_root(contested: Path, quick: None) -> None:
    outside = contested.parent / "out"
    end = time.monotonic() + 0.4
    done = 0
    with Root(contested, writable=True) as root:
        for n in itertools.count():
            if time.monotonic() > end and done > 5:
                break
            for verb in (
                lambda n=n: root.write(f"a/d/n{n % 9}/new", b"x"),
                lambda: root.write("a/d/file", b"inside"),
                lambda n=n: root.delete(f"a/d/n{n % 7}/new"),
            ):
                try:
                    verb()
                    done += 1
                except ToolError as error:
                    Fault(error.error_type)
    assert {p.name for p in outside.iterdir()} == {"file", "only outside"}
    assert (outside / "file").read_bytes() == CANARY


@linux_only
@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_sweep_of_a_million_races(contested: Path) -> None:
    tries = 1_000_000
    control = race(
        lambda: check_then_open(contested, "a/d/file"), lambda n, _, e: n >= tries or e >= 1000
    )
    with Root(contested, writable=False) as root:
        ours = race(lambda: root.read("a/d/file"), lambda n, *_: n >= tries)
    print(f"\ntries, inside, escapes {ours}; check-then-open {control}")
    assert ours[2] == 0
    assert control[2] >= 1000


def timed_us(call: Callable[[], object], times: int) -> float:
    """Return the least of five means of `call`, in µs."""

    def one() -> float:
        began = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - began) / times * 1e6

    return min(one() for _ in range(5))


@pytest.mark.sweep
def test_path_wall_cost_is_bounded(folder: Path) -> None:
    (folder / "src" / "deep" / "k").write_bytes(b"k" * 1024)

    name = str(folder / "src" / "deep" / "k")

    def bare() -> bytes:
        handle = os.open(name, os.O_RDONLY)
        try:
            return os.read(handle, 4096)
        finally:
            os.close(handle)

    def refused(path: str) -> None:
        try:
            root.read(path)
        except ToolError:
            return
        raise AssertionError(path)

    with Root(folder, writable=True) as root:
        plain, ours = timed_us(bare, 2000), timed_us(lambda: root.read("src/deep/k"), 2000)
        linked = timed_us(lambda: root.read("docs/deep/k"), 2000)
        up = timed_us(lambda: refused("../../etc/passwd"), 2000)
        out = timed_us(lambda: refused("out_file"), 2000)
        wrote = timed_us(lambda: root.write("src/deep/w", b"k" * 1024), 20)
    print(
        f"\nread 1 KiB {ours:.1f} µs, bare {plain:.1f}, ratio {ours / plain:.1f}, through a link "
        f"{linked:.1f}; refused ../ {up:.1f}, link out {out:.1f}; write with fsync {wrote:.0f}"
    )
    assert up < 50
