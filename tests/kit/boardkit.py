"""Start a board on a vault with a portal and a scripted model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gitkit import make_repo
from placet.client.new_vault import init
from vaultkit import TestVault, until

EXPORT = '''"""Write the people of a list as comma-separated values."""

import csv
from collections.abc import Iterable
from io import StringIO

COLUMNS = ("name", "city", "joined")


def as_csv(people: Iterable[dict[str, str]]) -> str:
    """Return one line for each person, below a line of names."""
    out = StringIO()
    rows = csv.DictWriter(out, COLUMNS, extrasaction="ignore")
    rows.writeheader()
    rows.writerows(people)
    return out.getvalue()
'''
TESTS = """from app.export import as_csv


def test_a_comma_in_a_name_stays_in_its_column() -> None:
    found = as_csv([{"name": "Doe, Jane", "city": "Bern", "joined": "2026-01-04"}])
    assert '"Doe, Jane",Bern' in found
"""
README = "# app\n\nA list of people, in a terminal.\n\n## Export\n\n`app people` prints a table.\n"
SEARCH = "def find(people, text):\n    return [one for one in people if text in one['name']]\n"
FASTER = (
    "def find(people, text):\n    text = text.casefold()\n"
    "    return [one for one in people if text in one['key']]\n"
)


def _step(title: str, description: str, done: str) -> dict[str, Any]:
    return {
        "title": title,
        "description": description,
        "tools": ["read_file", "grep", "write_file"],
        "done_when": [done],
    }


def _plan(title: str, summary: str, *steps: dict[str, Any], **scope: Any) -> dict[str, Any]:
    return {
        "title": title,
        "summary": summary,
        "steps": list(steps),
        "scope": scope,
        "risks": ["Whoever reads the output with a script of their own may have to change it."],
    }


def _done(number: int, said: str) -> tuple[str, dict[str, Any]]:
    return "complete_step", {"step": number, "summary": said}


def _written(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


def _finish(said: str) -> tuple[str, dict[str, Any]]:
    return "finish", {"summary": said}


ADD = _plan(
    "Add a CSV export",
    "`app people --csv` prints the same list as comma-separated values, so that a spreadsheet can "
    "open it. The table stays as it is.",
    _step("Write the export", "A function that turns people into CSV.", "it quotes a comma"),
    _step("Test it", "A name with a comma stays in its column.", "the test passes"),
    _step("Say it in the README", "One sentence below *Export*.", "the README names `--csv`"),
    write=["src/app/export.py", "tests/test_export.py", "README.md"],
    run=["python -m pytest -q"],
)
FIX = _plan(
    "Fix the search",
    "The search finds a name whether it is written with capitals or not.",
    _step("Compare without capitals", "`find` folds the text.", "`ann` finds Ann"),
    write=["src/app/search.py"],
)
TIDY = _plan(
    "Tidy the changelog",
    "Entries in one order, with one heading a release.",
    _step("Sort the entries", "By release.", "each release stands once"),
    write=["CHANGELOG.md"],
)
RENAME = _plan(
    "Rename the settings page",
    "The page is called Preferences everywhere.",
    _step("Rename it", "The page and what links to it.", "nothing says Settings"),
    write=["src/app/settings.py"],
)
SPEED = _plan(
    "Speed up the search",
    "An index of folded names, made once.",
    _step("Make the index", "Each person gets a key.", "a search folds nothing"),
    _step("Use it", "`find` looks at the keys.", "the search takes 1 ms"),
    write=["src/app/search.py", "src/app/index.py"],
)
UPGRADE = _plan(
    "Move to Python 3.14",
    "The newest Python, and what it asks for.",
    _step("Raise the version", "In the workflow.", "the tests pass"),
    write=[".github/workflows/test.yml"],
    network=True,
)
QUESTION = {
    "question": "Which order should the entries have?",
    "options": ["Newest release first", "Oldest release first"],
    "why": "Both are in the file: above 2.0 the newest stands first, below it the oldest.",
}
WIDER = {
    "why": "The page is linked from the menu, which the scope does not name.",
    "write": ["src/app/menu.py"],
    "run": ["python -m pytest -q"],
}
SLOW_S = 600.0


def _thinks(*calls: tuple[str, Any], delay_s: float = 0.0, text: str = "") -> dict[str, Any]:
    used = {"input_tokens": 2400, "output_tokens": 310, "cache_read_tokens": 9100}
    return {"text": text, "calls": calls, "usage": used, "delay_s": delay_s}


def write_script(vault: TestVault, *, pace_s: float = 0.3) -> None:
    """Make the model plan and carry out each kind of request, by the first word of its name."""
    for word, plan in {
        "add": ADD,
        "fix": FIX,
        "tidy": TIDY,
        "rename": RENAME,
        "speed": SPEED,
        "move": UPGRADE,
    }.items():
        submitted = [_thinks(("submit_plan", plan))]
        vault.script(("plan", submitted), ("revise", submitted), request=f"{word}-*", more=True)
    vault.script(("plan", [_thinks(delay_s=SLOW_S)]), request="write-*", more=True)
    missions: dict[str, list[dict[str, Any]]] = {
        "add": [
            _thinks(
                _written("src/app/export.py", EXPORT),
                _done(1, "The export quotes what has to be quoted."),
                delay_s=pace_s,
            ),
            _thinks(
                _written("tests/test_export.py", TESTS),
                _done(2, "A comma stays in its column."),
                delay_s=pace_s,
            ),
            _thinks(_finish("People can be exported as CSV."), delay_s=pace_s),
        ],
        "fix": [
            _thinks(_written("src/app/search.py", FASTER), delay_s=pace_s),
            _thinks(_done(1, "`ann` finds Ann."), _finish("Capitals do not matter any more.")),
        ],
        "tidy": [
            _thinks(("ask_person", QUESTION)),
            _thinks(
                _written("CHANGELOG.md", "# Changes\n\n## 2.1\n\n## 2.0\n"),
                _done(1, "Newest first."),
                _finish("The changelog has one order."),
            ),
        ],
        "rename": [
            _thinks(("request_scope", WIDER)),
            _thinks(
                _written("src/app/menu.py", "MENU = ['Preferences']\n"),
                _done(1, "The menu says Preferences."),
                _finish("The page is called Preferences."),
            ),
        ],
        "speed": [
            _thinks(("read_file", {"path": "src/app/search.py"})),
            _thinks(
                _written("src/app/index.py", "INDEX = {}\n"), _done(1, "Each person has a key.")
            ),
            _thinks(("grep", {"pattern": "casefold"}), delay_s=pace_s),
            _thinks(delay_s=SLOW_S),
        ],
        "move": [
            _thinks(("give_up", {"reason": "A library that the app uses has no release for 3.14."}))
        ],
    }
    for word, replies in missions.items():
        vault.script(("execute", replies), request=f"{word}-*", more=True)


def board_vault(folder: Path, **extra: str) -> TestVault:
    """Make a vault named notes, and a portal named app, in a folder."""
    vault = TestVault(folder / "notes", folder / "state", dict(extra))
    vault.root.mkdir(parents=True)
    init(vault.root)
    make_repo(
        folder / "app",
        {
            "README.md": README,
            "src/app/search.py": SEARCH,
            "src/app/settings.py": "TITLE = 'Settings'\n",
            "CHANGELOG.md": "# Changes\n\n## 2.0\n\n## 2.1\n",
            ".github/workflows/test.yml": "python: 3.11\n",
        },
    )
    vault.configure(
        '[commands]\nsandbox = "none"\n[daemon]\nmissions_at_once = 3\nplans_at_once = 4\n'
        '[portals.app]\npath = "../app"\n'
    )
    write_script(vault)
    return vault


def ask(vault: TestVault, title: str, text: str = "Please.") -> str:
    """Write a request for the portal; return the id that it gets."""
    ident = re.sub(r"[^a-z0-9]+", "-", title.lower())
    vault.drop(f"---\nportal: app\n---\n# {title}\n\n{text}\n", f"{title}.md")
    return ident


def planned(vault: TestVault, title: str) -> str:
    """Write a request, and wait for its plan; return its id."""
    ident = ask(vault, title)
    until(vault.plan(ident).exists, f"a plan of {title}")
    return ident
