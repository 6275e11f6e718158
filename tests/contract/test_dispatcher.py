"""Run one suite on every dispatcher of tools: the real one and the one in memory."""

from __future__ import annotations

import doctest
import gc
import json
import os
import statistics
import tempfile
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.disk.test_confine import CANARY, naive, payloads, plant, snapshot, spellings

import placet.testing
from benchkit import EVERYTHING, MARKER, Bench, all_of, bench, real
from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.plan.scope import Scope
from placet.sandbox.box import Box, Level, Ran
from placet.testing import InMemoryToolDispatcher
from placet.tools.base import Toolbox
from placet.tools.registry import BY_NAME, TOOLS

FILES: dict[str, str | bytes] = {
    "README.md": "# Read me\n\nHello there.\n",
    "src/main.py": "import os\n\n\ndef main():\n    return os.name\n",
    "src/deep/leaf.txt": "leaf\nHELLO\n",
    "src/crlf.txt": "one\r\ntwo\r\n",
    "empty": "",
    "bin/data": b"\x00\x01\x02",
    "latin.txt": b"caf\xe9\n",
    "a b.txt": "spaces\n",
    "no newline": "end",
    "caf\u00e9.md": "composed\n",
    "long.txt": "word " * 5000,
    "wide.txt": "x" * 100_000,
    "many.txt": "".join(f"line {n}\n" for n in range(1, 2001)),
    ".env": "DB_PASSWORD=hunter2hunter2\nDEBUG=1\n",
    ".gitignore": "*.pyc\n",
}
KNOWLEDGE: dict[str, str | bytes] = {
    "Notes.md": "# Notes\nhello from the vault\n",
    "Deep/More.md": "more\n",
}
COMMANDS = {
    "seq 5000": (0, "".join(f"{n}\n" for n in range(1, 5001)), ""),
    "both": (3, "out " * 3000, "err " * 3000),
    "echo hi | cat": (0, "hi\n", ""),
}
SCOPE = Scope(
    write=("src/**", "new/**", "caf\u00e9.md", "cafe\u0301.md", "*.txt", ".env"),
    run=(("seq",), ("both",)),
    shell=True,
)


