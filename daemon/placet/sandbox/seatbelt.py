"""Write a profile for macOS' sandbox-exec (level 1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from placet.disk.real_path import real_path
from placet.sandbox.box import Box
from placet.sandbox.visible_paths import ETC, SYSTEM, VisiblePaths

_MAC_SYSTEM = (
    "/System", "/Library/Developer", "/Applications/Xcode.app", "/opt/homebrew",
    "/private/var/db/timezone",
)  # fmt: skip


def profile(box: Box, view: VisiblePaths, scratch: Path) -> str:
    """Return the profile: it denies everything, then allows what the box may do.

    The last matching rule wins, so `.git` and the read-only paths come after the worktree.
    """
    etc = [Path("/private/etc", name) for name in ETC]
    shown = (*view.tools, *view.caches.values(), *box.read_only)
    readable = [*SYSTEM, *map(Path, _MAC_SYSTEM), *etc, *shown]
    frozen = [box.worktree / ".git", *box.read_only]
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        '(allow file-read-metadata (literal "/") (subpath "/private/var/select"))',
        '(allow file-read* file-write-data (literal "/dev/null") (literal "/dev/zero") '
        '(literal "/dev/tty"))',
        '(allow file-read* (literal "/") (literal "/dev/random") (literal "/dev/urandom"))',
        f"(allow file-read* {_paths(readable)})",
        f"(allow file-read-metadata {_ancestors([*readable, box.worktree, scratch])})",
        f"(allow file-read* file-write* {_paths([box.worktree, scratch])})",
        f"(deny file-write* {_paths(frozen)})",
    ]
    if box.network:
        lines += [
            '(allow network* (local ip "*:*") (remote ip "*:*"))',
            "(allow system-socket)",
            '(allow file-read* (literal "/private/etc/resolv.conf"))',
            '(allow mach-lookup (global-name "com.apple.dnssd.service"))',
        ]
    return "\n".join(lines)


def _paths(paths: Sequence[Path]) -> str:
    return " ".join(
        f"(subpath {_quoted(p)})" for p in dict.fromkeys([*paths, *(real_path(p) for p in paths)])
    )


def _ancestors(paths: Sequence[Path]) -> str:
    above = dict.fromkeys(a for p in paths for q in (p, real_path(p)) for a in q.parents)
    return " ".join(f"(literal {_quoted(p)})" for p in above)


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
