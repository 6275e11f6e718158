"""Network file systems, by Linux's table of mounts.

Linux tells a client nothing about changes made elsewhere; locks may not hold there, and SQLite's
write-ahead log needs shared memory, which crosses no network.
"""

from __future__ import annotations

import os
from pathlib import Path

_REMOTE = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "glusterfs", "lustre"),
        *(
            "ncpfs",
            "nfs",
            "nfs4",
            "prl_fs",
            "smb2",
            "smb3",
            "smbfs",
            "vboxsf",
            "virtiofs",
            "vmhgfs",
        ),
    )
)


def remote_kind(path: Path) -> str:
    """Return the kind of the network file system that `path` is on; every fuse.* counts as one.

    "" for a local one, and always on other systems than Linux.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes()
        device = path.stat().st_dev
    except OSError:
        return ""
    return kind_in(mounts, f"{os.major(device)}:{os.minor(device)}")


def kind_in(mounts: bytes, device: str) -> str:
    """Return the same of the file system with this device number ("8:1"), out of mountinfo."""
    for line in mounts.split(b"\n"):  # proc(5): id, parent, major:minor, …, " - ", type, …
        before, _, after = line.partition(b" - ")
        if device.encode() in before.split()[2:3]:
            kind = after.split()[0].decode("ascii", "replace")
            if kind in _REMOTE or kind.startswith("fuse"):
                return kind
    return ""
