"""Check everything that placet needs, and say what helps."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from shlex import quote

from placet.agent.commits import leftover_worktrees
from placet.chat.messages import ModelError, ModelErrorKind
from placet.chat.prices import is_free
from placet.chat.tiny_call import TINY, TINY_BY_TEXT, problems_of
from placet.client.cases import NO_ROOM, disk_trouble
from placet.client.findings import Finding, Verdict, finding
from placet.client.journal import older_copy
from placet.client.model_setup import unkept_limit
from placet.client.service import key_file
from placet.client.signing import accepted_signers
from placet.client.signing import to_accept as signers_to_accept
from placet.client.site import Site, user
from placet.disk.files import put
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.git.repository import old_locks, open_repo, portal_problem
from placet.git.run import MINIMUM_GIT, git_found
from placet.host.clock import Clock
from placet.host.config import Config, portal_path, repositories
from placet.host.plugins import CHECKS, loaded
from placet.host.signers import fingerprint_of_file, keygen_problem
from placet.host.state import StateFolder, expand_home, synced
from placet.journal.database import address_of, is_begun
from placet.journal.maintenance import examine
from placet.journal.reader import open_reader
from placet.loop.build import model_answers, model_opener, models_offered
from placet.models.server import Offered, is_here, is_without_key, speaks_messages
from placet.note.paths import CONFIG_PATH, MARKER, QUEUES
from placet.note.paths import show as visible
from placet.sandbox.box import LANDLOCK_LACKS, NO_SANDBOX, Level
from placet.sandbox.probe import probe
from placet.wording import one_line, rfc3339

LOCK_IS_OLD_S = 600.0
"""Seconds after which a lock of git's is suspicious: git holds one for milliseconds.

