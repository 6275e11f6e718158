"""Warn the reviewer of a scope about globs and commands that allow more than they seem to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache

from placet.note.escape import code, codes
from placet.note.portable import unportable
from placet.plan.dangerous_commands import (
    INTERPRETERS,
    OPEN_ENDED,
    STARTERS,
    program_of,
    uses,
    uses_at,
)
from placet.plan.globs import glob_pattern, segment_pattern
from placet.plan.hosts import is_rented
from placet.plan.scope import Scope


class _Kind(StrEnum):
    """Kinds of files that act by themselves; the value says what writing one does."""

    BUILD = "change what the build server runs, with that server's secrets"
    GIT = "change how git treats the repository (hooks, attributes, submodules)"
    YOURS = "change what your editor, your shell or your tools run when you use the repository"
    AGENTS = "change what agents are told when they work in this repository"
    SECRETS = "change files that usually hold secrets"
    REPORTS = "reach placet's own reports and portal notes, which no mission can write in a vault"


# Each path, and why it matters. `/` at the beginning: only at the top of the repository.
_FILES: tuple[tuple[_Kind, tuple[str, ...]], ...] = (
    (
        _Kind.BUILD,
        (
            ".github", ".gitlab-ci.yml", ".forgejo", ".gitea", ".circleci", ".travis.yml",
            "azure-pipelines.yml", "bitbucket-pipelines.yml", "Jenkinsfile", ".buildkite",
            ".woodpecker", ".woodpecker.yml", ".drone.yml", ".appveyor.yml", "appveyor.yml",
            "cloudbuild.yaml",
        ),
    ),
    (
        _Kind.GIT,
        (".git", ".gitattributes", ".gitmodules", ".gitignore", ".gitconfig", ".lfsconfig"),
    ),
    (
        _Kind.YOURS,
        (
            ".husky", ".githooks", "/hooks", "lefthook.yml", ".lefthook.yml", "lefthook.toml",
            "lefthook.json", ".lefthook", ".pre-commit-config.yaml", ".envrc", ".direnv",
            ".vscode", ".idea", ".zed", ".devcontainer", ".obsidian", ".mise.toml", "mise.toml",
            ".tool-versions", ".claude", ".cursor", ".mcp.json", ".npmrc", ".yarnrc.yml",
            ".pnpmfile.cjs", ".cargo", ".bazelrc", ".exrc",
            ".nvim.lua", ".vimrc", ".dir-locals.el", ".gdbinit", ".lldbinit",
        ),
    ),
    (
        _Kind.AGENTS,
        (
            "AGENTS.md", "AGENTS.override.md", "AGENT.md", "CLAUDE.md", "CLAUDE.local.md",
            "GEMINI.md", ".cursorrules", ".windsurfrules", ".windsurf", ".clinerules", ".roo",
            ".junie", ".goosehints", ".github/copilot-instructions.md", ".github/instructions",
            ".cursor/rules", ".claude/commands",
        ),
    ),
    (_Kind.SECRETS, (".env", ".env.local", ".netrc", ".pypirc", ".ssh", ".aws")),
    (_Kind.REPORTS, ("/Knowledge/Reports",)),
)  # fmt: skip

# Names that most repositories have: a pattern that matches half of them is meant for none of the
# names above in particular, and neither is one of notes.
_ORDINARY = (
    "src", "lib", "app", "docs", "tests", "packages", "web", "internal", "main.py", "README.md",
)  # fmt: skip
_NOTE = "README.md"

_Part = Callable[[str], object] | None
"""A test for names that one segment of a glob matches; None for one that is meant for any."""


def _parts(pattern: str) -> list[_Part]:
    segments = pattern.rstrip("/").split("/")
    parts = [None if s == "**" else segment_pattern(s).fullmatch for s in segments]
    ordinary = [part and sum(part(name) is not None for name in _ORDINARY) for part in parts]
    return [
        None if n is None or n * 2 >= len(_ORDINARY) else part
        for n, part in zip(ordinary, parts, strict=True)
    ]


def _names(parts: Sequence[_Part], path: str) -> bool:
    """Return whether segments of a glob match `path`. A segment for any name matches nothing."""
    names = path.lstrip("/").split("/")
    starts = range(len(parts) - len(names) + 1)
    return any(
        all(
            part and part(name) and (name == _NOTE or not part(_NOTE))
            for part, name in zip(parts[at:], names, strict=False)
        )
        for at in (starts[:1] if path.startswith("/") else starts)
    )


def _write_dangers(pattern: str) -> Iterator[str]:
    """Yield a sentence for each kind of files that matter and that a glob reaches.

    They are known by the names that its parts match, and by paths that the whole of it matches.
    """
    parts = _parts(pattern)
    if parts[0] is None:
        yield f"{code(pattern)} lets it write almost anywhere in the repository."
        return
    matches = glob_pattern(pattern).fullmatch
    for kind, paths in _FILES:
        if any(
            _names(parts, path) or (path[0] != "/" and (matches(path) or matches(f"{path}/x")))
            for path in paths
        ):
            yield f"{code(pattern)} lets it {kind}."


def _run_dangers(argv: tuple[str, ...], *, network: bool) -> Iterator[str]:
    entry = code(shlex.join(argv))
    for why in dict.fromkeys(use.why for use in uses(argv) if network or not use.network_only):
        yield f"{entry} {why}."
    starts = range(len(argv)) if program_of(argv[0]) in STARTERS else range(1)
    for start in starts:
        name, rest = program_of(argv[start]), argv[start + 1 :]
        unnamed = name in INTERPRETERS and all(w.startswith("-") for w in rest)
        if unnamed and not any(True for _ in uses_at(argv, start)):
            yield f"{entry} lets it run any {name} program: the entry does not say which."
    # Options, settings and durations do not say which command it is.
    words = tuple(w for w in argv[1:] if not re.match(r"-|\w+=|[\d.]+[smhd]?$", w))
    if (program_of(argv[0]), *words) in OPEN_ENDED:
        yield f"{entry} allows whatever may follow it: the entry does not say what."


def _host_dangers(names: Sequence[str], scope: Scope) -> Iterator[str]:
    if names:
        yield (
            "Its commands can send anything that they can read to the hosts that `network` names: "
            "the repository, and what its tools read of `Knowledge/`."
        )
    if rented := [str(host) for host in scope.hosts if is_rented(host)]:
        yield f"Anybody can rent a place at {codes(rented)}, so commands can send data to anybody."
    if foreign := [name for name in names if re.search(r"(?:^|\.)xn--", name)]:
        yield f"{codes(foreign)} is written in another script, and may look like a name you know."


# Bounds of the comparison of lines with each other: it takes the product of these numbers.
_MOST_LINES = 100
_MOST_SEGMENTS = 12


def _undone(write: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each `!` line that a later line undoes: the last match decides."""
    last = {pattern: at for at, pattern in enumerate(write) if pattern.startswith("!")}
    for pattern, at in last.items():
        taken = _segments(pattern[1:])
        earlier, later = (
            [one for one in some if one[0] != "!" and _overlap(taken, _segments(one))]
            for some in (write[:at], write[at + 1 :])
        )
        if earlier and later:
            yield (
                f"The `!` line for {code(pattern[1:])} forbids less than it says: "
                f"{code(later[0])}, which stands below it, allows some of these files again."
            )


