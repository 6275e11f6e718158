"""Check what placet needs on this machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from shlex import quote

from placet.agent.commits import leftover_worktrees
from placet.client.cases import NO_ROOM, disk_trouble
from placet.client.findings import Line, finding
from placet.client.journal import older_copy
from placet.client.site import Site, user
from placet.disk.files import put
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.git.repository import old_locks, open_repo, portal_problem
from placet.git.run import MINIMUM_GIT, git_found
from placet.host.clock import Clock
from placet.host.config import Config, portal_path, repositories
from placet.host.state import StateFolder, synced
from placet.journal.database import address_of, is_begun
from placet.journal.maintenance import examine
from placet.journal.reader import open_reader
from placet.note.paths import CONFIG_PATH, MARKER, QUEUES
from placet.note.paths import show as visible
from placet.sandbox.box import LANDLOCK_LACKS, NO_SANDBOX, Level
from placet.sandbox.probe import probe
from placet.wording import one_line, rfc3339

LOCK_IS_OLD_S = 600.0
"""Seconds after which a lock of git's is suspicious: git holds one for milliseconds.

Only to pack a large repository, or while a person writes a commit message, it holds one longer.
"""


def folder_lines(site: Site) -> Iterator[Line]:
    """Give a finding for each folder or note that is missing or cannot be written."""
    marker = site.vault / MARKER
    with Vault(site.vault) as folder:
        for problem in folder.scan(QUEUES).problems:
            yield finding(
                "folder",
                "bad",
                f"{problem.path}: {problem.why}",
                "Put it back where it was, or make it again: placet init. Until then nothing "
                "counts as taken away.",
            )
        for trouble in folder.try_writing():
            yield finding(
                "vault",
                "bad",
                f"{trouble.path} cannot be written: {os.strerror(trouble.errno)}",
                _helps_to_write(site.vault / trouble.path, trouble.errno),
            )
        if os.path.lexists(marker) and folder.marker() is None:
            yield finding(
                "id",
                "bad",
                f"{marker} holds no id",
                "Delete it, then: placet init. It gets its old id back.",
            )


def state_lines(folder: Path) -> Iterator[Line]:
    """Give a finding if the state folder is synced or cannot be written."""
    if warning := synced(folder):
        yield finding("state", "warn", warning.what, warning.hint)
    if not folder.is_dir():
        return
    try:
        put(folder / "doctor", bytes(NO_ROOM))
        (folder / "doctor").unlink()
    except OSError as error:
        yield finding(
            "state",
            "bad",
            f"{folder} cannot be written: {error.strerror}",
            _helps_to_write(folder, error.errno or errno.EIO),
        )


def look_at_git() -> Line:
    """Return the line on git: where it is, and whether it is new enough."""
    try:
        git, version, new_enough = git_found()
    except UserError as error:
        return finding("git", "bad", error.what, error.hint)
    found = f"{git}, version {version}"
    if new_enough:
        return finding("git", "good", found)
    return finding("git", "bad", found, f"Install git {'.'.join(map(str, MINIMUM_GIT))} or newer.")


def sandbox_line(config: Config) -> Line:
    """Return the finding on the sandbox: its level, and its known gaps."""
    wall = probe()
    gaps = ", ".join(f.attack for f in wall.findings if not f.blocked and f.level is wall.level)
    found = f"{wall.level.title} (level {int(wall.level)} of 3)"
    if gaps:
        found += f"; known gaps: {gaps}"
    if wall.level is Level.LANDLOCK and config.commands.sandbox == "landlock":
        return finding("sandbox", "warn", found, LANDLOCK_LACKS)
    if wall.level not in (Level.NONE, Level.LANDLOCK):
        return finding("sandbox", "good", found)
    return finding("sandbox", "bad", found, f"Commands do not run. {NO_SANDBOX}")


def user_lines() -> Iterator[Line]:
    """Give a finding if this is root."""
    if os.geteuid() == 0:
        yield finding(
            "user",
            "warn",
            "root: the kernel does not count root's processes, and files of its making are root's",
            "Run placet as yourself.",
        )


def portal_lines(site: Site, config: Config) -> Iterator[Line]:
    """Give a finding for each portal: whether a request can name it."""
    for name in config.portals:
        place = portal_path(site.vault, config, name)
        if (problem := portal_problem(site.vault, place)) is not None:
            wrong = one_line(str(problem))
            helps = (
                f"Fix that, or its path in {CONFIG_PATH}: "
                f"placet config set {quote(f'portals.{name}.path')} PATH"
            )
            yield finding(f"portal {name}", "bad", wrong, helps)
        else:
            yield finding(f"portal {name}", "good", str(place))


def lock_lines(site: Site, config: Config) -> Iterator[Line]:
    """Give a finding for each old lock of git's in the vault and the portals."""
    before = Clock().wall() - timedelta(seconds=LOCK_IS_OLD_S)
    for place in repositories(site.vault, config):
        # what is wrong with a portal has its own line, and a vault need be no repository
        with suppress(UserError):
            for lock, when in old_locks(open_repo(place), before).items():
                yield finding(
                    "lock",
                    "warn",
                    f"{visible(str(lock))} is there since {rfc3339(when)}",
                    "A git is at work there, or was killed. If none runs in that repository: "
                    f"rm {quote(str(lock))}",
                )