@pytest.fixture(params=["real", "memory"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with bench(
        request.param, tmp_path, FILES, scope=SCOPE, knowledge=KNOWLEDGE, commands=COMMANDS
    ) as made:
        yield made


# --- what each tool does


def test_written_file_is_read_listed_and_searched(at: Bench) -> None:
    assert at.call("write_file", path="new/deep/x.txt", content="h\u00e9llo\n") == {
        "path": "new/deep/x.txt",
        "written_bytes": 7,
    }
    assert at.call("read_file", path="new/deep/x.txt") == "h\u00e9llo\n"
    assert (
        at.call("write_file", path="./new//deep/x.txt", content="two\n")["path"] == "new/deep/x.txt"
    )
    assert at.files()["new/deep/x.txt"] == b"two\n"
    assert at.call("glob", pattern="new/**") == ["new/deep/x.txt"]
    assert at.call("list_directory", path="new") == "deep/"
    assert at.call("list_directory", path="new/deep") == "x.txt 4"
    assert at.call("grep", pattern="^tw.$", path="new") == "new/deep/x.txt:1:two"
    assert at.call("search_files", pattern="TWO", path="new")["lines"] == ["new/deep/x.txt:1:two"]
    assert at.call("search_files", pattern="new/*/*.txt")["files"] == ["new/deep/x.txt"]
    assert at.call("search_files", pattern="[../*")["files"] == []


@pytest.mark.parametrize("path", ["src/none/none.py", "src/none.py", "src"])
def test_missing_file_names_what_its_folder_has(at: Bench, path: str) -> None:
    error = at.fails("read_file", path=path)["error"]
    assert ". Read what there is: src/crlf.txt, src/deep/, src/main.py" in error
    assert ("Then write it" in error) == (path != "src")
    elsewhere = at.fails("read_file", path="docs/none.md")["error"]
    assert elsewhere.endswith(". The plan lets you write: src/**, new/**, caf\u00e9.md")


def test_edit_file_replaces_unique_text(at: Bench) -> None:
    assert at.call("edit_file", path="src/main.py", old="os.name", new="os.sep") == {
        "path": "src/main.py",
        "replacements": 1,
    }
    assert b"os.sep" in at.files()["src/main.py"]
    assert (
        at.fails("edit_file", path="src/main.py", old="os", new="sys")["error_type"] == "ambiguous"
    )
    assert (
        at.call("edit_file", path="src/main.py", old="os", new="sys", replace_all=True)[
            "replacements"
        ]
        == 2
    )
    assert (
        at.fails("edit_file", path="src/main.py", old="nothing", new="x")["error_type"]
        == "not_found_in_file"
    )
    assert (
        at.fails("edit_file", path="src/main.py", old="sys", new="sys", replace_all=True)[
            "error_type"
        ]
        == "no_change"
    )
    at.call("edit_file", path="src/crlf.txt", old="one\ntwo", new="1\n2")
    assert at.files()["src/crlf.txt"] == b"1\r\n2\r\n"
    assert at.fails("edit_file", path="src/none.py", old="a", new="b")["error_type"] == "not_found"


def test_delete_file_removes_files_and_links_only(at: Bench) -> None:
    assert at.call("delete_file", path="src/deep/leaf.txt") == {"path": "src/deep/leaf.txt"}
    assert "src/deep/leaf.txt" not in at.files()
    assert at.fails("delete_file", path="src/deep/leaf.txt")["error_type"] == "not_found"
    assert at.fails("delete_file", path="src/deep")["error_type"] == "is_a_directory"
    assert at.fails("delete_file", path="README.md")["error_type"] == "outside_scope"
    root = at.tools.place.root if isinstance(at.tools, Toolbox) else at.tools._root
    (root.path / "src/link").symlink_to("../README.md")
    assert at.call("delete_file", path="src/link") == {"path": "src/link"}
    assert "README.md" in at.files()


def test_read_file_selects_lines_by_number(at: Bench) -> None:
    assert at.call("read_file", path="many.txt", offset=10, limit=2) == "line 10\nline 11\n"
    assert at.call("read_file", path="many.txt", offset=2000) == "line 2000\n"
    assert at.fails("read_file", path="many.txt", offset=2001)["lines"] == 2000
    assert at.call("read_file", path="empty") == ""
    assert at.call("read_file", path="empty", offset=1, limit=5) == ""
    assert at.call("read_file", path="no newline", limit=9) == "end"
    assert at.fails("read_file", path="bin/data")["error_type"] == "not_text"
    assert at.call("read_file", path="latin.txt") == "caf\ufffd\n"


def test_grep_matches_regular_expressions(at: Bench) -> None:
    assert at.call("grep", pattern=r"^def (\w+)", glob="*.py") == "src/main.py:4:def main():"
    assert at.call("grep", pattern="(?i)hello", path="src").splitlines() == [
        "src/deep/leaf.txt:2:HELLO"
    ]
    assert (
        at.call("grep", pattern="hello", path="Knowledge")
        == "Knowledge/Notes.md:2:hello from the vault"
    )
    assert at.call("grep", pattern=r"two$", path="src/crlf.txt") == "src/crlf.txt:2:two"
    assert at.call("grep", pattern=r"\Aline 7\Z") == "many.txt:7:line 7"
    assert at.call("grep", pattern="one\\ntwo") == "No line matches in 14 files."
    assert (
        at.call("grep", pattern="nothing at all", glob="src/**/*.txt")
        == "No line matches in 2 files."
    )
    for pattern in ("(", "[z-a]", "(?P<x", "*", "(" * 400 + ")" * 400, "a{2,1}", "\\"):
        assert at.fails("grep", pattern=pattern)["error_type"] == "bad_pattern", pattern
    assert at.fails("grep", pattern="x", glob="../*")["error_type"] == "bad_glob"
    assert at.fails("grep", pattern="x", path="nowhere")["error_type"] == "not_found"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)+$",
        "(a|a?)+$",
        "(.*a){20}$",
        "(?:a*)*b",
        "(?R)",
        "(?:" + "|".join("a" * n for n in range(1, 40)) + ")+$",
        r"(.*)(.*)(.*)(.*)(.*)\1\2\3\4\5x$",
        "(?=(a+))*(a*)*(a*)*b",
        "(x+x+)+y|(a+a+)+b",
    ],
)
@pytest.mark.parametrize("kind", ["real", "memory"])
@pytest.mark.thinned(3)
def test_pathological_regex_never_hangs_grep(kind: str, pattern: str, tmp_path: Path) -> None:
    with bench(kind, tmp_path, {"a.txt": ("a" * 5000 + "!\n") * 20}) as at:
        began = time.monotonic()
        outcome = at.tools.dispatch("grep", {"pattern": pattern})
        assert time.monotonic() - began < 40  # an idle machine takes half a second
    assert outcome.ok or outcome.error_type in ("pattern_too_slow", "bad_pattern")


