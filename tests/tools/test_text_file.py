"""Test that text files keep their form, whatever the model reads, edits and writes."""

from __future__ import annotations

import codecs
import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from benchkit import real
from gitkit import git, make_repo
from placet.git.attributes import Attributes, attributes
from placet.git.repository import head, open_repo
from placet.git.worktree import Worktree, add_worktree
from placet.plan.scope import Scope
from placet.secrets import redact
from placet.testing import InMemoryToolDispatcher
from placet.tools.base import Outcome, Toolbox
from placet.tools.commit_secrets import refuse_uncommittable
from placet.tools.text_file import text_file

LINES = ("one", "zwei \u00fc", "three", "four")
ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r", "mixed": ""}
CODECS = {
    "utf-8": ("", "utf-8", ""),
    "latin-1": ("", "latin-1", ""),
    "latin-1 by git": ("ISO-8859-1", "latin-1", ""),
    "utf-16": ("", "utf-16-le", ""),
    "utf-16 by git": ("UTF-16", "utf-16-le", "\ufeff"),
    "utf-16le by git": ("UTF-16LE", "utf-16-le", ""),
}
MARKS = {"utf-8": codecs.BOM_UTF8, "latin-1": codecs.BOM_UTF8, "utf-16": codecs.BOM_UTF16_LE}


def joined(lines: tuple[str, ...], end: str, *, final: bool) -> str:
    ends = [end or ("\r\n", "\n")[n % 2] for n in range(len(lines))]
    if not final:
        ends[-1] = ""
    return "".join(line + one for line, one in zip(lines, ends, strict=True))


def tools_on(data: bytes, known: Attributes) -> InMemoryToolDispatcher:
    made = InMemoryToolDispatcher({"a.txt": data})
    place = replace(
        made._box.place, refuse=lambda _: {"a.txt": known}, attributes=lambda _: {"a.txt": known}
    )
    made._box = Toolbox(made._box.tools, place)
    return made


def refused(outcome: Outcome) -> str:
    assert not outcome.ok
    error: dict[str, Any] = json.loads(outcome.content)
    assert "Read the file again" not in error["error"]
    assert "person" in error["error"] or "edit_file" in error["error"]
    return outcome.error_type


