"""The context card of a repository: its languages, its tests, and a note with a person's words."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath

from placet.core.text.names import show

_LANGUAGES: Mapping[str, str] = {
    "py": "Python", "pyi": "Python", "js": "JavaScript", "mjs": "JavaScript", "cjs": "JavaScript",
    "jsx": "JavaScript", "ts": "TypeScript", "tsx": "TypeScript", "go": "Go", "rs": "Rust",
    "java": "Java", "kt": "Kotlin", "kts": "Kotlin", "scala": "Scala", "c": "C", "h": "C",
    "cc": "C++", "cpp": "C++", "cxx": "C++", "hpp": "C++", "cs": "C#", "fs": "F#", "rb": "Ruby",
    "php": "PHP", "swift": "Swift", "m": "Objective-C", "sh": "Shell", "bash": "Shell",
    "zsh": "Shell", "pl": "Perl", "lua": "Lua", "r": "R", "jl": "Julia", "hs": "Haskell",
    "ml": "OCaml", "ex": "Elixir", "exs": "Elixir", "erl": "Erlang", "clj": "Clojure",
    "dart": "Dart", "zig": "Zig", "nim": "Nim", "sql": "SQL", "html": "HTML", "css": "CSS",
    "scss": "CSS", "vue": "Vue", "svelte": "Svelte", "tex": "TeX", "md": "Markdown",
    "tf": "Terraform",
}  # fmt: skip

# Files at a repository's top that by themselves say how it is tested.
_BY_FILE: Sequence[tuple[str, str]] = (
    ("tox.ini", "tox"),
    ("noxfile.py", "nox"),
    ("Cargo.toml", "cargo test"),
    ("go.mod", "go test ./..."),
    ("pom.xml", "mvn test"),
    ("build.gradle", "gradle test"),
    ("build.gradle.kts", "gradle test"),
    ("mix.exs", "mix test"),
    ("Package.swift", "swift test"),
    ("pubspec.yaml", "dart test"),
    ("build.zig", "zig build test"),
)

_TARGET = re.compile(r"^(test|check)\s*:(?!=)", re.MULTILINE)

BEGIN = "%% placet writes what is between here … %%"
END = "%% … and here; the rest of this note is yours %%"


@dataclass(frozen=True, slots=True)
class PortalCard:
    """The content of a portal's card.

    `branch` is empty for none; `note` names an oddity, or is empty.
    """

    name: str
    path: str
    branch: str
    languages: tuple[tuple[str, int], ...]
    tests: tuple[str, ...]
    note: str = ""


def unfit(vault: PurePath, place: PurePath, *, is_repository: bool) -> str:
    """Return why missions cannot work on the folder `place`, in a sentence; empty where they can.

    Both paths are resolved.
    """
    if any(
        place.is_relative_to(vault / name) for name in ("Inbox", "System", ".obsidian", ".trash")
    ):
        return f"{place} is one of the vault's own folders, which no mission may write."
    if not is_repository and place != vault and vault.is_relative_to(place):
        return (
            f"{place} is no git repository, and it holds the vault: a first commit would take in"
            " the vault too."
        )
    return ""


def languages(paths: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return the six most frequent languages of these files, each with its number of files."""
    found = Counter(
        _LANGUAGES[ext]
        for path in paths
        if (ext := PurePosixPath(path).suffix[1:].lower()) in _LANGUAGES
    )
    return tuple(sorted(found.items(), key=lambda one: (-one[1], one[0]))[:6])


def how_to_test(paths: Sequence[str], read: Callable[[str], bytes]) -> tuple[str, ...]:
    """Return the commands that the files at a repository's top say it is tested with.

    `read` gives a file's content. A file that cannot be understood says nothing.
    """
    top = {path for path in paths if "/" not in path}
    python_tests = any(re.fullmatch(r"(.*/)?(test_[^/]*|[^/]*_test)\.py", path) for path in paths)
    found = [command for name, command in _BY_FILE if name in top]
    settings = _toml(read("pyproject.toml")) if "pyproject.toml" in top else {}
    tools = settings.get("tool")
    if (
        (isinstance(tools, dict) and "pytest" in tools)
        or {"pytest.ini", "conftest.py", "pytest.toml"} & top
        or (python_tests and "pytest" in json.dumps(settings, default=str))
    ):
        found.append("python -m pytest")
    elif python_tests:
        found.append("python -m unittest")
    if "package.json" in top and _npm_test(read("package.json")):
        found.append(
            "pnpm test"
            if "pnpm-lock.yaml" in top
            else "yarn test"
            if "yarn.lock" in top
            else "npm test"
        )
    for name, program in (
        ("Makefile", "make"),
        ("makefile", "make"),
        ("GNUmakefile", "make"),
        ("justfile", "just"),
    ):
        if name in top and (target := _TARGET.search(read(name).decode(errors="replace"))):
            found.append(f"{program} {target[1]}")
    return tuple(dict.fromkeys(found))


def _toml(raw: bytes) -> dict[str, object]:
    try:
        return tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}


def _npm_test(raw: bytes) -> bool:
    """Return whether a package.json has a test script other than that of `npm init`."""
    try:
        package = json.loads(raw)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        return False
    scripts = package.get("scripts") if isinstance(package, dict) else None
    script = scripts.get("test") if isinstance(scripts, dict) else None
    return isinstance(script, str) and "no test specified" not in script


def render_card(card: PortalCard, old: str | None) -> str:
    """Return the card's note.

    What a person wrote around placet's part of `old` is kept, character by character.
    """
    part = "\n".join(
        [
            BEGIN,
            "",
            f"- Repository: {_code(card.path)}",
            f"- Default branch: {_code(card.branch) if card.branch else 'none yet'}",
            "- Languages: "
            + (
                ", ".join(
                    f"{name} ({count} files)" if count > 1 else f"{name} (1 file)"
                    for name, count in card.languages
                )
                or "none that placet knows"
            ),
            "- How to test: "
            + (", ".join(_code(command) for command in card.tests) or "nothing found that says"),
            *([f"- {show(card.note)}"] if card.note else []),
            "",
            END,
        ]
    )
    if old is None:
        notes = "What an agent should know about this repository goes here."
        return f"# Portal {card.name}\n\n{part}\n\n## Notes\n\n{notes}\n"
    begin, end = old.find(BEGIN), old.find(END)
    if begin < 0 or end < begin:  # the marks were taken out: all of it is the person's
        return f"{old.rstrip(chr(10))}\n\n{part}\n"
    return old[:begin] + part + old[end + len(END) :]


def _code(text: str) -> str:
    return "`" + show(text).replace("`", "'") + "`"
