"""Test README and guide: commands run, tables match the code, links work, the site builds."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic.fields import FieldInfo

from gitkit import git
from guidekit import GUIDE, README, ROOT, blocks, follow, matches, pages
from placet.chat.prices import DEFAULT_PRICES
from placet.cli.main import COMMANDS, main
from placet.cli.walk_through import LETTERS
from placet.errors import ENDS, End
from placet.host.config import Config, PortalTable, PriceRow, parse
from placet.journal.reader import query
from placet.models import PROVIDERS
from placet.note.escape import code
from placet.note.hidden_text import UnseenKind
from placet.plan import dangerous_commands
from placet.plan.dangers import dangers
from placet.plan.scope import scope_from
from placet.sandbox.box import Level
from placet.sandbox.probe import probe
from placet.tools.registry import BY_NAME, TOOLS
from placet_team.worker_command import own_settings
from receiptkit import REF, Keys, begun, template
from vaultkit import make_vault

REASONS = (
    "asks",
    "goes on until the daemon stops",
    "installs from a registry",
    "needs Tailscale",
    "needs another machine",
    "needs a database",
    "needs a key",
    "needs a server",
    "needs a service manager",
    "opens an editor",
    "settings",
    "stays in the foreground",
    "test",
    "the daemon",
    "uninstalls",
)
"""The beginnings of all reasons for which a block is not run."""

BEGIN_WITHOUT_A_VAULT = ("README.md", "index.md")
PAGES = sorted(pages())


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh", "console")])
@pytest.mark.thinned(2)
def test_guide_page_shows_real_output(page: str, tmp_path: Path) -> None:
    if page == "security.md" and probe().level is Level.NONE:
        pytest.skip("there is no box on this machine")
    if any(not block.not_run for block in blocks(page, "sh", "console")):
        settled = page not in BEGIN_WITHOUT_A_VAULT
        assert follow(page, tmp_path / "home", settled=settled)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a … c\n", "a b c\n", True),
        ("a … c\n", "a b\nc\n", False),
        ("…\nlast\n", "one\ntwo\nlast\n", True),
        ("…\nlast\n", "last\n", True),
        ("first\n…\n", "first\n", True),
        ("first\n", "first\nsecond\n", False),
        ("", "", True),
        ("", "something\n", False),
        ("a.b\n", "axb\n", False),
    ],
)
def test_shown_output_is_compared_exactly(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_guide_block_has_kind_or_skip_reason() -> None:
    kinds = {"console", "markdown", "python", "sh", "sql", "text", "toml", "yaml"}
    for page in PAGES:
        assert pages()[page].count("```") == 2 * len(blocks(page)), page
        for block in blocks(page):
            where = f"{page}:{block.line}"
            assert block.kind in kinds, where
            assert not block.not_run or block.not_run.startswith(REASONS), where
    assert "<!-- not run" not in "".join(
        re.sub(r"<!-- not run: .*? -->\n[ ]*```", "", text) for text in pages().values()
    )


def test_every_command_is_in_the_guide() -> None:
    said = (GUIDE / "commands.md").read_text()
    assert [name for name in COMMANDS if not re.search(rf"`placet {name}\b", said)] == []
    told = {name for text in pages().values() for name in re.findall(r"`placet ([a-z]+)\b", text)}
    assert told - COMMANDS.keys() == {"does", "has"}, "both begin a message"


def test_every_option_that_the_guide_names_is_there() -> None:
    """In the tables of commands.md: `placet NAME` | …; `--option`."""
    context = click.Context(main)
    for row in re.findall(r"(?m)^\| `placet ([a-z]+)\b(.*)$", (GUIDE / "commands.md").read_text()):
        name, rest = row
        if name not in COMMANDS:
            continue
        command = main.resolve_command(context, [name])[1]
        assert command is not None
        known = set(_names(command))
        for word in re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", rest):
            assert word in known, (name, word)


def _names(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for other in command.commands.values():
            yield from _names(other)


PROGRAMS = ("git", "ssh-keygen", "sh", "mkdir", "grep", "cut", "sed", "sha256sum")


@pytest.mark.parametrize("forged", [False, True])
def test_receipt_is_checked_without_placet(tmp_path: Path, home: None, forged: bool) -> None:
    keys = Keys.made(tmp_path / "keys")
    done = begun(template(tmp_path / "template"), tmp_path / "repo", keys)
    done.step(lambda top: (top / "src/app.py").write_text("a = 2\n"))
    done.write({**done.files(), **({"plan-1.md": b"another\n"} if forged else {})})
    git(tmp_path, "clone", "-q", "repo", "clone")
    (tmp_path / "signers").write_bytes(keys.listed)
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    text = (GUIDE / "signed-approvals.md").read_text()
    part = text.partition("## Check a mission without placet")[2].partition("\n## ")[0]
    script = "\n".join(re.findall(r"(?s)```sh\n(.*?)```", part))
    assert f"R={REF}\n" in script
    ran = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=tmp_path / "clone",
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.count("Good") == 2, ran.stderr
    assert ran.returncode == int(forged)
    assert (f"{done.tip} {done.base}" in ran.stdout) is not forged
    assert ("\tsrc/app.py" in ran.stdout) is not forged


# --- settings


def _rows(text: str) -> dict[str, dict[str, tuple[str, str, str]]]:
    """Return by table and key of settings.md: default or example, what is allowed, what it is."""
    found: dict[str, dict[str, tuple[str, str, str]]] = {}
    for part in re.split(r"(?m)^#{2,3} ", text)[1:]:
        head = part.partition("\n")[0]
        if name := re.search(r"`\[{1,2}([A-Za-z.]+)\]{1,2}`", head):
            rows = re.findall(r"(?m)^\| `(\w+)` \| `(.*?)` \| (.*?) ?\| (.+) \|$", part)
            found[name[1]] = {key: (value, limits, what) for key, value, limits, what in rows}
    return found


def allowed(field: FieldInfo) -> str:
    """Return the numbers that a setting may be, as the guide says it."""
    inner = [one for kind in get_args(field.annotation) for one in getattr(kind, "metadata", ())]
    marks = [*field.metadata, *inner]

    def mark(name: str) -> Any:
        return next((v for m in marks if (v := getattr(m, name, None)) is not None), None)

    low, above, high = mark("ge"), mark("gt"), mark("le")
    if low is None and above is None:
        return ""
    least = f"more than {above:,}" if above is not None else f"{low:,}"
    if high is not None:
        return f"{least} to {high:,}"
    return least if above is not None else f"{least} or more"


def test_guide_lists_every_setting_with_default() -> None:
    told = _rows((GUIDE / "settings.md").read_text())
    tables: dict[str, Any] = {
        name: field.annotation for name, field in Config.model_fields.items() if name != "portals"
    }
    examples = {"model.price": PriceRow, "portals.NAME": PortalTable}
    assert set(told) == {*tables, *examples}
    for name, table in {**tables, **examples}.items():
        fields = {
            key: f for key, f in table.model_fields.items() if (name, key) != ("model", "price")
        }
        assert set(told[name]) == set(fields), name
        for key, field in fields.items():
            value, limits, what = told[name][key]
            assert limits == allowed(field), (name, key)
            assert len(what) > 8, (name, key)
            if name not in examples:
                default = tomllib.loads(f"x = {value}")["x"]
                default = tuple(default) if isinstance(default, list) else default
                assert default == field.default, (name, key)


def test_template_and_guide_explain_same_settings() -> None:
    text = (ROOT / "vault_template" / "System" / "placet.toml").read_text()
    told = _rows((GUIDE / "settings.md").read_text())
    for key, value, what in re.findall(r"(?m)^# (\w+) = (.+?) +# (.*)$", text):
        rows = [rows[key] for rows in told.values() if key in rows and rows[key][0] == value]
        assert rows, key
        marked = [row[2].startswith("(A)") for row in rows]
        assert what.startswith("(A)") in marked, key


# --- scopes and dangers


def _danger_rows() -> list[tuple[dict[str, Any], str]]:
    """Return each example of scopes.md as a scope's table, with the sentence next to it.

    Below "In `write`" and "In `run`" an example is one entry, else it is lines of a scope.
    """
    text = (GUIDE / "scopes.md").read_text().partition("## Dangers")[2].partition("\n## ")[0]
    found = []
    for part in text.split("\n### ")[1:]:
        key = re.match(r"In `(\w+)`", part)
        for example, said in re.findall(r"(?m)^\| (`.*?) \| (.+) \|$", part):
            lines = re.findall(r"`([^`]+)`", example.replace("{300 words}", "a " * 300))
            table = {key[1]: lines} if key else tomllib.loads("\n".join(lines))
            found.append((table, said))
    return found


def test_each_example_of_a_danger_gives_its_sentence() -> None:
    rows = _danger_rows()
    assert len(rows) > 25
    for table, said in rows:
        found = dangers(scope_from(table))
        entries = [*table.get("write", ()), *(entry.strip() for entry in table.get("run", ()))]
        whole = [f"{code(entry)} {said}" for entry in entries] or [said]
        assert {said, *whole} & set(found), (table, said, found)


def test_every_danger_that_can_be_shown_is_explained() -> None:
    told = " ".join(said for _, said in _danger_rows())
    reasons = {
        dangerous_commands.RUNS_CODE, dangerous_commands.REMOTE, dangerous_commands.STARTS, dangerous_commands.WRITES,
        dangerous_commands.GIT_ELSEWHERE, dangerous_commands.GIT_SHARED,
        *dangerous_commands.PROGRAMS.values(), *dangerous_commands.GIT_COMMANDS.values(), *dangerous_commands.GIT_STARTS.values(),
        *(why for options in dangerous_commands.OPTIONS.values() for why in options.values()),
        *(why for rules in dangerous_commands.PATTERNS.values() for _, why in rules),
    }  # fmt: skip
    core = ROOT / "daemon" / "placet" / "plan"
    # sentences that are written where they are said
    for name in ("dangerous_commands.py", "dangers.py"):
        tree = ast.parse((core / name).read_text())
        docs = {
            node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        reasons |= {
            node.value.strip()
            for function in tree.body
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value not in docs
            and len(node.value.split()) > 2
        }
    assert len(reasons) > 25
    missing = [why for why in reasons if why not in told]
    # the halves of one sentence around a program's name
    assert [why for why in missing if why != "lets it run any"] == []


def test_guide_explains_every_kind_of_hidden_text() -> None:
    said = (GUIDE / "scopes.md").read_text()
    assert [kind for kind in UnseenKind if f"| {kind.value} |" not in said] == []


def test_the_guides_scopes_and_settings_can_be_used(tmp_path: Path) -> None:
    scopes = [*blocks("scopes.md", "toml"), *blocks("network.md", "toml")]
    assert len(scopes) >= 5
    for block in scopes:
        scope_from(tomllib.loads(block.text))
    for page in PAGES:
        for block in blocks(page, "toml"):
            if page == "team.md":
                (tmp_path / "worker.toml").write_text(block.text)
                assert own_settings(tmp_path / "worker.toml").remotes
            elif page not in ("scopes.md", "network.md"):
                parse(block.text, f"{page}:{block.line}")


# --- other tables


def test_guide_lists_every_end_tool_provider_and_price() -> None:
    told = dict(re.findall(r"(?m)^\| `([a-z])` \| (.+) \|$", (GUIDE / "review.md").read_text()))
    assert told == LETTERS
    cost = (GUIDE / "cost.md").read_text()
    for end in End:
        assert f"| `{end.value}` | {ENDS[end].meaning} |" in cost, end
    agents = (GUIDE / "agents.md").read_text()
    assert [tool.name for tool in TOOLS if f"`{tool.name}`" not in agents] == []
    models = (GUIDE / "models.md").read_text()
    settings = (GUIDE / "settings.md").read_text()
    for name in PROVIDERS:
        assert f'"{name}"' in models, name
        assert f'"{name}"' in settings, name
    assert [price.model for price in DEFAULT_PRICES if f"`{price.model}`" not in models] == []


def test_guide_lists_inputs_of_scripted_calls() -> None:
    page = (GUIDE / "models.md").read_text()
    told = {
        name: tuple(set(re.findall(r"`(\w+)`", inputs)) for inputs in rest)
        for name, *rest in re.findall(r"(?m)^\| `(\w+)` \|([^|]*)\|([^|]*)\|$", page)
        if name in BY_NAME
    }
    fields = {name: tool.args.model_fields for name, tool in BY_NAME.items()}
    assert told == {
        name: (needed := {key for key in found if found[key].is_required()}, {*found} - needed)
        for name, found in fields.items()
    }
    (sentence,) = re.findall(r"(?m)^A step of `submit_plan` has (.*?)\. While", page)
    parts = BY_NAME["submit_plan"].args.model_json_schema()["$defs"].values()
    assert set(re.findall(r"`(\w+)`", sentence)) == {
        "scope", *(key for part in parts for key in part["properties"])
    }  # fmt: skip


def test_explained_messages_exist_in_code() -> None:
    """The first column of troubleshooting.md, where it stands in backticks, is in the code."""
    said = " ".join(
        re.sub(r"\s+", " ", node.value)
        for path in sorted((ROOT / "daemon" / "placet").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    text = (GUIDE / "troubleshooting.md").read_text()
    shown = re.findall(r"(?m)^\| `([^`]+)` \|", text)
    assert len(shown) > 30
    # a column of `placet status` is padded, and a name may stand within
    missing = [
        words
        for words in shown
        if any(piece.strip() not in said for piece in re.split(r" {2,}|…", words))
    ]
    assert missing == []


def test_the_queries_run(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.once()
    queries = [*blocks("journal.md", "sql"), *blocks("cost.md", "sql")]
    assert len(queries) >= 13
    for block in queries:
        columns, _ = query(vault.db, block.text)
        assert columns, block.line


def test_the_python_blocks_run(tmp_path: Path) -> None:
    for page in PAGES:
        for block in blocks(page, "python"):
            subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, check=True)


# --- the readme, links, and the site


def test_readme_is_short_and_links_resolve() -> None:
    text = README.read_text()
    assert text.count("\n") <= 90
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text.replace("<!--\n!", ""))
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists() and "images/" not in link] == []
    first = (GUIDE / "index.md").read_text()
    assert [p.name for p in GUIDE.glob("*.md") if f"]({p.name})" not in first] == ["index.md"]


class _Assets(HTMLParser):
    """Collects what a page makes the browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get("href" if tag == "link" else "src") or ""
        if tag in ("link", "script", "img", "iframe", "source") and given.get("rel") != "canonical":
            self.loads.append(address)


def test_site_builds_cleanly_and_loads_nothing_external(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "daemon/mkdocs.yml"),
         "-d", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    built = sorted((tmp_path / "site").glob("*.html"))
    listed = re.findall(r"\]\((.+?)\)", (tmp_path / "site" / "llms.txt").read_text())
    assert {p.name for p in GUIDE.glob("*.md")} | {"architecture.md"} == set(listed)
    assert all((tmp_path / "site" / name).exists() for name in listed)
    assert {p.stem for p in GUIDE.glob("*.md")} <= {path.stem for path in built}
    for path in built:
        parser = _Assets()
        parser.feed(path.read_text())
        assert parser.loads, path
        assert [one for one in parser.loads if re.match(r"(?:https?:)?//", one)] == [], path


def test_guide_names_no_build_machine_path() -> None:
    for page, text in pages().items():
        assert not re.search(r"pypi|/tmp/|/root\b|/work/", text), page
