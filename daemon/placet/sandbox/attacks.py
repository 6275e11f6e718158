"""Attack the wall from inside a box. Runs as `python -I -S -c SOURCE TARGETS`.

Standard library only. TARGETS is a JSON object of what to attack (see `probe`). Prints a JSON
object: attack -> true if it was blocked. Each attack runs in a child process. It got through if it
returns without an exception.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_TARGETS: dict[str, Any] = {}
_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
_RLIMIT_NPROC = 6
_CLONE_NEWUSER, _PR_GET_NO_NEW_PRIVS, _IO_URING_SETUP = 0x10000000, 39, 425


def _libc(name: str, *args: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(getattr(libc, name)(*args))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def _expect(truth: object) -> None:
    if not truth:
        raise PermissionError


def _outside(name: str) -> Path:
    return Path(_TARGETS["outside"], name)


def read_secret() -> None:
    """Read a file outside the worktree."""
    _expect(_TARGETS["canary"] in _outside("secret").read_text())


def list_home() -> None:
    """See something in the user's home that is not a tool chain."""
    _expect(
        {entry.name for entry in Path(_TARGETS["home"]).iterdir()} - set(_TARGETS["home_tools"])
    )


def write_outside() -> None:
    """Create a file outside the worktree."""
    _outside("written").write_text("x")


def write_hook() -> None:
    """Plant a hook in the main repository."""
    Path(_TARGETS["repository"], "hooks", "post-commit").write_text("x")


def replace_git_file() -> None:
    """Point the worktree's `.git` elsewhere."""
    Path(_TARGETS["worktree"], ".git").unlink()
    Path(_TARGETS["worktree"], ".git").write_text("gitdir: /elsewhere")


def inherit_environment() -> None:
    """Find anything of the daemon's environment in its own."""
    ours = {
        "PATH",
        "HOME",
        "LANG",
        "TERM",
        "TMPDIR",
        "PWD",
        "GIT_CONFIG_NOSYSTEM",
        "__CF_USER_TEXT_ENCODING",
    }
    _expect(set(os.environ) - ours)


def read_environ() -> None:
    """Read the daemon's environment from /proc."""
    _expect(_TARGETS["canary"].encode() in Path(f"/proc/{_TARGETS['victim']}/environ").read_bytes())


def read_memory() -> None:
    """Read the daemon's memory from /proc."""
    victim = Path(f"/proc/{_TARGETS['victim']}")
    stack = next(
        line for line in (victim / "maps").read_text().splitlines() if line.endswith("[stack]")
    )
    start, end = (int(n, 16) for n in stack.split()[0].split("-"))
    with (victim / "mem").open("rb", buffering=0) as memory:
        memory.seek(start)
        _expect(_TARGETS["canary"].encode() in memory.read(end - start))


def read_command_line() -> None:
    """See the daemon and its arguments among the processes."""
    _expect(b"sleep" in Path(f"/proc/{_TARGETS['victim']}/cmdline").read_bytes())


def trace() -> None:
    """Attach to the daemon as a debugger."""
    _libc("ptrace", _PTRACE_ATTACH, _TARGETS["victim"], None, None)
    os.waitpid(_TARGETS["victim"], 0x40000000)  # __WALL
    _libc("ptrace", _PTRACE_DETACH, _TARGETS["victim"], None, None)


def send_signal() -> None:
    """Kill the daemon."""
    _expect(_TARGETS["victim"] > 2)  # those are the box's own in a namespace
    os.kill(_TARGETS["victim"], signal.SIGKILL)


def connect_tcp() -> None:
    """Connect to a service on this machine."""
    socket.create_connection(("127.0.0.1", _TARGETS["tcp"]), 1).close()


def send_udp() -> None:
    """Send a datagram (a DNS query is one)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", _TARGETS["udp"]))
        for _ in range(2):  # the second one fails if nobody received the first
            sender.send(b"x")
            time.sleep(0.01)


def _ask_for(name: str, port: int) -> None:
    """Connect to a host as a command with a list of hosts does; directly where there is none."""
    proxy = os.environ.get("https_proxy", "").rpartition(":")[2]
    with socket.create_connection(("127.0.0.1", int(proxy)) if proxy else (name, port), 3) as way:
        if proxy:
            way.sendall(f"CONNECT {name}:{port} HTTP/1.1\r\n\r\n".encode())
            _expect(way.recv(64).startswith(b"HTTP/1.1 200 "))


def reach_unnamed() -> None:
    """Reach a service that the plan's list of hosts does not name."""
    _ask_for("127.0.0.1", _TARGETS["tcp"])


def reach_other_name() -> None:
    """Reach a service of the plan's list of hosts by another name."""
    _ask_for("localhost", _TARGETS["named"])


def reach_named() -> None:
    """Reach the service that the list names. This is the control: it has to get through."""
    _ask_for("127.0.0.1", _TARGETS["named"])


def connect_unix() -> None:
    """Connect to a socket in the file system (docker, D-Bus, ssh-agent)."""
    with socket.socket(socket.AF_UNIX) as sender:
        sender.connect(str(_outside("s")))