def test_exploding_regex_is_reported_as_too_slow(at: Bench) -> None:
    at.call("write_file", path="a.txt", content="a" * 5000 + "!\n")
    assert at.fails("grep", pattern="(a|aa)+$", path="a.txt")["error_type"] == "pattern_too_slow"


def test_glob_lists_matches_and_refuses_bad_patterns(at: Bench) -> None:
    assert at.call("glob", pattern="src/**/*.txt") == ["src/crlf.txt", "src/deep/leaf.txt"]
    assert at.call("glob", pattern="*.md") == ["README.md", "caf\u00e9.md"]
    assert at.call("glob", pattern="**/leaf.*") == ["src/deep/leaf.txt"]
    assert at.call("glob", pattern="Knowledge/**/*.md") == [
        "Knowledge/Deep/More.md",
        "Knowledge/Notes.md",
    ]
    assert at.call("glob", pattern="nowhere/*") == []
    assert at.call("glob", pattern="src/main.py") == ["src/main.py"]
    for bad in ("../**", "/etc/*", "~/x", "a/../b", "{a,b}", "src/**x", "[z-a]", "!x", "a\\b"):
        assert at.fails("glob", pattern=bad)["error_type"] == "bad_glob", bad
    began = time.monotonic()
    at.call("glob", pattern="**/" * 100 + "*a*a*a*a*a*a*a*b")
    assert time.monotonic() - began < 20


def test_the_vaults_knowledge_is_read_only(at: Bench) -> None:
    assert at.call("read_file", path="Knowledge/Notes.md").startswith("# Notes")
    listed = at.call("list_directory", path="Knowledge").splitlines()
    assert [line.split()[0] for line in listed] == ["Deep/", "Notes.md"]
    assert at.call("search_files", pattern="vault", path="Knowledge/")["lines"] == [
        "Knowledge/Notes.md:2:hello from the vault"
    ]
    assert (
        at.fails("write_file", path="Knowledge/Notes.md", content="x")["error_type"]
        == "outside_scope"
    )


def test_scope_refusal_lists_what_is_allowed(at: Bench) -> None:
    error = at.fails("write_file", path="README.md", content="x")
    assert error["error_type"] == "outside_scope"
    assert error["allowed"] == list(SCOPE.write)
    assert at.fails("run_command", command="rm", args=["-rf", "/"])["allowed"] == ["seq", "both"]
    outcome = at.tools.dispatch("write_file", {"path": "README.md", "content": "x"})
    assert outcome.refused