Only to pack a large repository, or while a person writes a commit message, it holds one longer.
"""


def doctor(site: Site, *, tries: bool = False) -> list[Finding]:
    """Return a line for each need: `what`, `state` (good, warn, bad), `found`, and what `helps`.

    `tries`: also make one tiny call of the model.
    """
    try:
        held = site.in_force()
    except UserError as error:
        config = Config()  # so that the rest can be looked at
        config_findings = [finding("configuration", "bad", error.what, error.hint)]
    else:
        config = held.config
        config_findings = [finding("configuration", "good", "every setting can be used")]
        if held.refused:
            config_findings.append(
                finding("settings", "warn", held.problem, "placet config accept")
            )
    return [
        finding("vault", "good", str(site.vault)),
        *config_findings,
        *_folder_lines(site),
        *_state_lines(site.state.folder),
        look_at_git(),
        *_sandbox_lines(config),
        *_user_lines(),
        *([_model_line(site, config)] if config_findings[0].state == "good" else []),
        *(_tiny_lines(site, config) if tries and not is_free(config.model.provider) else ()),
        *_limit_lines(config),
        *(_signing_lines(site, config) if config.approval.is_on else ()),
        *_key_lines(site),
        *_portal_lines(site, config),
        *_lock_lines(site, config),
        *_daemon_lines(site, config),
        *(line for one in entry_points(group=CHECKS) for line in loaded(one)(site, config)),
        *_journal_lines(site.state),
    ]


def _folder_lines(site: Site) -> Iterator[Finding]:
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


def _state_lines(folder: Path) -> Iterator[Finding]:
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


def _signing_lines(site: Site, config: Config) -> Iterator[Finding]:
    """Give a finding on who may sign approvals, and on what cannot be signed here."""
    if why := keygen_problem():
        yield finding("signing", "bad", why, "Install OpenSSH 8.9 or newer.")
    try:
        signers, change = accepted_signers(site), signers_to_accept(site)
    except UserError as error:
        yield finding("signers", "bad", error.what, error.hint)
        return
    if change.added or change.removed:
        found = "System/allowed_signers differs from what was accepted on this machine"
        yield finding("signers", "warn", found, "placet signer accept")
    named = config.approval.key
    if named and (mine := fingerprint_of_file(expand_home(named))) not in {
        one.fingerprint for one in signers
    }:
        found = "is not among the signers" if mine else "is not the file of an SSH key"
        helps = (
            f"placet signer add NAME {quote(named)}"
            if mine
            else "placet config set approval.key FILE"
        )
        yield finding("signing", "warn", f"approval.key, {named}, {found}", helps)
    if not signers:
        state: Verdict = "bad" if config.approval.signed else "warn"
        yield finding("signers", state, "nobody can sign", "placet signer add NAME KEYFILE")
    else:
        names = ", ".join(dict.fromkeys(one.name for one in signers))
        yield finding("signers", "good", f"approvals are signed by: {names}")


def look_at_git() -> Finding:
    """Return the line on git: where it is, and whether it is new enough."""
    try:
        git, version, new_enough = git_found()
    except UserError as error:
        return finding("git", "bad", error.what, error.hint)
    found = f"{git}, version {version}"
    if new_enough:
        return finding("git", "good", found)
    return finding("git", "bad", found, f"Install git {'.'.join(map(str, MINIMUM_GIT))} or newer.")


def _sandbox_lines(config: Config) -> Iterator[Finding]:
    """Give the findings on the sandbox: its level and known gaps, and whether hosts are held."""
    wall = probe()
    held = [f.detail for f in wall.attempts if not f.blocked and f.level is wall.level]
    gaps = "; ".join(f"{detail[0].lower()}{detail[1:].rstrip('.')}" for detail in held if detail)
    found = f"{wall.level.title} (level {int(wall.level)} of 3)"
    if gaps:
        found += f". A command can: {gaps}. See daemon/docs/security.md"
    if wall.level is Level.LANDLOCK and config.commands.sandbox == "landlock":
        yield finding("sandbox", "warn", found, LANDLOCK_LACKS)
    elif wall.level not in (Level.NONE, Level.LANDLOCK):
        yield finding("sandbox", "good", found)
    else:
        yield finding("sandbox", "bad", found, f"Commands do not run. {NO_SANDBOX}")
    if not wall.no_hosts:
        yield finding("hosts", "good", "held: commands reach no host that their plan does not name")
    elif wall.level is Level.BUBBLEWRAP:
        yield finding("hosts", "bad", f"commands reach no host that a plan names: {wall.no_hosts}")
    else:
        yield finding("hosts", "warn", "plans cannot name hosts here", wall.no_hosts)


def _user_lines() -> Iterator[Finding]:
    """Give a finding if this is root."""
    if os.geteuid() == 0:
        yield finding(
            "user",
            "warn",
            "root: the kernel does not count root's processes, and files of its making are root's",
            "Run placet as yourself.",
        )


def _portal_lines(site: Site, config: Config) -> Iterator[Finding]:
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


def _lock_lines(site: Site, config: Config) -> Iterator[Finding]:
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


def _daemon_lines(site: Site, config: Config) -> Iterator[Finding]:
    """Give a finding on the daemon, and one if all work is paused."""
    if holder := site.daemon:
        yield finding("daemon", "good", f"running: {holder}")
    else:
        yield finding("daemon", "warn", "not running", "placet run")
    if config.daemon.paused:
        yield finding("work", "warn", "paused", "placet resume")


def _journal_lines(state: StateFolder) -> Iterator[Finding]:
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


_KEY = (
    "Set the key, export ANTHROPIC_API_KEY=…, or look at name and base_url: placet config get model"
)


def _model_line(site: Site, config: Config) -> Finding:
    """Return what there is to say of the model: its server, the key, and what it speaks."""
    model = config.model
    if model.provider == "scripted":
        found = "scripted: replies are replayed from a file, no model is asked"
        helps = "For a real one, with ANTHROPIC_API_KEY: placet config set model.provider anthropic"
        return finding("model", "warn", found, helps)
    if config.team.workers:
        found = f"{model.name} ({model.server}): the workers ask it, each with its own key"
        return finding("model", "good", found)
    name = f"{model.name} ({model.server})"
    try:
        is_known = model_answers(config, site.vault, site.env)
    except UserError as error:
        return finding("model", "bad", error.what, error.hint)
    except ModelError as error:
        if error.kind is not ModelErrorKind.TRANSIENT:
            return finding("model", "bad", str(error), _KEY)
        return finding(
            "model",
            "warn",
            f"not checked: {error}",
            "Nothing that it needs is missing here. Try again once its server can be reached.",
        )
    if is_known is None:
        return finding("model", "good", f"{name}: it has no server that could be asked")
    if is_here(model.base_url) and not speaks_messages(model.base_url):
        return finding(
            "model",
            "bad",
            f"{name}: {model.base_url} does not speak the Messages API (it has no /v1/messages)",
            "Update that server, or name one that does: placet config set model.base_url URL",
        )
    takes, are = (
        ("", "the name is")
        if is_without_key(model.base_url, site.env)
        else ("takes the key and ", "key and name are")
    )
    if is_known:
        return finding("model", "good", f"{name}: its server {takes}knows the model")
    if listed := models_offered(config, site.env):
        return _among(listed, config, name)
    found = f"{name}: its server answers, and does not say whether {are} right"
    return finding("model", "warn", found, "The first plan shows it: placet submit TEXT")


def _among(listed: Sequence[Offered], config: Config, name: str) -> Finding:
    """Return what a server's list of models says of the name and the context of ours."""
    ours = [one for one in listed if one.name == config.model.name] or [*listed][: len(listed) < 2]
    size, ask = config.model.context_tokens, "placet config set model"
    if not ours or (ours[0].name != config.model.name and ours[0].context_tokens is None):
        names = ", ".join(one.name for one in listed)
        found = f"{name}: its server lists other models: {names}"
        return finding("model", "warn", found, f"{ask}.name {quote(listed[0].name)}")
    if (real := ours[0].context_tokens) is not None and real < size:
        found = f"{name}: its server's context has {real:,} tokens, context_tokens says {size:,}"
        return finding("model", "bad", found, f"{ask}.context_tokens {real}")
    context = "" if real is None else f", with a context of {real:,} tokens"
    return finding("model", "good", f"{name}: its server has the model{context}")


