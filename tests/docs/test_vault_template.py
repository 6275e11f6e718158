"""Test that a new vault is complete and never replaces your files."""

from __future__ import annotations

import json
import re
import socket
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from placet.agent.instruction_notes import agents
from placet.case.callout import PlanHead
from placet.case.request import read_request
from placet.client.new_vault import init, template
from placet.host.config import Config, load
from placet.note.frontmatter import read_note
from placet.note.paths import CONFIG_PATH, QUEUES, Folder
from placet.plan.digest import PLAN_STAMPS, REQUEST_STAMPS

ROOT = template()
FILES = sorted(path for path in ROOT.rglob("*") if path.is_file())
NOTES = [path for path in FILES if path.suffix == ".md"]
TEMPLATES = sorted((ROOT / "System" / "Templates").glob("*.md"))
HOW_TO = ROOT / "System" / "How to.md"
DATAVIEW = ROOT / "System" / "Missions (Dataview).md"
BASE = yaml.safe_load((ROOT / "Missions.base").read_text())
TYPES = json.loads((ROOT / ".obsidian" / "types.json").read_text())["types"]
REPORT_KEYS = {
    "trace_id",
    "request_id",
    "status",
    "completed_at",
    "failed_at",
    "agent",
    "branch",
    "commit",
    "error_type",
    "cost_usd",
    "became",
    "merged_as",
    "dropped_by",
    "dropped_reason",
}
REQUEST_KEYS = REQUEST_STAMPS | {"agent", "portal", "priority", "complexity", "budget_usd"}
QUESTION_KEYS = {"answer", "asked_at", "amendment"}
KEYS = (
    REPORT_KEYS
    | REQUEST_KEYS
    | PLAN_STAMPS
    | QUESTION_KEYS
    | {field.name for field in fields(PlanHead)}
)
NUMBERS = {"amendment", "priority", "budget_usd", "revision", "cost_usd"}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- the settings

CONFIG = (ROOT / CONFIG_PATH).read_text()
COMMENTED = re.compile(r"^# (?=\[|\w+ = )", re.MULTILINE)


def rows(annotation: Any, value: Any) -> Iterator[tuple[type[BaseModel], Any]]:
    """The tables in a setting that is a `dict[str, Table]`, a `tuple[Table, ...]` or a `Table |
    None`.
    """
    for row in get_args(annotation):
        if isinstance(row, type) and issubclass(row, BaseModel):
            for one in (
                value.values()
                if get_origin(annotation) is dict
                else value
                if get_origin(annotation) is tuple
                else (value,)
            ):
                yield row, one