def test_command_result_has_contract_fields(at: Bench) -> None:
    ran = at.call("run_command", command="both", args=[])
    assert set(ran) == {"exit_code", "stdout", "stderr", "timed_out"}
    assert (ran["exit_code"], ran["timed_out"]) == (3, False)
    assert at.call("bash", command="echo hi | cat")["stdout"] == "hi\n"
    assert at.fails("run_command", command="seq", args=["1"])["error_type"] == "command_not_found"
    assert at.fails("run_command", command="seq", args=["x" * 200_000])["error_type"] == "too_long"


def test_control_tool_calls_reach_their_handler(at: Bench) -> None:
    assert at.call("complete_step", step=1, summary="Done")["step"] == 1
    plan = {"title": "T", "summary": "S", "steps": [{"title": "One"}]}
    assert at.call("submit_plan", **plan) == {"accepted": True}
    at.call("finish", summary="All done")
    at.call("give_up", reason="No")


def test_unicode_forms_of_name_share_one_file(at: Bench) -> None:
    for form in ("NFC", "NFD"):
        assert (
            at.call("read_file", path=unicodedata.normalize(form, "caf\u00e9.md")) == "composed\n"
        )
    assert (
        at.fails("write_file", path="cafe\u0301.md", content="twin")["error_type"]
        == "other_spelling"
    )
    assert at.call("write_file", path="caf\u00e9.md", content="same\n")["written_bytes"] == 5
    assert at.call("grep", pattern="same", path="cafe\u0301.md") == "caf\u00e9.md:1:same"


def test_file_tools_redact_detected_secrets(at: Bench) -> None:
    assert (
        at.call("read_file", path=".env")
        == "DB_PASSWORD=[redacted: value]\nDEBUG=[redacted: value]\n"
    )
    assert at.call("grep", pattern="hunter2") == "No line matches in 14 files."
    assert at.fails("edit_file", path=".env", old="hunter2", new="x")["error_type"] == "secret_file"
    token = "ghp_" + "aB3d" * 9
    at.call("write_file", path="src/k.py", content=f"K = '{token}'\nL = 1\n")
    assert at.call("read_file", path="src/k.py") == "K = '[redacted: GitHub token]'\nL = 1\n"
    for guess in ("ghp_", token[:8], token, "g"):
        assert (
            at.fails("edit_file", path="src/k.py", old=guess, new="x")["error_type"]
            == "not_found_in_file"
        )
    at.call("edit_file", path="src/k.py", old="L = 1", new="L = 2")
    assert at.files()["src/k.py"] == f"K = '{token}'\nL = 2\n".encode()
    at.call("write_file", path="new/id_rsa", content="anything")
    assert at.fails("read_file", path="new/id_rsa")["error_type"] == "secret_file"


