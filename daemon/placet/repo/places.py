"""The places where git works: a repository, its settings, and no program that they name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from placet.errors import UserError
from placet.git.run import Place, items_of, run_git
from placet.repo.program import CALL_TIMEOUT_S
from placet.repo.values import OnCall, Settings

# each costs up to four environment variables; the kernel's limit is some thousands
_MAX_DRIVERS = 500

# A repository may name programs for filters, merges and hooks under names of its own; all that it
# names are given these values. `required=false` lets an emptied filter pass the file through. A
# merge driver cannot be unset and an empty one would claim a clean merge, so it is made to fail:
# the preview then says conflict. Configured hooks (`hook.NAME`) exist in newer versions of git, and
# core.hooksPath does not reach them.
_NEUTRAL: Mapping[str, Sequence[tuple[str, str]]] = {
    "filter": (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")),
    "merge": (("driver", "false"),),
    "hook": (("enabled", "false"), ("command", "false")),
}


@dataclass(frozen=True)
class Repo:
    """A repository of the person's, as `open_repo` found it; no resource is held.

    `path` is the top of the work tree (the bare directory itself where `is_bare`); `git_dir` is
    this checkout's, `common_dir` what all its worktrees share. `clone_of` is where the person has
    it, of a worker's clone.
    """

    path: Path
    git_dir: Path
    common_dir: Path
    is_bare: bool
    is_shallow: bool
    on_call: OnCall | None = field(default=None, compare=False, repr=False)
    clone_of: Path | None = None

    @property
    def by_hand(self) -> str:
        """The git command line for a person, quoted for a shell."""
        return f"git -C {shlex.quote(str(self.clone_of or self.path))}"

    @cached_property
    def settings(self) -> Settings:
        """Git's configuration when this was first asked for; `settings_of` reads it again."""
        return settings_of(place_of(self))

    def setting(self, key: str) -> str | None:
        """Return the value that wins, of a key in small letters.

        None for none, or where it stands there without a value.
        """
        said = (item.partition("\n") for _, item in reversed(self.settings))
        return next((value if given else None for name, given, value in said if name == key), None)


def ask(repo: Repo, *args: str, stdin: bytes = b"", timeout_s: float = CALL_TIMEOUT_S) -> bytes:
    """Return the output of a git command that reads in a repository; raises as `run_git`."""
    return run_git(place_of(repo), *args, stdin=stdin, timeout_s=timeout_s)[1]


def persons_file(repo: Repo, key: str, name: str) -> Path:
    """Return the person's own file that the setting `key` names, or else git's default, `name`."""
    said = repo.setting(key) or f"{os.environ.get('XDG_CONFIG_HOME') or '~/.config'}/git/{name}"
    return Path(os.path.expanduser(said))  # noqa: PTH111 - it may name nobody


def rows_of(place: Place, fields: Sequence[str], *patterns: str) -> Iterator[tuple[str, ...]]:
    """Return these fields (of git-for-each-ref) of each reference that one of `patterns` names."""
    form = "".join(f"%({field})%00" for field in fields)
    _, out = run_git(place, "for-each-ref", f"--format={form}", *patterns)
    items = [item.removeprefix("\n") for item in items_of(out)]
    return zip(*(items[n :: len(fields)] for n in range(len(fields))), strict=True)


def place_of(repo: Repo) -> Place:
    """Work on the repository without a work tree."""
    return Place(repo.git_dir, None, repo.git_dir, repo.on_call)


def settings_of(place: Place) -> Settings:
    """Return the configuration that git has at `place` now."""
    _, out = run_git(place, "config", "-z", "--list", "--show-scope")
    items = items_of(out)
    return list(zip(items[0::2], items[1::2], strict=True))


def neutral(place: Place) -> Place:
    """Return `place` with every driver that its configuration names switched off.

    Reading configuration runs nothing. Raises UserError past a sane number.
    """
    settings = settings_of(place)
    names = (item.partition("\n")[0] for _, item in settings)
    sections = {
        name.rpartition(".")[0]
        for name in names
        if name.startswith(tuple(f"{kind}." for kind in _NEUTRAL))
    }
    drivers = [section.split(".", 1) for section in sorted(sections) if "." in section]
    if len(drivers) > _MAX_DRIVERS:
        raise UserError(
            f"{place.git_dir} configures {len(drivers)} filter, merge and hook drivers; "
            f"at most {_MAX_DRIVERS} are accepted",
            f"Look at: git --git-dir={place.git_dir} config --list",
        )
    return configured(
        replace(place, settings=settings),
        [
            (f"{kind}.{name}.{key}", value)
            for kind, name in drivers
            for key, value in _NEUTRAL[kind]
        ],
    )


def configured(place: Place, settings: Sequence[tuple[str, str]]) -> Place:
    """Return `place` with these settings, which win over every file and over earlier ones.

    Through the environment rather than `-c`, which splits at the first `=`: a driver or a branch
    named `a=b` would slip through.
    """
    known = int(place.env.get("GIT_CONFIG_COUNT", "0"))
    env = {"GIT_CONFIG_COUNT": str(known + len(settings))}
    for n, (key, value) in enumerate(settings, known):
        env |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    return with_env(place, env)


def with_env(place: Place, env: Mapping[str, str]) -> Place:
    """Return `place` with more in its environment."""
    return replace(place, env={**place.env, **env})