def connect_shown() -> None:
    """Connect to a socket in a folder that the box shows: git's, dependencies, tools, caches."""
    with socket.socket(socket.AF_UNIX) as sender:
        for place in _TARGETS["sockets"]:
            with suppress(OSError):
                sender.connect(place)
                return
    raise PermissionError


def connect_abstract() -> None:
    """Connect to an abstract socket."""
    with socket.socket(socket.AF_UNIX) as sender:
        sender.connect("\0" + _TARGETS["abstract"])


def limit_others() -> None:
    """Lower a limit of the daemon's, which ends all its work."""
    _libc("prlimit", _TARGETS["victim"], _RLIMIT_NPROC, (ctypes.c_ulong * 2)(1, 1), None)


def read_queue() -> None:
    """Take a message from another program's queue (System V)."""
    _libc("msgrcv", _TARGETS["queue"], ctypes.create_string_buffer(64), 16, 0, 0o4000)


def new_user_namespace() -> None:
    """Become root in a new user namespace, which exposes more of the kernel."""
    _libc("unshare", _CLONE_NEWUSER)


def chmod_outside() -> None:
    """Change the mode of a file outside the worktree."""
    _outside("secret").chmod(0o666)


def stat_outside() -> None:
    """Learn that a file outside exists, how large it is and when it changed."""
    _outside("secret").stat()


def link_outside() -> None:
    """Link a file from outside into the worktree, to write through the link."""
    os.link(_outside("secret"), Path(_TARGETS["worktree"], "link"))


def read_shared_tmp() -> None:
    """Read what others left in the common temporary folder."""
    Path(_TARGETS["tmp"]).read_text()


def read_shared_memory() -> None:
    """Read what others left in /dev/shm."""
    Path(_TARGETS["shm"]).read_text()


def allocate() -> None:
    """Allocate more memory than the limit."""
    mmap.mmap(-1, _TARGETS["memory_bytes"] * 2, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def fork_many() -> None:
    """Start more processes than the limit, and keep them for a while."""
    children = []
    try:
        for _ in range(4 * _TARGETS["processes"]):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
        time.sleep(_TARGETS["hold_s"])
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def write_large_file() -> None:
    """Write one file larger than the limit."""
    with Path(_TARGETS["worktree"], "large").open("wb", buffering=0) as file:
        _expect(file.write(bytes(_TARGETS["file_bytes"] + 1)) > _TARGETS["file_bytes"])


def fill_shared_memory() -> None:
    """Write more into /dev/shm than it may hold, in small files."""
    for number in range(4):
        file = Path(f"/dev/shm/{_TARGETS['canary']}-{number}")  # noqa: S108  the box's own
        file.write_bytes(bytes(_TARGETS["shm_bytes"] // 2))


def reserve_disk() -> None:
    """Reserve disk space without writing, which takes it all at once."""
    with Path("reserved").open("wb") as file:
        _libc("fallocate", file.fileno(), 0, ctypes.c_long(0), ctypes.c_long(4096))


def change_kernel() -> None:
    """Change a setting of the kernel (root's daemon only: the files are root's)."""
    setting = Path("/proc/sys/vm/swappiness")
    setting.write_bytes(setting.read_bytes())


def io_uring() -> None:
    """Set up io_uring, whose operations pass by a system call filter."""
    os.close(_libc("syscall", _IO_URING_SETUP, 1, ctypes.create_string_buffer(120)))


def keep_privileges() -> None:
    """Be able to gain rights by a setuid program."""
    _expect(_libc("prctl", _PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0)


# The order matters once: after the signal the stand-in for the daemon is dead.
ATTACKS: tuple[Callable[[], None], ...] = (
    read_secret, list_home, write_outside, write_hook, replace_git_file, inherit_environment,
    read_environ, read_memory, read_command_line, trace, send_signal, connect_tcp, send_udp,
    reach_unnamed, reach_other_name, connect_unix, connect_shown, connect_abstract, limit_others,
    read_queue, new_user_namespace,
    chmod_outside, stat_outside, link_outside, read_shared_tmp, read_shared_memory, allocate,
    fork_many, write_large_file, fill_shared_memory, reserve_disk, change_kernel, io_uring,
    keep_privileges,
)  # fmt: skip
LINUX_ONLY = frozenset((
    read_environ, read_memory, read_command_line, trace, connect_abstract, limit_others, read_queue,
    new_user_namespace,
    read_shared_memory, reserve_disk, change_kernel, io_uring, keep_privileges,
))  # fmt: skip


def blocked(attack: Callable[[], None]) -> bool:
    """Try an attack in a child: `blocked` means an exception, a signal or 5 s without a result."""
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        try:
            attack()
        except Exception:  # any exception means that it was blocked
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


if __name__ == "__main__":
    _TARGETS.update(json.loads(sys.argv[1]))
    tried = [attack for attack in (*ATTACKS, reach_named) if attack.__name__ in _TARGETS["attacks"]]
    print(json.dumps({attack.__name__: blocked(attack) for attack in tried}))  # noqa: T201  its output