def _segments(pattern: str) -> list[str]:
    segments = f"{pattern}**".split("/") if pattern.endswith("/") else pattern.split("/")
    return [*segments, "*"] if segments[-1] == "**" else segments


def _overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether a path may match both globs, given by their segments. If long, a guess."""
    if max(len(one), len(other)) > _MOST_SEGMENTS:
        return True
    # row[n]: whether the segments of `one` to here and the first n of `other` match a common path
    row = [all(segment == "**" for segment in other[:n]) for n in range(len(other) + 1)]
    for mine in one:
        before, row = row, [row[0] and mine == "**"]
        for n, yours in enumerate(other):
            if "**" in (mine, yours):
                row.append(before[n + 1] or row[n])
            else:
                row.append(before[n] and _meet(mine, yours))
    return row[-1]


@lru_cache(maxsize=512)
def _meet(one: str, other: str) -> bool:
    """Return whether a name may match both segments; for two with wildcards that is a guess."""
    wild = [re.search(r"[*?\[]", segment) for segment in (one, other)]
    if all(wild):
        start, its = (re.split(r"[*?\[]", segment)[0] for segment in (one, other))
        end, its_end = (re.split(r"[*?\]]", segment)[-1] for segment in (one, other))
        starts = start.startswith(its) or its.startswith(start)
        return starts and (end.endswith(its_end) or its_end.endswith(end))
    pattern, name = (one, other) if wild[0] else (other, one)
    return segment_pattern(pattern).fullmatch(name) is not None


def dangers(scope: Scope) -> list[str]:
    """Return one sentence for each thing in `scope` that a reviewer should look at twice."""
    out: list[str] = [*_undone(scope.write[:_MOST_LINES])]
    for pattern in scope.write:
        if not pattern.startswith("!"):
            out += _write_dangers(pattern)
    out += unportable(scope.by_name(), ())
    for argv in scope.run:
        out += _run_dangers(argv, network=scope.network or bool(scope.hosts))
    if scope.network:
        out.append(
            "`network = true` lets its commands send anything that they can read to other machines:"
            " the repository, and what its tools read of `Knowledge/`. They reach services on this"
            " machine and in the local network, too."
        )
    out += _host_dangers([str(host) for host in scope.hosts], scope)
    if scope.shell:
        out.append(
            "`shell = true` lets it run any command text in the sandbox, whatever `run` says."
        )
    return list(dict.fromkeys(out))