def _tiny_lines(site: Site, config: Config) -> Iterator[Finding]:
    """Give what one tiny call shows: whether the model is shown tools, and calls them."""
    by_text = config.model.tools == "text"
    ask = TINY_BY_TEXT if by_text else TINY
    try:
        reply = model_opener(config, site.vault, site.env)().reply(ask, lambda: False)
    except UserError as error:
        yield finding("tiny call", "bad", error.what, error.hint)
    except ModelError as error:
        if error.kind is ModelErrorKind.TRANSIENT:
            helps = "It may be busy with another call: try again later."
            yield finding("tiny call", "warn", f"not made: {error}", helps)
        else:
            yield finding("tiny call", "bad", str(error), _KEY)
    else:
        found = problems_of(reply, by_text=by_text)
        for problem, helps in found:
            yield finding("tiny call", "bad", f"{config.model.name}: {problem}", helps)
        if not found:
            said = f"{config.model.name} called the tool; {reply.usage.prompt_tokens} tokens in"
            yield finding("tiny call", "good", said)


def _limit_lines(config: Config) -> Iterator[Finding]:
    """Give a finding if the limit of dollars a day cannot hold."""
    if (unkept := unkept_limit(config)) is not None:
        yield finding("limit", "bad", *unkept)


def _key_lines(site: Site) -> Iterator[Finding]:
    """Give a finding if others can read the service's file with the model's key."""
    path = key_file(site.env)
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            found = f"{path}: others can read it (mode {mode:o})"
            yield finding("key", "bad", found, f"chmod 600 {quote(str(path))}")
