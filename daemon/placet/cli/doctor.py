"""`placet doctor`: everything that placet needs, what is missing, and what helps."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from shlex import quote

import click

from placet.cli.gestures import user
from placet.cli.leftovers import at_work, remove_leftovers
from placet.cli.look import NO_ROOM, disk_trouble
from placet.cli.portals import problem_of
from placet.cli.site import Site, json_option, site_option
from placet.cli.terminal import colour, local_times, out, say
from placet.core.errors import UserError
from placet.core.text.names import CONFIG_PATH, MARKER, QUEUES
from placet.core.text.names import show as visible
from placet.core.turn.talk import ModelError, ModelErrorKind
from placet.core.wording import rfc3339
from placet.files.vault import Vault
from placet.host.clock import Clock
from placet.host.config import Config, portal_path, repositories
from placet.host.state import StateFolder, write_private
from placet.journal.maintenance import examine
from placet.loop.means import model_answers
from placet.repo.repository import old_locks, open_repo
from placet.repo.runner import MINIMUM_GIT, git_found
from placet.sandbox.probe import probe
from placet.sandbox.values import Level


@click.command("doctor")
@click.option(
    "--fix", is_flag=True, help="Remove what a crash left behind, after keeping its work at a ref."
)
@site_option
@json_option
def doctor_command(site: Site, as_json: bool, fix: bool) -> None:
    """Look at everything that placet needs, and say what is missing and what helps."""
    try:
        for line in remove_leftovers(site) if fix else ():
            say(line)
    except UserError as error:  # what is wrong is looked at all the same
        say(f"nothing was removed: {error.what}")
    found = doctor(site)
    out(doctor_text(found), found, as_json=as_json)
    if any(line["state"] == "bad" for line in found):
        sys.exit(1)


LOCK_IS_OLD_S = 600.0
"""Seconds after which a lock of git's is suspicious.

