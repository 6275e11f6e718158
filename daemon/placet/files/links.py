"""Symbolic links below a root: followed by handle, one name at a time, and never out of it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from placet.files.denied import Denied
from placet.files.handles import PASSAGE, enter, target
from placet.files.paths import MAX_DEPTH, Fault, fault_at

# Maximum of links followed on one path: the kernel's own limit (path_resolution(7)).
MAX_LINKS = 40


def follow(root: int, denied: Denied, path: str, parts: Sequence[bytes]) -> tuple[int, bytes]:
    """Follow links below the folder `root`; return where `parts` leads: a folder, and a name in it.

    The name was no link when it was looked at; the caller must use it without following. Raises
    OSError, ToolError.
    """
    folders: list[int] = []
    ahead = list(reversed(parts))
    links = 0
    try:
        while ahead:
            here = folders[-1] if folders else root
            name = ahead.pop()
            if name == b"..":
                if not folders:
                    raise fault_at(
                        Fault.PATH_OUTSIDE, path, "leads out of the root folder by a link"
                    )
                os.close(folders.pop())
            elif (link := target(here, name)) is not None:
                links += 1
                ahead += _link_parts(denied, path, link, links)
                if len(folders) + len(ahead) > MAX_DEPTH:
                    raise fault_at(
                        Fault.TOO_DEEP, path, f"has more than {MAX_DEPTH} parts, links resolved"
                    )
            elif ahead:
                folders.append(enter(here, name, PASSAGE))
            else:
                return (folders.pop() if folders else os.dup(here)), name
        return (folders.pop() if folders else os.dup(root)), b"."
    finally:
        for handle in folders:
            os.close(handle)


def _link_parts(denied: Denied, path: str, link: bytes, links: int) -> Sequence[bytes]:
    """Return the components of a link's target, the last one first. Raises ToolError."""
    if links > MAX_LINKS:
        raise fault_at(Fault.BAD_PATH, path, f"leads through more than {MAX_LINKS} symbolic links")
    if link.startswith(b"/"):
        raise fault_at(
            Fault.PATH_OUTSIDE,
            path,
            "leads to an absolute path by a link; only relative links work",
        )
    if denied.hides(os.fsdecode(link)):
        raise fault_at(Fault.PATH_DENIED, path, "leads to something protected by a link")
    return [part for part in reversed(link.split(b"/")) if part not in (b"", b".")]