@pytest.mark.parametrize("final", [True, False], ids=["final newline", "no final newline"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", CODECS)
@pytest.mark.parametrize("marked", [False, True], ids=["plain", "bom"])
def test_every_form_of_text_is_kept(form: str, end: str, *, marked: bool, final: bool) -> None:
    named, codec, first = CODECS[form]
    if marked and named:
        pytest.skip("git says whether such a file has a mark")
    bom = MARKS[form] if marked else first.encode(codec)
    whole = partial(joined, end=ENDS[end], final=final)

    def bytes_of(lines: tuple[str, ...]) -> bytes:
        return bom + whole(lines).encode(codec)

    def call(tool: str, **given: str) -> tuple[Outcome, bytes]:
        tools = tools_on(bytes_of(LINES), Attributes(encoding=named))
        return tools.dispatch(tool, {"path": "a.txt", **given}), tools.files["a.txt"]

    shown = joined(LINES, "\n", final=final)
    new = ("one", "zwei \u00fc", "THREE", "four")
    ascii_edit = {"old": "three\nfour", "new": "THREE\nfour"}
    other_edit = {"old": "zwei \u00fc\nthree", "new": "zwei \u00fc\n\u00e4"}
    read, _ = call("read_file")
    if form == "utf-16":
        assert refused(call("edit_file", **ascii_edit)[0]) == "not_text"
        assert refused(call("write_file", content=shown)[0]) == "not_text"
        assert read.error_type == "not_text"
        return
    assert call("edit_file", **ascii_edit)[1] == bytes_of(new)
    if form == "latin-1":
        assert read.content == shown.replace("\u00fc", "\ufffd")
        assert refused(call("edit_file", **other_edit)[0]) == "other_encoding"
        assert refused(call("write_file", content="ascii\n")[0]) == "other_encoding"
        return
    assert read.content == shown
    assert call("edit_file", **other_edit)[1] == bytes_of(("one", "zwei \u00fc", "\u00e4", "four"))
    written, after = call("write_file", content=joined(new, "\n", final=not final))
    if end == "mixed":
        assert refused(written) == "mixed_line_ends"
        assert after == bytes_of(LINES)
    else:
        assert after == bytes_of(new)


def test_search_shows_what_reading_shows() -> None:
    data = joined(LINES, "\r\n", final=True).encode("utf-16")
    tools = tools_on(data, Attributes(encoding="UTF-16"))
    assert tools.dispatch("grep", {"pattern": "zwei .$"}).content == "a.txt:2:zwei \u00fc"
    assert tools.dispatch("search_files", {"pattern": "ZWEI \u00dc"}).content.count("zwei") == 1


@pytest.mark.parametrize("tool", ["grep", "search_files"])
def test_search_redacts_only_files_that_match(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = f"needle: ghp_{'a1' * 20}\n"
    tools = InMemoryToolDispatcher({"a.txt": key, **{f"{n}.txt": "hay\n" for n in range(9)}})
    redacted = Mock(wraps=redact)
    monkeypatch.setattr("placet.tools.text.redact", redacted)
    found = tools.dispatch(tool, {"pattern": "needle"}).content
    assert "needle: [redacted: GitHub token]" in found
    assert redacted.call_count == 1
    assert "a.txt" not in tools.dispatch(tool, {"pattern": "ghp_a1"}).content


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("b\nc\n", "b\nnew\nc\n", b"a\r\nb\nnew\nc\r\nd\n"),
        ("a\nb\n", "a\nb\nc\nmore\n", b"a\r\nb\nc\nmore\nc\r\nd\n"),
        ("a\nb\nc\n", "C\n", b"C\r\nd\n"),
        ("a", "first\na", b"first\r\na\r\nb\nc\r\nd\n"),
        ("c\nd", "c", b"a\r\nb\nc\n"),
        ("b\r\nc", "B\r\nC", b"a\r\nB\nC\r\nd\n"),
    ],
)
def test_mixed_lines_keep_their_own_ends(old: str, new: str, after: bytes) -> None:
    tools = tools_on(b"a\r\nb\nc\r\nd\n", Attributes())
    assert tools.dispatch("edit_file", {"path": "a.txt", "old": old, "new": new}).ok
    assert tools.files["a.txt"] == after


def test_edit_that_would_join_lines_is_refused() -> None:
    """A lone CR before an LF reads as one line end."""
    tools = tools_on(b"\r\xc3\xa9\na", Attributes())
    edit = {"path": "a.txt", "old": "\u00e9\na", "new": "\n"}
    assert refused(tools.dispatch("edit_file", edit)) == "mixed_line_ends"
    assert tools.files["a.txt"] == b"\r\xc3\xa9\na"


def test_edit_changes_no_other_byte() -> None:
    dice = random.Random(7)
    for _ in range(300):
        ends = dice.choices(["\n", "\r\n", "\r"], k=12)
        lines = [dice.choice(["", "x", "\u00e9t\u00e9", "same"]) + str(n) for n in range(12)]
        before = "".join(line + end for line, end in zip(lines, ends, strict=True))
        first, last = sorted(dice.sample(range(12), 2))
        at = dice.randrange(first, last + 1)
        changed = [*lines[:at], "new", *lines[at + 1 :]]
        old, new = ("\n".join(some[first : last + 1]) + "\n" for some in (lines, changed))
        done, count = text_file("a", before.encode(), Attributes()).edited(old, new, ())
        wanted = "".join(line + end for line, end in zip(changed, ends, strict=True))
        assert (done.decode(), count) == (wanted, 1)


def test_half_of_a_character_is_not_replaced() -> None:
    data = "\u8868 = 1\n\\ = 2\n".encode("shift-jis")  # its second byte is a backslash
    file = text_file("a", data, Attributes())
    assert file.edited("\\", "/", ()) == (data.replace(b"\n\\", b"\n/"), 1)


@pytest.mark.parametrize(
    ("known", "written"),
    [
        (Attributes(encoding="UTF-16"), "\ufeffh\u00e9\n".encode("utf-16-le")),
        (Attributes(eol="crlf"), "h\u00e9\r\n".encode()),
        (Attributes(), "h\u00e9\n".encode()),
    ],
)
def test_new_file_gets_gits_form(known: Attributes, written: bytes) -> None:
    assert text_file("a", b"", known).rewritten("h\u00e9\n") == written


def test_unknown_codecs_are_never_run() -> None:
    for name in ("zip", "unicode_escape", "idna", "nonsense", "utf-99"):
        tools = tools_on(b"x\n", Attributes(encoding=name))
        edit = {"path": "a.txt", "old": "x", "new": "y"}
        assert tools.dispatch("edit_file", edit).error_type == "not_text"


def test_text_that_the_encoding_lacks_is_refused() -> None:
    tools = tools_on(b"x\n", Attributes(encoding="ISO-8859-1"))
    done = tools.dispatch("edit_file", {"path": "a.txt", "old": "x", "new": "\u2192"})
    assert refused(done) == "other_encoding"


def test_literal_write_is_byte_for_byte() -> None:
    tools = tools_on(codecs.BOM_UTF8 + b"a\r\nb\n", Attributes())
    box = Toolbox(tools._box.tools, replace(tools._box.place, literal=True))
    box.dispatch("write_file", {"path": "a.txt", "content": "x\r\ny"})
    assert tools.files["a.txt"] == b"x\r\ny"


def worktree_of(repo: Path, where: Path) -> Worktree:
    opened = open_repo(repo)
    return add_worktree(opened, where, "feat/x", head(opened))


def test_git_stores_what_the_model_wrote(tmp_path: Path) -> None:
    rules = (
        "*.u16 working-tree-encoding=UTF-16\n*.l1 working-tree-encoding=ISO-8859-1\n*.w eol=crlf\n"
    )
    repo = make_repo(tmp_path / "repo", {".gitattributes": rules})
    names = ("a.u16", "a.l1", "a.w")
    for name in names:
        blob = git(repo, "hash-object", "-w", "--stdin", stdin="gr\u00fcn\nblau\n".encode())
        git(repo, "update-index", "--add", "--cacheinfo", f"100755,{blob},{name}")
    git(repo, "commit", "-q", "-m", "Add files")
    tree = worktree_of(repo, tmp_path / "tree")
    with real(tree.path, scope=Scope(write=("**",))) as box:
        place = replace(
            box.place,
            refuse=partial(refuse_uncommittable, tree),
            attributes=partial(attributes, tree),
        )
        box = Toolbox(box.tools, place)  # noqa: PLW2901 - the same one, with git
        for name in names:
            assert box.dispatch("read_file", {"path": name}).content == "gr\u00fcn\nblau\n"
            edit = {"path": name, "old": "gr\u00fcn\n", "new": "gr\u00fcn\n\u00fc\n"}
            assert box.dispatch("edit_file", edit).ok
            text = "gr\u00fcn\n\u00fc\nrot\n"
            assert box.dispatch("write_file", {"path": name, "content": text}).ok
            new = {"path": f"new{name}", "content": "n\u00fc\n"}
            assert box.dispatch("write_file", new).ok
    git(tree.path, "add", "-A")
    for name in names:
        assert git(tree.path, "show", f":{name}") == "gr\u00fcn\n\u00fc\nrot"
        assert git(tree.path, "show", f":new{name}") == "n\u00fc"
        assert git(tree.path, "ls-files", "-s", name).startswith("100755")