def test_link_to_secret_file_shows_no_more_than_the_file(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {".env": "PIN=4711\n", "src/password.txt": "hunter2\n"}
    files |= {".ssh/config": "Port 4711\n"}
    links = {"src/env.md": "../.env", "src/key.md": "password.txt", "src/ssh": "../.ssh"}
    with bench("real", tmp_path, files, scope=SCOPE) as at:
        assert isinstance(at.tools, Toolbox)
        for link, leads_to in links.items():
            (at.tools.place.root.path / link).symlink_to(leads_to)
        assert at.call("read_file", path="src/env.md") == "PIN=[redacted: value]\n"
        for path in ("src/key.md", "src/ssh/config"):
            assert at.fails("read_file", path=path)["error_type"] == "secret_file"
        for path in ("src", "src/env.md", "src/key.md", "src/ssh", "."):
            assert "No line" in at.call("grep", pattern="4711|hunter", path=path), path
        for path in links:
            edited = at.fails("edit_file", path=path, old="4711", new="x")
            assert edited["error_type"] == (
                "secret_file" if path != "src/ssh" else "is_a_directory"
            )


@pytest.mark.parametrize("kind", ["real", "memory"])
def test_known_secrets_are_redacted_in_every_tool(kind: str, tmp_path: Path) -> None:
    secret = "correct-horse-9"
    files: dict[str, str | bytes] = {"a.txt": f"x {secret} y\n", f"{secret}.md": "z\n"}
    scope = Scope(write=("**",), run=((secret,),), shell=True)
    commands = {f"{secret} x": (0, f"ok {secret}", f"{secret}!"), "sh": (0, secret, "")}
    with bench(kind, tmp_path, files, scope=scope, secrets=[secret], commands=commands) as at:
        asked = [
            ("read_file", {"path": "a.txt"}),
            ("list_directory", {"path": "."}),
            ("grep", {"pattern": "x .* y"}),
            ("glob", {"pattern": "*"}),
            ("search_files", {"pattern": "x"}),
            ("bash", {"command": "sh"}),
            (secret, {}),
            ("run_command", {"command": secret, "args": ["x"]}),
            ("read_file", {"path": f"{secret}/none"}),
            ("finish", {"summary": secret}),
        ]
        for name, given_ in asked:
            content = at.tools.dispatch(name, given_).content
            assert secret not in content, name
        assert "[redacted: secret]" in at.call("read_file", path="a.txt")


# --- arguments


@pytest.mark.parametrize("tool", [t for t in TOOLS if t.args.model_fields], ids=lambda t: t.name)
def test_all_argument_problems_are_reported_together(at: Bench, tool: Any) -> None:
    fields = tool.args.model_fields
    required = [name for name, info in fields.items() if info.is_required()]
    last = list(fields)[-1]
    wrong = {
        last[:-1] + "x": 1,
        **{name: {"no": ["such", "type"]} for name in fields if name not in required},
    }
    error = at.fails(tool.name, **wrong)
    assert error["error_type"] == "invalid_arguments"
    assert len(error["problems"]) >= len(required) + 1
    for name in required:
        assert any(p.startswith(f"{name}:") for p in error["problems"])
    assert any(f"Did you mean '{last}'?" in p for p in error["problems"])
    assert error["parameters"] == sorted(fields)


def test_unknown_tool_error_suggests_closest_name(at: Bench) -> None:
    error = at.fails("read_fil", path="x")
    assert "Did you mean 'read_file'?" in error["error"]
    assert error["available"] == sorted(BY_NAME)
    assert at.fails("x" * 100_000)["error_type"] == "unknown_tool"


def test_tool_schemas_fit_messages_api() -> None:
    tools = [tool.spec() for tool in TOOLS]
    assert [t.name for t in tools] == [t.name for t in InMemoryToolDispatcher().offered()]
    contract = {
        "read_file": ["path"],
        "write_file": ["path", "content"],
        "edit_file": ["path", "old", "new"],
        "delete_file": ["path"],
        "list_directory": ["path"],
        "search_files": ["pattern"],
        "grep": ["pattern"],
        "glob": ["pattern"],
        "run_command": ["command"],
        "bash": ["command"],
        "take_screenshot": [],
        "submit_plan": ["title", "summary", "steps", "scope"],
        "complete_step": ["step", "summary"],
        "ask_person": ["question"],
        "request_scope": ["why"],
        "finish": ["summary"],
        "give_up": ["reason"],
    }
    assert {t.name: t.input_schema.get("required", []) for t in tools} == contract
    for tool in tools:
        schema = dict(tool.input_schema)
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        json.dumps(schema)
        if BY_NAME[tool.name].effect is not Effect.CONTROL:
            assert all("description" in p for p in schema["properties"].values()), tool.name


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["src", "README.md", "..", "/", ".git", "*", "\0", "\ud800", "\udcff", "a" * 5000, "~"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = sorted({name for tool in TOOLS for name in tool.args.model_fields})


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([t.name for t in TOOLS if t.name != "take_screenshot"]),
    given_=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4),
)
def test_arbitrary_model_arguments_never_raise(
    at: Bench, name: str, given_: dict[str, Any]
) -> None:
    outcome = at.tools.dispatch(name, given_)
    outcome.content.encode()
    if not outcome.ok:
        error = json.loads(outcome.content)
        assert error["error_type"] == outcome.error_type
        assert error["error"]


