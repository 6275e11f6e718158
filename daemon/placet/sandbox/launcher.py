"""Restrict a command at levels 0 to 2, and kill everything that it started when it ends.

Run as `python -I -S launcher.py ITEM… -- PROGRAM ARG…`. It is single-threaded and uses only the
standard library, so that it may fork. Its child sets limits, enters Landlock and seccomp as asked,
and becomes the command. The launcher itself stays unrestricted and is the subreaper of all
descendants. It kills them, also those that daemonised, when the command ends, on SIGTERM, or when
the lifeline closes. A kill -9 of the daemon closes the lifeline too. Then the launcher exits.

With Landlock there is a process in between, in a domain that no signal leaves. The command's domain
is nested in it. Its `kill(-1)` kills everything that the command started at one moment. A search
for processes one by one may always be late.

Items:

- `status=FD`: JSON lines as bwrap writes them: `exit-code`, or `error` if the wall failed and
  nothing was started
- `lifeline=FD`
- `filter=FD`: the seccomp program
- `folder=PATH`
- `worktree=PATH`: for the search for abandoned boxes
- `limit=NAME:N`, `processes=N`, `session=1`
- for Landlock `landlock=1`, `network=1`, `read=PATH`, `write=PATH`, `device=PATH`
"""

# Importing pathlib would make the start a third slower.
# ruff: noqa: PTH116, PTH123, PTH208

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import struct
import sys
import time

_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 22, 24, 36, 38
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # on every architecture
_LANDLOCK_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
# linux/landlock.h. ABI 6 (Linux 6.12) is the first that keeps signals and abstract sockets in.
LANDLOCK_ABI = 6
_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_ACCESS = (1 << 16) - 1
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER = 1 << 13  # to rename or link from one folder into another
_BIND_TCP, _ALL_TCP, _ALL_SCOPES, _SIGNALS = 1, 3, 3, 2
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL_DEV
_RIGHTS = {
    "read": _EXECUTE | _READ | _READ_DIR,
    "write": _ALL_ACCESS & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
    "device": _READ | _WRITE | _IOCTL_DEV,
    "refer": _REFER,
}


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int, argument: object = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(option, ctypes.c_ulong(value), argument, None, None), f"prctl {option}")


def _enter(attributes: bytes, rules: list[tuple[str, str]]) -> None:
    """Enter a Landlock domain. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    create, size = _LANDLOCK_CREATE, ctypes.c_size_t(len(attributes))
    abi = libc.syscall(create, None, ctypes.c_size_t(0), ctypes.c_uint(_LANDLOCK_VERSION_FLAG))
    if abi < LANDLOCK_ABI:
        needed = f"Landlock ABI {LANDLOCK_ABI} (Linux 6.12) is needed, here is {max(abi, 0)}"
        raise OSError(errno.EOPNOTSUPP, needed)
    made = libc.syscall(create, attributes, size, ctypes.c_uint(0))
    ruleset = _check(made, "landlock_create_ruleset")
    for kind, path in rules:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = _RIGHTS[kind] if os.path.isdir(path) else _RIGHTS[kind] & _OF_A_FILE
        rule = ctypes.c_int(_RULE_PATH_BENEATH), struct.pack("=Qi", rights, folder)
        added = libc.syscall(_LANDLOCK_ADD, ctypes.c_int(ruleset), *rule, ctypes.c_uint(0))
        _check(added, f"landlock_add_rule {path}")
        os.close(folder)
    restricted = libc.syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
    _check(restricted, "landlock_restrict_self")
    os.close(ruleset)


def shut_in(read: list[str]) -> None:
    """Let this process read below these paths, write nothing, and open no port for others.

    Raises OSError, EOPNOTSUPP on a kernel that cannot.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _enter(struct.pack("=QQQ", _ALL_ACCESS, _BIND_TCP, _ALL_SCOPES), [("read", p) for p in read])


def _drop_capabilities() -> None:
    """Drop all capabilities of root's command. It may still read and write what root owns."""
    with open("/proc/sys/kernel/cap_last_cap") as last:
        for capability in range(int(last.read()) + 1):
            _prctl(_PR_CAPBSET_DROP, capability)


