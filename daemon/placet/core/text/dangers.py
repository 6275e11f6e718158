"""Warnings for the reviewer of a scope: globs and commands that allow more than they seem to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from placet.core.text.commands import program_of, uses, uses_at
from placet.core.text.globs import glob_pattern, segment_pattern
from placet.core.text.markdown import code
from placet.core.text.programs import INTERPRETERS, OPEN_ENDED, STARTERS
from placet.core.text.scope import Scope

_HOOKS = (
    ".github", ".gitlab-ci.yml", ".circleci", ".travis.yml", "azure-pipelines.yml",
    "bitbucket-pipelines.yml", "Jenkinsfile", ".buildkite", ".woodpecker", ".drone.yml",
)  # fmt: skip
_RUNS_ON_YOURS = (
    ".husky", ".pre-commit-config.yaml", ".envrc", ".vscode", ".idea", ".devcontainer", ".direnv",
    ".obsidian", ".mise.toml", ".claude", ".cursor", ".npmrc", ".yarnrc.yml",
)  # fmt: skip
_SECRETS = (".env", ".netrc", ".pypirc", ".ssh", ".aws")
_GIT = (".git", ".gitattributes", ".gitmodules", ".gitignore")

# Names that most repositories have: a pattern that matches half of them is meant for none of the
# names above in particular.
_ORDINARY = (
    "src", "lib", "app", "docs", "tests", "packages", "web", "internal", "main.py", "README.md",
)  # fmt: skip

_SAMPLES = {
    _HOOKS: [f"{name}/workflows/ci.yml" for name in _HOOKS]
    + [f"{name}/config.yml" for name in _HOOKS],
    _GIT: [".gitattributes", ".gitmodules", ".gitignore"],
    _RUNS_ON_YOURS: [f"{name}/settings.json" for name in _RUNS_ON_YOURS],
    _SECRETS: [".env.local", ".ssh/config", ".ssh/id_ed25519", ".aws/credentials"],
}
_MEANS = {
    _HOOKS: "change what the build server runs, with that server's secrets",
    _GIT: "change how git treats the repository (hooks, attributes, submodules)",
    _RUNS_ON_YOURS: "change what your editor or shell runs when you open the repository",
    _SECRETS: "change files that usually hold secrets",
}


def _write_dangers(pattern: str) -> Iterator[str]:
    """Yield a sentence for each kind of files that matter and that a glob reaches.

    They are known by the names that its parts match, and by paths that the whole of it matches.
    """
    reaches = [
        None if s == "**" else segment_pattern(s).fullmatch for s in pattern.rstrip("/").split("/")
    ]
    wide = [
        part is None or sum(part(name) is not None for name in _ORDINARY) * 2 >= len(_ORDINARY)
        for part in reaches
    ]
    if wide[0]:
        yield f"{code(pattern)} lets it write almost anywhere in the repository."
        return
    narrow = [part for part, is_wide in zip(reaches, wide, strict=True) if part and not is_wide]
    for names, samples in _SAMPLES.items():
        named = any(part(name) for part in narrow for name in names)
        if named or any(map(glob_pattern(pattern).fullmatch, (*names, *samples))):
            yield f"{code(pattern)} lets it {_MEANS[names]}."


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


def dangers(scope: Scope) -> list[str]:
    """Return one sentence for each thing in `scope` that a reviewer should look at twice."""
    out: list[str] = []
    for pattern in scope.write:
        if not pattern.startswith("!"):
            out += _write_dangers(pattern)
    for argv in scope.run:
        out += _run_dangers(argv, network=scope.network)
    if scope.network:
        out.append(
            "`network = true` lets its commands send anything that they can read to other machines:"
            " the repository, and what its tools read of `Knowledge/`. They reach services on this"
            " machine and in the local network, too."
        )
    if scope.shell:
        out.append(
            "`shell = true` lets it run any command text in the sandbox, whatever `run` says."
        )
    return list(dict.fromkeys(out))