# --- long results


@pytest.mark.parametrize("path", ["many.txt", "long.txt", "wide.txt"])
def test_file_cut_in_middle_stays_fully_readable(at: Bench, path: str) -> None:
    outcome = at.tools.dispatch("read_file", {"path": path})
    whole = FILES[path]
    assert isinstance(whole, str)
    assert "words cut here" in outcome.content
    if path == "many.txt":
        words = outcome.content[: outcome.content.index("[…")].split()
        assert words == whole.split()[:500]
        assert outcome.content[outcome.content.index("…]") + 2 :].split() == whole.split()[-500:]
        assert "3,000 words cut here: lines 251 to 1,750 of 2,000" in outcome.content
        found = MARKER.search(outcome.content)
        assert found is not None
        assert (found["path"], found["offset"]) == ("many.txt", "251")
        assert (
            at.tools.dispatch("read_file", {"path": path, "offset": 251, "limit": 1}).content
            == "line 251\n"
        )
    assert all_of(at.tools, outcome.content).replace("\n", "").replace(" ", "") == whole.replace(
        "\n", ""
    ).replace(" ", "")


def test_truncated_command_output_stays_json_and_readable(at: Bench) -> None:
    outcome = at.tools.dispatch("run_command", {"command": "seq", "args": ["5000"]})
    ran = json.loads(outcome.content)
    assert ran["stdout"].split()[:500] == [str(n) for n in range(1, 501)]
    assert ran["stdout"].split()[-500:] == [str(n) for n in range(4501, 5001)]
    assert all_of(at.tools, ran["stdout"]).split() == [str(n) for n in range(1, 5001)]
    both = at.call("run_command", command="both", args=[])
    assert 490 <= both["stdout"].count("out") <= 510
    assert 490 <= both["stderr"].count("err") <= 510
    assert at.fails("read_file", path="@result/none")["error_type"] == "not_kept"


@pytest.mark.parametrize("kind", ["real", "memory"])
def test_long_lists_are_truncated_by_entry(kind: str, tmp_path: Path) -> None:
    with bench(kind, tmp_path, {f"d/file-{n:04}.txt": "x" for n in range(1200)}) as at:
        lines = at.call("list_directory", path="d").splitlines()
        assert (lines[0], lines[-1]) == ("file-0000.txt 1", "file-1199.txt 1")
        (note,) = [line for line in lines if "words cut here" in line]
        assert all_of(at.tools, note).split("\n") == [f"file-{n:04}.txt 1" for n in range(1200)]
        found = at.tools.dispatch("glob", {"pattern": "d/*"})
        assert "entries cut here" in found.content
        assert (
            len(
                all_of(
                    at.tools, next(e for e in json.loads(found.content) if e.startswith("…"))
                ).splitlines()
            )
            == 1200
        )


# --- the one in memory


def test_public_module_doctest_passes() -> None:
    tried = doctest.testmod(placet.testing)
    assert tried.attempted > 5
    assert not tried.failed