def _seccomp(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


def _become(items: list[tuple[str, str]], command: list[str]) -> None:
    """Apply the restrictions in the child and become the command. Raises OSError on failure."""
    one = dict(items)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them
        signal.signal(number, signal.SIG_DFL)
    if "session" in one:
        os.setsid()  # else `kill 0` would reach the launcher
    os.chdir(one["folder"])
    for name, value in (item.split(":") for key, item in items if key == "limit"):
        _limit(getattr(resource, f"RLIMIT_{name}"), int(value))
    if sys.platform == "linux":
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # killed first when memory runs out
        _limit(resource.RLIMIT_NPROC, _tasks_of_this_user() + int(one["processes"]))
        program = b""
        if "filter" in one:
            with open(int(one["filter"]), "rb") as source:
                program = source.read()
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if "landlock" in one:
            rules = [(key, value) for key, value in items if key in _RIGHTS]
            if os.geteuid() == 0:
                _drop_capabilities()
            rules.append(("read", f"/proc/{os.getpid()}"))
            closed = 0 if "network" in one else _ALL_TCP
            _enter(struct.pack("=QQQ", _ALL_ACCESS, closed, _ALL_SCOPES), rules)
        if program:
            _seccomp(program)
    try:
        os.execv(command[0], command)  # noqa: S606  this is what a launcher is for
    except OSError as error:  # the command's fault; report it as a shell does
        os.write(2, f"cannot execute {command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _tasks_of_this_user() -> int:
    """Return the number of tasks that RLIMIT_NPROC counts: threads per user, not per box."""
    mine, tasks = os.getuid(), 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == mine:
                tasks += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue  # ended meanwhile
    return tasks


def _parents() -> dict[int, int]:
    if sys.platform != "linux":
        import subprocess

        listing = subprocess.check_output(["/bin/ps", "-axo", "pid=,ppid="], text=True)
        return {int(pid): int(parent) for pid, parent in map(str.split, listing.splitlines())}
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                found[int(pid)] = int(stat.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue  # ended meanwhile
    return found


def _kill_all(group: int) -> None:
    """Kill and reap every descendant. Orphans are adopted by this subreaper and killed next."""
    pause = 0.0
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        parents, ours = _parents(), {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        for pid in ours - {os.getpid()}:
            _kill(pid)
        time.sleep(pause)
        pause = min(0.02, pause + 0.001)
    if sys.platform != "linux":  # no subreaper: at least the command's own group
        _kill(-group)


def _between(items: list[tuple[str, str]], command: list[str], tether: int) -> int:
    """Start the command, wait for it or for the tether, and kill all that it started.

    Runs in the process between launcher and command. Returns the command's exit code. Raises
    OSError, before anything starts, if Landlock does not keep signals in.
    """
    signal.set_wakeup_fd(-1)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    # a domain that does not handle renames between folders refuses them all
    _enter(struct.pack("=QQQ", _REFER, 0, _SIGNALS), [("refer", "/")])
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        pass
    else:  # `kill(-1)` would reach every process of the user
        raise OSError(1, "Landlock does not keep signals in")
    child = os.fork()
    if child == 0:
        os.close(tether)
        _try_to_become(items, command)
    poll = select.poll()
    poll.register(os.pidfd_open(child), select.POLLIN)
    poll.register(tether, select.POLLIN)  # and POLLHUP, which is always reported
    poll.poll()
    pid, status = os.waitpid(child, os.WNOHANG)
    _kill(-1)
    code = os.waitstatus_to_exitcode(status) if pid else -signal.SIGKILL
    return code if code >= 0 else 128 - code


def _try_to_become(items: list[tuple[str, str]], command: list[str]) -> None:
    try:
        _become(items, command)
    except (OSError, ValueError) as error:
        _say_failed(items, error)
    os._exit(127)


def _say_failed(items: list[tuple[str, str]], error: Exception) -> None:
    text = str(error).replace("\\", "/").replace('"', "'")
    os.write(int(dict(items)["status"]), f'{{"error": "{text}"}}\n'.encode())


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # already gone


def _wait(child: int, lifeline: int, wake: int) -> int | None:
    """Return the child's exit code (128 + signal), or None if the lifeline was closed first."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)  # and POLLHUP, which is always reported
    poll.register(wake, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 512)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if lifeline in ready or _ended:
            return None


_ended: list[int] = []


def main() -> int:
    """Start the command, wait for its end or the daemon's, kill all; return the exit code."""
    cut = sys.argv.index("--")
    items = [(key, value) for key, _, value in (item.partition("=") for item in sys.argv[1:cut])]
    one = dict(items)
    status, lifeline = int(one["status"]), int(one["lifeline"])
    for fd in (status, lifeline):
        os.set_inheritable(fd, False)  # noqa: FBT003  positional only
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)  # at a terminal it is the command's
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: _ended.append(number))
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    tether, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        if "landlock" not in one:
            _try_to_become(items, sys.argv[cut + 1 :])
        try:
            os._exit(_between(items, sys.argv[cut + 1 :], tether))
        except (OSError, ValueError) as error:
            _say_failed(items, error)
        os._exit(127)
    code = _wait(child, lifeline, woken)
    if code is not None:
        os.write(status, f'{{"exit-code": {code}}}\n'.encode())
    elif "landlock" in one:
        os.close(held)
        os.waitpid(child, 0)  # it kills all others first
    _kill_all(child)
    return 0 if code is None else code


if __name__ == "__main__":
    sys.exit(main())