def daemon_lines(site: Site, config: Config) -> Iterator[Line]:
    """Give a finding on the daemon, and one if all work is paused."""
    if holder := site.daemon:
        yield finding("daemon", "good", f"running: {holder}")
    else:
        yield finding("daemon", "warn", "not running", "placet run")
    if config.daemon.paused:
        yield finding("work", "warn", "paused", "placet resume")


def journal_lines(state: StateFolder) -> Iterator[Line]:
    """Give findings on the journal and its disk, and on worktrees left over from a crash."""
    path = state.journal
    if not is_begun(path):
        yield finding("journal", "warn", "there is none yet", "placet run")
        return
    try:
        examined, trouble = examine(path, state.mark), disk_trouble(path)
        if examined.lost_row:
            yield finding("journal", "bad", *older_copy(examined))
            return
        damage = examined.damage
        found = damage or "\n".join(trouble) or address_of(path) or str(path)
        helps = _HELPS_WITH_DAMAGE if damage else f"See it: df -h {quote(str(path.parent))}"
        with open_reader(path) as reader:
            left = leftover_worktrees(state.worktrees, reader)
    except UserError as error:  # a disk that is full or read-only
        yield finding("journal", "bad", error.what, error.hint)
        return
    yield finding("journal", "bad" if damage or trouble else "good", found, helps)
    if left:
        yield finding(
            "worktrees",
            "warn",
            f"left over from a crash: {', '.join(left[:5])}",
            f"They are in {state.worktrees}. When the daemon starts, it keeps their work at a "
            "ref and removes them, or says why it cannot.",
        )


_HELPS_WITH_DAMAGE = (
    "See which row it is: placet journal verify. To begin with an empty "
    "journal, stop the daemon, move journal.db away (placet journal path) with its -wal and -shm, "
    "and start it again."
)


def _helps_to_write(place: Path, number: int) -> str:
    helps = _HELPS_TO_WRITE.get(number, _HELPS_WITH_A_DISK)
    return helps.format(place=quote(str(place)), user=quote(user()))


_HELPS_WITH_A_DISK = (
    "See what the system says of that disk: df {place}, dmesg. Keep a copy of what is on it."
)
_NOT_YOURS = (
    "You may not write there. See whose it is: ls -ld {place}. Then: chmod u+rwx {place}, "
    "or as root: chown {user} {place}"
)
_HELPS_TO_WRITE = {
    errno.ENOSPC: "Its disk is full. See which one that is: df -h {place}. Free some space there; "
    "what waits then resumes.",
    errno.EDQUOT: "Your share of its disk is used up. See it: quota -s. Free some space there; "
    "what waits then resumes.",
    errno.EROFS: "Its file system is mounted read-only. See which one that is: df {place}. Then "
    "mount it writable: sudo mount -o remount,rw MOUNTPOINT. If it becomes read-only by itself, "
    "the disk is failing: dmesg.",
    errno.EACCES: _NOT_YOURS,
    errno.EPERM: _NOT_YOURS,
}