def test_memory_dispatcher_confines_writes_and_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tools = InMemoryToolDispatcher({"a/b": "1"}, knowledge={"n.md": "note"})
    assert tools.dispatch("write_file", {"path": "c", "content": "2"}).ok
    assert not tools.dispatch("write_file", {"path": "../d", "content": "3"}).ok
    assert len(list(tmp_path.iterdir())) == 1
    del tools
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_failures_are_injected_by_call_number() -> None:
    tools = InMemoryToolDispatcher(
        {"a": "1"},
        failures={
            ("read_file", 1): ToolError("io_error", "the disk says no"),
            ("write_file", 0): "no space",
        },
    )
    assert tools.dispatch("read_file", {"path": "a"}).ok
    assert json.loads(tools.dispatch("read_file", {"path": "a"}).content) == {
        "error": "the disk says no",
        "error_type": "io_error",
    }
    assert tools.dispatch("read_file", {"path": "a"}).ok
    assert json.loads(tools.dispatch("write_file", {"path": "a", "content": "2"}).content) == {
        "error": "no space",
        "error_type": "injected_failure",
    }
    assert tools.files == {"a": b"1"}
    assert tools.dispatch("write_file", {"path": "a", "content": "2"}).ok
    assert tools.files == {"a": b"2"}
    assert [name for name, _ in tools.calls] == ["read_file"] * 3 + ["write_file"] * 2


def test_memory_dispatcher_records_agent_decisions() -> None:
    tools = InMemoryToolDispatcher(
        commands=lambda argv: (0, " ".join(argv), ""), scope=Scope(run=(("echo",),))
    )
    assert (
        json.loads(tools.dispatch("run_command", {"command": "echo", "args": ["x"]}).content)[
            "stdout"
        ]
        == "echo x"
    )
    tools.dispatch("complete_step", {"step": 1, "summary": "One"})
    assert (
        json.loads(tools.dispatch("complete_step", {"step": 1, "summary": "One"}).content)[
            "error_type"
        ]
        == "step_done"
    )
    tools.dispatch("submit_plan", {"title": "T", "summary": "S", "steps": [{"title": "A"}]})
    tools.dispatch("give_up", {"reason": "no"})
    tools.dispatch("finish", {"summary": "yes"})
    assert (tools.steps_done, tools.gave_up, tools.finished) == ([(1, "One")], "no", "yes")
    assert tools.plans[0].title == "T"


CALLS: list[tuple[str, dict[str, Any]]] = [
    *[
        ("read_file", {"path": p})
        for p in [
            *FILES,
            "none",
            "src",
            ".",
            "src/main.py/x",
            ".git/config",
            "~",
            "..",
            "a/../b",
            "x" * 300,
            "/etc/passwd",
            "Knowledge/Deep/More.md",
            "Knowledge",
            "Knowledge/none",
            "",
            "src/",
            "\udcff",
        ]
    ],
    *[
        ("list_directory", {"path": p})
        for p in [".", "src", "src/", "none", "README.md", ".git", "..", "Knowledge/Deep"]
    ],
    *[
        ("write_file", {"path": p, "content": "c\n"})
        for p in [
            "new/a",
            "new/a/b",
            "src",
            ".git/hooks/x",
            "new/",
            "..",
            "new/.GIT/x",
            "new/" + "d/" * 70,
        ]
    ],
    *[
        ("glob", {"pattern": p})
        for p in ["**", "*", "src/*", "src/**", "?????", "[a-c]*", "**/*.txt", ".*"]
    ],
    *[("grep", {"pattern": p}) for p in ["line 19..", "x", ".", "^$"]],
    *[
        ("search_files", {"pattern": p, "path": w})
        for p in ["leaf", "line 19", "e"]
        for w in [".", "src", "src/main.py", "none"]
    ],
]


def test_real_and_memory_dispatchers_answer_alike(tmp_path: Path) -> None:
    with (
        bench("real", tmp_path, FILES, scope=SCOPE, knowledge=KNOWLEDGE) as one,
        bench("memory", tmp_path, FILES, scope=SCOPE, knowledge=KNOWLEDGE) as other,
    ):
        for name, given_ in CALLS:
            real_, virtual = one.tools.dispatch(name, given_), other.tools.dispatch(name, given_)
            assert (real_.ok, real_.error_type, real_.refused) == (
                virtual.ok,
                virtual.error_type,
                virtual.refused,
            ), (name, given_)
            if real_.ok:
                assert real_.content == virtual.content, (name, given_)
        assert one.files() == other.files()


