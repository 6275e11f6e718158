"""Make the system call filter as a classic BPF program, without a library, for x86-64 and arm64.

It forbids what no build or test needs and what the wall's other parts leave open. That is sockets
that lead out, new namespaces, mounts, tracing, io_uring (which bypasses the filter), kernel keys,
BPF, modules, and typing into the terminal. A forbidden call fails with EPERM. clone3 and io_uring
fail with ENOSYS, so that libc and libuv use their older ways. fallocate fails with EOPNOTSUPP, so
that programs write instead: it reserves a whole disk faster than placet polls. Numbers: Linux
`asm/unistd_64.h` and `asm-generic/unistd.h`; layout: `linux/seccomp.h`, `linux/filter.h`.
"""

from __future__ import annotations

import errno
import struct
from enum import Enum

# name: (x86-64, arm64); None if the call does not exist
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
}
_ABSENT: dict[str, tuple[int, int]] = {
    "clone3": (435, 435),  # its flags are in memory, which a filter cannot read
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_FALLOCATE = (285, 47)
# Without an IPC namespace these reach the user's shared memory and queues.
_SHARED_IPC: dict[str, tuple[int, int]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184),
    "mq_getsetattr": (245, 185),
}
_PRLIMIT = (302, 261)
_SOCKET, _SOCKETPAIR, _CLONE, _IOCTL = (41, 198), (53, 199), (56, 220), (16, 29)

_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_*

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGS = 0, 4, 16

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET
_TYPE_INTO_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
# FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE: fallocate by other names
_RESERVE = (0x40305828, 0x4030582A, 0x40305839)
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_STREAM, _DGRAM, _SEQPACKET, _TYPE_MASK = 1, 2, 5, 0xF
_X32_BIT = 0x40000000

MACHINES = frozenset(_ARCHES)
"""Supported machines (`os.uname().machine`)."""


class Sockets(Enum):
    """Which sockets a command may open, by the network namespace that it has.

    CLOSED: none, in the machine's namespace. SHARED: the machine's network, by internet sockets
    only, because unix sockets lead to its services. OWN: its own namespace, where internet, unix
    and datagram sockets reach nobody outside.
    """

    CLOSED = "closed"
    SHARED = "shared"
    OWN = "own"


_FAMILIES = {
    Sockets.CLOSED: (),
    Sockets.SHARED: (_AF_INET, _AF_INET6),
    Sockets.OWN: (_AF_UNIX, _AF_INET, _AF_INET6),
}


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _op(_RETURN, _ERRNO | number)


def _argument(index: int) -> bytes:
    """Load the low half of an argument; each one checked here is an int or fits the low half."""
    return _op(_LOAD, _OFFSET_ARGS + 8 * index)


def _when(number: int, body: bytes) -> bytes:
    """Return `body` for this call only.

    Every path through `body` returns, so the number stays loaded after it.
    """
    return _op(_EQUAL, number, 0, len(body) // 8) + body


def program(machine: str, sockets: Sockets, *, shared: bool) -> bytes:
    """Return the filter as an array of `struct sock_filter`.

    `machine` as in `os.uname().machine`, one of MACHINES (else KeyError). `shared` says that the
    box has no namespaces of its own for IPC and processes. Then System V and POSIX queues are
    forbidden too, and limits of other processes.
    """
    column, arch = _ARCHES[machine]
    out = [_op(_LOAD, _OFFSET_ARCH), _op(_EQUAL, arch, 1, 0), _refuse(errno.EPERM)]
    out.append(_op(_LOAD, _OFFSET_NUMBER))
    if machine == "x86_64":
        out += [_op(_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    refused = [*_CALLS.values(), *(_SHARED_IPC.values() if shared else ())]
    out += [_when(n, _refuse(errno.EPERM)) for pair in refused if (n := pair[column]) is not None]
    out += [_when(pair[column], _refuse(errno.ENOSYS)) for pair in _ABSENT.values()]
    out.append(_when(_FALLOCATE[column], _refuse(errno.EOPNOTSUPP)))
    allow = _op(_RETURN, _ALLOW)
    if shared:
        own_process = _op(_EQUAL, 0, 1, 0) + _refuse(errno.EPERM) + allow
        out.append(_when(_PRLIMIT[column], _argument(0) + own_process))
    flags = _op(_ANY_BIT, _NEW_NAMESPACES, 0, 1) + _refuse(errno.EPERM)
    out.append(_when(_CLONE[column], _argument(0) + flags + allow))
    typing = b"".join(
        _op(_EQUAL, request, 0, 1) + _refuse(errno.EPERM) for request in _TYPE_INTO_TERMINAL
    )
    typing += b"".join(
        _op(_EQUAL, request, 0, 1) + _refuse(errno.EOPNOTSUPP) for request in _RESERVE
    )
    out.append(_when(_IOCTL[column], _argument(1) + typing + allow))
    families = b"".join(_op(_EQUAL, family, 0, 1) + allow for family in _FAMILIES[sockets])
    # getaddrinfo asks by netlink which families work. Other netlink protocols list the machine's
    # own sockets.
    if families:
        families += (
            _op(_EQUAL, _AF_NETLINK, 1, 0)
            + _refuse(errno.EPERM)
            + _argument(2)
            + _op(_EQUAL, _NETLINK_ROUTE, 0, 1)
            + allow
        )
    out.append(_when(_SOCKET[column], _argument(0) + families + _refuse(errno.EPERM)))
    # A pair is only a pipe, which node and asyncio rely on. A datagram pair can still send to every
    # unix socket that is there.
    pairs = (_STREAM, _DGRAM, _SEQPACKET) if sockets is Sockets.OWN else (_STREAM, _SEQPACKET)
    kinds = b"".join(_op(_EQUAL, kind, 0, 1) + allow for kind in pairs)
    pair = _argument(0) + _op(_EQUAL, _AF_UNIX, 1, 0) + _refuse(errno.EPERM)
    pair += _argument(1) + _op(_AND, _TYPE_MASK) + kinds + _refuse(errno.EPERM)
    out += [_when(_SOCKETPAIR[column], pair), allow]
    return b"".join(out)