A git holds one for milliseconds; longer to pack a large repository, or while a person writes a
commit message.
"""


Line = dict[str, str]


def doctor(site: Site) -> list[Line]:
    """Return a line for each need: `what`, `state` (good, warn, bad), `found`, and what `helps`."""
    try:
        held = site.in_force()
    except UserError as error:
        config = Config()  # so that the rest can be looked at
        said = [_line("configuration", "bad", error.what, error.hint)]
    else:
        config = held.config
        said = [_line("configuration", "good", "every setting can be used")]
        if held.refused:
            said.append(_line("settings", "warn", held.problem))
    return [
        _line("vault", "good", str(site.vault)),
        *said,
        *_folders(site),
        *_state_folder(site.state.folder),
        look_at_git(),
        _sandbox(),
        *_user(),
        *([_model(site, config)] if said[0]["state"] == "good" else []),
        *_portals(site, config),
        *_locks(site, config),
        *_daemon(site, config),
        *_journal(site.state),
    ]


def _line(what: str, state: str, found: str, helps: str = "") -> Line:
    return {"what": what, "state": state, "found": found, "helps": helps}


def _folders(site: Site) -> Iterator[Line]:
    marker = site.vault / MARKER
    with Vault(site.vault) as folder:
        for problem in folder.scan(QUEUES).problems:
            yield _line(
                "folder",
                "bad",
                f"{problem.path}: {problem.why}",
                "Put it back where it was, or make it again: placet init. Until then nothing "
                "counts as taken away.",
            )
        for trouble in folder.try_writing():
            yield _line(
                "vault",
                "bad",
                f"{trouble.path} cannot be written: {os.strerror(trouble.errno)}",
                _helps_to_write(site.vault / trouble.path, trouble.errno),
            )
        if os.path.lexists(marker) and folder.marker() is None:
            yield _line(
                "id",
                "bad",
                f"{marker} holds no id",
                "Delete it, then: placet init. It gets its old id back.",
            )


def _state_folder(folder: Path) -> Iterator[Line]:
    if not folder.is_dir():
        return
    try:
        write_private(folder / "doctor", bytes(NO_ROOM))
        (folder / "doctor").unlink()
    except OSError as error:
        yield _line(
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
        return _line("git", "bad", error.what, error.hint)
    found = f"{git}, version {version}"
    if new_enough:
        return _line("git", "good", found)
    return _line("git", "bad", found, f"Install git {'.'.join(map(str, MINIMUM_GIT))} or newer.")


def _sandbox() -> Line:
    wall = probe()
    gaps = ", ".join(f.attack for f in wall.findings if not f.blocked and f.level is wall.level)
    found = f"{wall.level.title} (level {int(wall.level)} of 3)"
    if gaps:
        found += f"; known gaps: {gaps}"
    if wall.level is not Level.NONE:
        return _line("sandbox", "good", found)
    return _line(
        "sandbox",
        "bad",
        found,
        'Install bubblewrap and allow user namespaces, or write sandbox = "none" under [commands].',
    )


def _user() -> Iterator[Line]:
    if os.geteuid() == 0:
        yield _line(
            "user",
            "warn",
            "root: the kernel does not count root's processes, and files of its making are root's",
            "Run placet as yourself.",
        )


def _model(site: Site, config: Config) -> Line:
    model = config.model
    if model.provider == "scripted":
        return _line(
            "model", "warn", "scripted: replies are replayed from a file, no model is asked"
        )
    name = f"{model.name} ({model.provider})"
    try:
        if model_answers(config, site.vault, site.env):
            return _line("model", "good", f"{name}: its server takes the key and knows the model")
    except UserError as error:
        return _line("model", "bad", error.what, error.hint)
    except ModelError as error:
        if error.kind is not ModelErrorKind.TRANSIENT:
            return _line("model", "bad", str(error))
        return _line(
            "model",
            "warn",
            f"not checked: {error}",
            "Nothing that it needs is missing here. Try again once its server can be reached.",
        )
    return _line(
        "model",
        "warn",
        f"{name}: its server answers, and does not say whether key and name are right",
    )


def _portals(site: Site, config: Config) -> Iterator[Line]:
    for name, portal in config.portals.items():
        place = portal_path(site.vault, config, name)
        if wrong := problem_of(site.vault, place):
            helps = f"Fix that, or its path in {CONFIG_PATH}: {portal.path}"
            yield _line(f"portal {name}", "bad", wrong, helps)
        else:
            yield _line(f"portal {name}", "good", str(place))


def _locks(site: Site, config: Config) -> Iterator[Line]:
    before = Clock().wall() - timedelta(seconds=LOCK_IS_OLD_S)
    for place in repositories(site.vault, config):
        # what is wrong with a portal has its own line, and a vault need be no repository
        with suppress(UserError):
            for lock, when in old_locks(open_repo(place), before).items():
                yield _line(
                    "lock",
                    "warn",
                    f"{visible(str(lock))} is there since {rfc3339(when)}",
                    "A git is at work there, or was killed. If none runs in that repository: "
                    f"rm {quote(str(lock))}",
                )


def _daemon(site: Site, config: Config) -> Iterator[Line]:
    if holder := site.daemon:
        yield _line("daemon", "good", f"running: {holder}")
    else:
        yield _line("daemon", "warn", "not running", "placet run")
    if config.daemon.paused:
        yield _line("work", "warn", "paused", "placet resume")


def _journal(state: StateFolder) -> Iterator[Line]:
    path = state.journal
    if not path.exists():
        yield _line("journal", "warn", "there is none yet", "placet run")
        return
    try:
        damage = examine(path, state.mark)[2] or "\n".join(disk_trouble(path))
        yield _line("journal", "bad" if damage else "good", damage or str(path))
        live = at_work(path)
    except UserError as error:  # a disk that is full or read-only
        yield _line("journal", "bad", error.what, error.hint)
        return
    trees = state.worktrees.iterdir() if state.worktrees.is_dir() else ()
    left = sorted(p.name for p in trees if p.is_dir() and not any(t in p.name for t in live))
    if left:
        yield _line(
            "worktrees",
            "warn",
            f"left over from a crash: {', '.join(left[:5])}",
            f"They are in {state.worktrees}. Remove them, with their work kept at a ref: "
            "placet doctor --fix",
        )


def _helps_to_write(place: Path, number: int) -> str:
    """Return the next command for a folder that cannot be written, by the system's errno."""
    name = quote(str(place))
    match number:
        case errno.ENOSPC:
            return (
                f"Its disk is full. See which one that is: df -h {name}. Free some space "
                "there; what waits goes on by itself."
            )
        case errno.EDQUOT:
            return (
                "Your share of its disk is used up. See it: quota -s. Free some space "
                "there; what waits goes on by itself."
            )
        case errno.EROFS:
            return (
                f"Its file system is mounted read-only. See which one that is: df {name}. Then "
                "mount it writable: "
                "sudo mount -o remount,rw MOUNTPOINT. If it becomes read-only by itself, the "
                "disk is failing: dmesg."
            )
        case errno.EACCES | errno.EPERM:
            return (
                f"You may not write there. See whose it is: ls -ld {name}. Then: chmod u+rwx "
                f"{name}, or as root: "
                f"chown {quote(user())} {name}"
            )
        case _:
            return (
                f"See what the system says of that disk: df {name}, dmesg. Keep a copy of "
                "what is on it."
            )


def doctor_text(found: Sequence[Mapping[str, str]]) -> str:
    """Return `placet doctor` for people."""
    marks = {
        "good": colour("ok  ", "green"),
        "warn": colour("note", "yellow"),
        "bad": colour("BAD ", "red", bold=True),
    }
    lines = []
    for line in found:
        lines += local_times(
            [
                f"{marks[line['state']]}  {line['what']:<14} "
                f"{visible(' '.join(line['found'].split()))}"
            ]
        )
        if line["helps"]:
            lines.append(f"{'':<21}{visible(line['helps'])}")
    return "\n".join(lines)