# --- paths

ARGUMENTS: list[tuple[str, str, dict[str, Any]]] = [
    ("read_file", "path", {}),
    ("edit_file", "path", {"old": "canary", "new": "bird"}),
    ("delete_file", "path", {}),
    ("list_directory", "path", {}),
    ("search_files", "path", {"pattern": "canary is"}),
    ("grep", "path", {"pattern": "canary is"}),
    ("grep", "glob", {"pattern": "canary is"}),
    ("glob", "pattern", {}),
    ("take_screenshot", "path", {}),
    ("write_file", "path", {"content": "w"}),
]


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Any]]:
    """A worktree full of links, a canary beside it, and a browser that only takes down what it was
    to open.
    """
    root = tmp_path / "up" / "worktree"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "main.py").write_bytes(b"print()\n")
    (root / "README.md").write_bytes(b"# Read me\n")
    (root / ".git").write_bytes(b"gitdir: elsewhere\n")
    (tmp_path / "up" / "canary.txt").write_bytes(CANARY)
    (tmp_path / "up" / "yard").mkdir()
    (tmp_path / "up" / "yard" / "canary.txt").write_bytes(CANARY)
    plant(root)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "chromium-headless-shell").write_text("#!/bin/sh\n")
    (programs / "chromium-headless-shell").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # thousands of writes need no flushing

    def browse(argv: Any, box: Box, level: Level, *, cancelled: Any) -> Ran:
        page = argv[-1]
        assert page.startswith(root.as_uri() + "/"), page
        assert ".." not in page.split("/")
        return Ran(1, "", "")

    with real(root, scope=EVERYTHING, level=Level.BUBBLEWRAP, run_with=browse) as tools:
        yield root, tools


def assault(root: Path, tools: Toolbox, table: list[str]) -> str:
    """Try each payload on each path argument of each tool; return the figures."""
    control = naive(root, [p for p in table if "fd/" not in p and "stdin" not in p])  # type: ignore[arg-type]
    assert control >= 10, "the control must leak"
    outside = root.parent.parent
    before = snapshot(outside, without=root)
    refused = calls = 0
    took: list[float] = []
    for tool, argument, others in ARGUMENTS:
        for payload in table:
            began = time.perf_counter()
            outcome = tools.dispatch(tool, {**others, argument: payload})
            took.append(time.perf_counter() - began)
            calls += 1
            refused += not outcome.ok
            assert CANARY.decode() not in outcome.content, (tool, payload)
            assert "root:x:" not in outcome.content, (tool, payload)
        plant(root)
    assert snapshot(outside, without=root) == before
    assert max(took) < 20
    return (
        f"{len(table)} payloads, {calls} calls, {refused} refused, 0 leaks; naive join and open: {control} leaks; "
        f"median {statistics.median(took) * 1e6:.0f} µs, slowest {max(took) * 1e3:.0f} ms"
    )


def test_no_tool_path_allows_traversal(hostile: tuple[Path, Any]) -> None:
    root, tools = hostile
    table = spellings(payloads(root))
    thinned = table[:: max(1, len(table) // 1000)]
    assert len(thinned) >= 1000
    print(assault(root, tools, thinned))


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_sweep_of_traversal_payloads_leaks_nothing(hostile: tuple[Path, Any]) -> None:
    """All payloads, and those of a file: `PLACET_PAYLOADS=FILE pytest -m sweep`, one payload a
    line, raw bytes.
    """
    root, tools = hostile
    lines = (
        Path(os.environ["PLACET_PAYLOADS"]).read_bytes().splitlines()
        if "PLACET_PAYLOADS" in os.environ
        else []
    )
    table = spellings([line.decode("utf-8", "surrogateescape") for line in lines] + payloads(root))
    print(f"\n{assault(root, tools, table)}")