def settings(model: type[BaseModel], given: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every setting that a model has: its path, its default, and what `given` says.

    A missing one says `...`.
    """
    for key, field in model.model_fields.items():
        where, value = f"{path}{key}", given.get(key, ...)
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from settings(type(default), {} if value is ... else value, f"{where}.")
        elif value is not ... and (tables := list(rows(field.annotation, value))):
            for row, one in tables:
                yield from settings(row, one, f"{where}[].")
        else:
            yield where, default, value


def test_template_contains_every_setting_at_default() -> None:
    found = list(settings(Config, tomllib.loads(COMMENTED.sub("", CONFIG))))
    assert len(found) > 20
    assert [path for path, _, value in found if value is ...] == []
    differ = [
        path
        for path, default, value in found
        if "[]" not in path
        and default is not None
        and value != (list(default) if isinstance(default, tuple) else default)
    ]
    assert differ == []


@pytest.mark.parametrize(
    "text", [CONFIG, COMMENTED.sub("", CONFIG)], ids=["as it is", "uncommented"]
)
def test_the_settings_load(tmp_path: Path, text: str) -> None:
    (tmp_path / "System").mkdir()
    (tmp_path / CONFIG_PATH).write_text(text)
    config = load(tmp_path)
    assert (
        config.model_copy(
            update={"portals": {}, "model": config.model.model_copy(update={"price": ()})}
        )
        == Config()
    )


def test_every_setting_is_off_and_explained() -> None:
    for line in CONFIG.splitlines():
        if re.match(r"# \w+ = ", line):
            assert re.search(r"  # \S", line), f"not explained: {line}"
        elif line and not line.startswith("#"):
            assert re.fullmatch(r"\[\w+\]", line), f"not commented out: {line}"


# --- Obsidian


def test_every_property_has_one_type() -> None:
    """Times are text: Obsidian's type for them has no time zone and would write them back without
    theirs.
    """
    assert set(TYPES) == KEYS
    assert {key for key, sort in TYPES.items() if sort == "number"} == NUMBERS
    assert set(TYPES.values()) == {"number", "text"}


def test_finished_view_has_became_column() -> None:
    (finished,) = [view for view in BASE["views"] if view["name"] == "Finished"]
    assert "became" in finished["order"]
    assert 'became AS "Became"' in DATAVIEW.read_text()


def test_template_contains_no_workspace_layout() -> None:
    settings = sorted(name(path) for path in FILES if name(path).startswith(".obsidian/"))
    assert settings == [".obsidian/templates.json", ".obsidian/types.json"]


def test_templates_plugin_has_folder_setting() -> None:
    folder = json.loads((ROOT / ".obsidian" / "templates.json").read_text())["folder"]
    assert ROOT / folder == TEMPLATES[0].parent
    assert f"`{folder}`" in HOW_TO.read_text()


def statements(filters: Any) -> Iterator[str]:
    """The statements of a filter.

    It is one of them, or one of and, or, not with a list (Bases syntax, "Filters").
    """
    if isinstance(filters, str):
        yield filters
        return
    ((word, parts),) = filters.items()
    assert word in {"and", "or", "not"}
    for part in parts:
        yield from statements(part)


def test_base_uses_views_that_obsidian_has() -> None:
    assert set(BASE) <= {"filters", "formulas", "properties", "summaries", "views"}
    assert [view["name"] for view in BASE["views"]] == [
        "Awaiting you",
        "Decide",
        "Running",
        "Finished",
        "Failed",
        "Cost",
    ]
    for view in BASE["views"]:
        assert view["type"] in {"table", "cards", "list"}
        assert set(view) <= {
            "type",
            "name",
            "filters",
            "groupBy",
            "order",
            "sort",
            "limit",
            "summaries",
        }
        for sort in (view.get("groupBy"), *view.get("sort", ())):
            assert sort is None or (
                set(sort) == {"property", "direction"} and sort["direction"] in {"ASC", "DESC"}
            )


def test_base_names_only_existing_properties_and_states() -> None:
    used: set[str] = set(BASE["properties"])
    for view in BASE["views"]:
        used |= {
            *view["order"],
            *view.get("summaries", ()),
            *(sort["property"] for sort in view.get("sort", ())),
        }
        used |= {view["groupBy"]["property"]} if "groupBy" in view else set()
        assert {of_note(key) for key in view["order"]} <= set(BASE["properties"]), (
            "a column without a title"
        )
    assert {key for key in used if key.startswith("formula.")} == {
        f"formula.{key}" for key in BASE["formulas"]
    }
    assert {key for key in used if key.startswith("file.")} <= {
        "file.name",
        "file.folder",
        "file.mtime",
    }
    assert {of_note(key)[5:] for key in used if not key.startswith(("file.", "formula."))} <= KEYS
    said = [
        *statements(BASE["filters"]),
        *(s for view in BASE["views"] for s in statements(view["filters"])),
    ]
    for statement in said:
        if match := re.fullmatch(r'file\.inFolder\("(.+)"\)', statement):
            assert match[1] in set(Folder)
        elif match := re.fullmatch(r'status [!=]= "(.+)"', statement):
            assert match[1] in {"planning", "error", "review", "open", "completed", "failed"}
        elif match := re.fullmatch(r'file\.hasProperty\("(.+)"\)', statement):
            assert match[1] in KEYS
        else:
            assert statement in {'file.ext == "md"', 'file.path.endsWith(".placet.md")'}


def of_note(key: str) -> str:
    return key if "." in key else f"note.{key}"


def test_the_cost_is_summed() -> None:
    (cost,) = [view for view in BASE["views"] if view["name"] == "Cost"]
    assert cost["summaries"] == {"note.cost_usd": "Sum"}
    assert cost["groupBy"]["property"] == "agent"


def test_dataview_note_matches_base() -> None:
    text = DATAVIEW.read_text()
    assert re.findall(r"^## (.+)", text, re.MULTILINE) == [view["name"] for view in BASE["views"]]
    assert len(re.findall(r"^```dataview\nTABLE ", text, re.MULTILINE)) == len(BASE["views"])
    assert set(re.findall(r'(?:FROM|OR) "([^"]+)"', text)) <= {*Folder, "Inbox"}
    first = text.split("\n## ")[0]
    assert "community plugin Dataview" in first
    assert "[[Missions.base]]" in first


@pytest.mark.parametrize("path", FILES, ids=name)
def test_template_needs_only_core_plugins(path: Path) -> None:
    text = path.read_text()
    if path == DATAVIEW:
        return
    assert set(re.findall(r"^ *(?:```|~~~)(\S*)", text, re.MULTILINE)) <= {"", "sh", "toml", "yaml"}
    # Templater, Dataview, Meta Bind, …
    for mark in ("<%", "`= ", "`$= ", "`dv", "BUTTON[", "INPUT[", "obsidian://adv", "<script"):
        assert mark not in text
    assert set(re.findall(r"\{\{.*?\}\}", text)) <= {"{{title}}", "{{date}}", "{{time}}"}


@pytest.mark.parametrize("path", NOTES, ids=name)
def test_every_link_leads_to_a_file(path: Path) -> None:
    names = {name(file) for file in FILES}
    for link in re.findall(r"\[\[(.+?)\]\]", path.read_text()):
        target, _, part = link.partition("|")[0].partition("#")
        assert {target, f"{target}.md"} & names, link
        if part:
            assert part in {view["name"] for view in BASE["views"]}


@pytest.mark.parametrize("path", NOTES, ids=name)
def test_template_paragraph_is_one_line(path: Path) -> None:
    """Obsidian shows every line break, on a phone in the middle of a line."""
    body = re.sub(
        r"^```.*?^```$", "", read_note(path.read_bytes()).body, flags=re.MULTILINE | re.DOTALL
    )
    assert re.findall(r"^[^\n]*\w[^\n]*\n(?![-*>|#\s]|\d+\.)[^\n]+", body, re.MULTILINE) == []


def test_home_fits_screen_and_links_how_to() -> None:
    text = (ROOT / "Home.md").read_text()
    assert "[[System/How to|" in text
    assert len(text.split()) <= 90


def test_home_and_how_to_cover_notes_and_folders() -> None:
    text = (ROOT / "Home.md").read_text() + HOW_TO.read_text()
    linked = {
        link.partition("|")[0].partition("#")[0] for link in re.findall(r"\[\[(.+?)\]\]", text)
    }
    assert {name(path).removesuffix(".md") for path in (*NOTES, ROOT / "Missions.base")} - {
        "Home"
    } == linked
    for folder in Folder:
        assert f"`{folder}`" in text


# --- requests and agents


def test_template_note_is_not_in_queue() -> None:
    assert TEMPLATES
    for path in FILES:
        assert not any(name(path).startswith(f"{folder}/") for folder in QUEUES)


@pytest.mark.parametrize("path", TEMPLATES, ids=name)
def test_filled_in_template_is_valid_request(path: Path) -> None:
    raw = path.read_bytes().replace(b"{{title}}", b"Mend the median")
    request = read_request("Inbox/Requests/x.md", read_note(raw), agents(ROOT), (), "default")
    assert request.title == "Mend the median"
    assert set(read_note(raw).meta) <= KEYS - REQUEST_STAMPS
    assert re.search(r"^## ", read_note(raw).body, re.MULTILINE)


def test_agents_are_short_prompts() -> None:
    assert agents(ROOT) == ("default", "reviewer", "senior-coder", "writer")
    for path in (ROOT / "System" / "Agents").iterdir():
        note = read_note(path.read_bytes())
        assert not note.meta, "nothing reads a property of an agent"
        assert 100 < len(note.body) < 2000
        assert note.body.startswith("You are ")


# --- placet init


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_new_vault_gets_every_file_and_folder(tmp_path: Path) -> None:
    made, kept = init(tmp_path / "vault")
    assert (sorted(made), kept) == (sorted(map(name, FILES)), [])
    got = {k: v for k, v in snapshot(tmp_path / "vault").items() if k != "System/.placet-vault"}
    claim = f'host = "{socket.gethostname()}"\n'.encode()
    assert got["System/placet.toml"].count(claim) == 1
    assert {**got, "System/placet.toml": got["System/placet.toml"].replace(claim, b"")} == snapshot(
        ROOT
    )
    for folder in Folder:
        assert (tmp_path / "vault" / folder).is_dir()


def test_a_vault_that_is_there_keeps_every_byte(tmp_path: Path) -> None:
    mine = {name(path): f"mine: {path.name}\r\n".encode() for path in FILES}
    mine |= {
        ".obsidian/workspace.json": b"{}",
        ".obsidian/app.json": b"{}",
        "Daily/2026-11-01.md": b"",
        "System/Agents/own.md": b"x",
    }
    for path, data in mine.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    init(tmp_path)
    after = snapshot(tmp_path)
    assert {path: after[path] for path in mine} == mine
    assert set(after) - set(mine) == {"System/.placet-vault"}


def test_second_init_changes_nothing(tmp_path: Path) -> None:
    init(tmp_path)
    (tmp_path / "Home.md").write_text("My own home.")
    (tmp_path / "System" / "Agents" / "writer.md").unlink()
    before = snapshot(tmp_path)
    made, _ = init(tmp_path)
    assert made == ["System/Agents/writer.md"]
    assert before.items() <= snapshot(tmp_path).items()


def test_init_completes_interrupted_init(tmp_path: Path) -> None:
    init(tmp_path)
    whole = snapshot(tmp_path)
    (tmp_path / ".obsidian/types.json").unlink()  # as where the disk was full by then
    (tmp_path / "Home.md").unlink()
    init(tmp_path)
    assert snapshot(tmp_path) == whole
