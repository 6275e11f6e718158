"""Test how the board shows a mission's difference: lines, colours, binary files and pictures."""

from __future__ import annotations

import re
import struct
import time
import zlib
from pathlib import Path

import pytest
from tests.plan.test_growth_of_texts import MOST, took_s

import placet_board
from boardhttp import elements
from gitkit import make_repo
from pagekit import browsing
from payloads import payloads
from placet.client.difference import Difference
from placet_board.difference import (
    FOLDED_FROM,
    LEXERS,
    MAX_FILES,
    MAX_INLINE_CHARS,
    MAX_LINE_CHARS,
    MAX_LINES,
    coloured,
    patch_of,
)
from vaultkit import PLAN, TestVault, make_vault

FILES = Path(placet_board.__file__).parent
DIFF_STYLES = {
    *("tree", "numbers", "plus", "minus", "changed", "file", "diff", "quiet", "rest"),
    *("added", "removed", "where", "changed-pictures"),
}
"""The classes of a difference that have a style wherever they stand."""


def new_file(name: str, lines: int, line: str = "x = {n}") -> str:
    body = "".join(f"+{line.format(n=n)}\n" for n in range(lines))
    return (
        f"diff --git a/{name} b/{name}\nnew file mode 100644\nindex 0000000..a1b2c3d\n"
        f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{lines} @@\n{body}"
    )


def binary(name: str, before: str, after: str) -> str:
    return (
        f"diff --git a/{name} b/{name}\nindex {before}..{after} 100644\n"
        f"Binary files a/{name} and b/{name} differ\n"
    )


@pytest.mark.parametrize(
    ("name", "shown", "coloured"),
    [("a b/c.py", "a b/c.py", True), ("x b/x b/y.txt", "x b/x b/y.txt", False)],
)
def test_file_is_named_as_it_is(name: str, shown: str, coloured: bool) -> None:
    text = new_file(name, 1, "import os  # {n}")
    (file,) = patch_of(Difference(text, {})).files
    assert (file.name, "<span" in str(file.lines[-1].html)) == (shown, coloured)


def test_quoted_name_has_its_colours() -> None:
    text = new_file("x", 1, "import os").replace("a/x b/x", r'"a/\303\274.py" "b/\303\274.py"')
    (file,) = patch_of(Difference(text, {})).files
    assert file.name == r"\303\274.py"
    assert "<span" in str(file.lines[-1].html)


def test_difference_takes_no_style_of_other_parts() -> None:
    css = (FILES / "static/board.css").read_text()
    text = new_file("x.sh", 1).replace("index", "old mode 100644\nindex") + "\\ No newline\n"
    kinds = {line.kind for file in patch_of(Difference(text, {})).files for line in file.lines}
    template = (FILES / "templates/diff.html").read_text()
    named = set(re.findall(r'class="([\w-]+)"', template))
    alone = set(re.findall(r"(?:^|[,}]\s*)\.([\w-]+)(?=\s*[,{])", css, re.MULTILINE))
    assert (kinds | named) & alone <= DIFF_STYLES


def test_rendered_patch_contains_only_highlighting_spans() -> None:
    for text in payloads():
        for name in ("a.py", "a.html", "a.md", "a.js", text.replace("\n", " ")):
            lines = "\n".join(f"{sign}{line}" for line in text.split("\n") for sign in "+- ")
            patch = patch_of(
                Difference(
                    f"diff --git a/{name} b/{name}\nnew file mode 1\n@@ {text}\n{lines}\n\\ {text}",
                    {},
                )
            )
            for line in (line for file in patch.files for line in file.lines):
                for tag, attributes in elements(str(line.html)):
                    assert tag == "span", line
                    assert set(attributes) == {"class"}, line
                    assert re.fullmatch(r"s-\w+( s-\w+)*", attributes["class"] or ""), line


def test_long_files_are_sent_when_opened() -> None:
    text = new_file("a.py", FOLDED_FROM - 1) + new_file("b.py", FOLDED_FROM + 1)
    found = Difference(text + new_file("c.py", 2), {})
    short, long, last = patch_of(found).files
    assert (len(short.lines), long.lines, long.total) == (FOLDED_FROM + 1, (), FOLDED_FROM + 2)
    assert last.lines
    assert [bool(file.lines) for file in patch_of(found, 1).files] == [False, True, False]
    many = "".join(new_file(f"{n}.txt", 10, "y" * 490) for n in range(10))
    files = patch_of(Difference(many, {})).files
    shown = [sum(len(line.html) for line in file.lines) for file in files]
    assert 0 < sum(shown) <= MAX_INLINE_CHARS + 1000
    assert not shown[-1]


def test_difference_has_limited_files_and_lines() -> None:
    patch = patch_of(Difference(new_file("a", 1) * (MAX_FILES + 1), {}))
    assert (len(patch.files), patch.is_cut) == (MAX_FILES, True)
    (file,) = patch_of(Difference(new_file("a", MAX_LINES + 9), {}), 0).files
    assert len(file.lines) == MAX_LINES + 1  # and that it is new
    assert file.rest == 10


def test_binary_file_is_told_in_words() -> None:
    sizes = {"aaaa": 812, "bbbb": 3_100}
    text = binary("n.bin", "0000", "bbbb") + binary("m.png", "aaaa", "bbbb")
    text += binary("d.svg", "aaaa", "0000")
    told = [
        (file.about, file.pictures, file.total) for file in patch_of(Difference(text, sizes)).files
    ]
    assert told == [
        ("binary, new, 3.1 kB", (), 0),
        ("binary, 812 bytes, now 3.1 kB", (("before", "aaaa"), ("after", "bbbb")), 0),
        ("binary, deleted, 812 bytes", (), 0),
    ]


PATTERNS = [
    *map(chr, range(32, 127)),
    *(
        "\t",
        "a ",
        "(a",
        "[(",
        "/*",
        "<a ",
        '\\"',
        "${",
        "{{",
        "<!--",
        "&x",
        "=x ",
        "a.",
        "a::",
        "-x ",
    ),
    *("0x", "1e", "%(", "<?", "</", '"""', "a: ", "- ", "| ", "**", "](", "$((", "r#", "&#", "if "),
]


@pytest.mark.parametrize("kind", sorted(set(LEXERS.values()), key=lambda kind: kind.name))
def test_hostile_line_is_coloured_quickly(kind: type) -> None:
    lexer = kind(stripnl=False)
    for pattern in PATTERNS:
        for text in ((pattern * MAX_LINE_CHARS)[:MAX_LINE_CHARS], f"x{pattern * 250}"[:500]):
            took = []
            for _ in range(3):
                began = time.process_time()
                html = coloured(text, lexer)
                took.append(time.process_time() - began)
                if took[-1] < 0.1:
                    break
            else:
                pytest.fail(f"{kind}, {pattern!r}: {took}")
            assert re.sub(r"</?span[^>]*>", "", html) == str(coloured(text, FLAT))


class Flat:
    """A lexer without colours."""

    def get_tokens_unprocessed(self, text: str) -> list[tuple[int, object, str]]:
        from pygments.token import Text

        return [(0, Text, text)]


FLAT = Flat()


def test_colours_of_a_page_take_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placet_board.difference.COLOUR_S", 0.0)
    (file,) = patch_of(Difference(new_file("a.py", 50, "def f(): return {n}"), {})).files
    assert not [line for line in file.lines if "<span" in line.html]


def test_hostile_difference_of_twice_the_size_takes_twice_the_time() -> None:
    """A megabyte takes 0.15 to 0.35 s; on a slow machine more."""
    for line in ("\u202e", "+\n", f"+{' ' * 490}\n", "+\t\n@@ \n"):
        lines = 500_000 // len(line.encode())
        one, other = (
            took_s(
                lambda body: patch_of(
                    Difference(f"diff --git a/x.c b/x.c\n@@ -1 +1 @@\n{body}", {}), 0
                ),
                line * lines * times,
                3,
            )
            for times in (1, 2)
        )
        assert other <= MOST * max(one, 0.05), repr(line[:9])


# --- on the page ---------------------------------------------------------------------------------


def png(colour: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes([colour]) * 6) * 2
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


SCRIPT = """
from pathlib import Path
Path("new.png").write_bytes(bytes.fromhex("{new}"))
Path("old.png").write_bytes(bytes.fromhex("{new}"))
Path("trick.png").write_bytes(b"\\0<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>")
Path("big.py").write_text("".join(f"def f_{{n}}(a): return a + {{n}}  # adds\\n" for n in range(2000)))
"""


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    """A vault with a mission that changed pictures, and a file of 2,000 lines."""
    folder = tmp_path_factory.mktemp("difference")
    vault = make_vault(folder)
    repo = make_repo(
        folder / "repo", {"draw.py": SCRIPT.format(new=png(200).hex()), "a.txt": "a\n"}
    )
    vault.configure(f'[portals.code]\npath = "{repo}"\n[commands]\nsandbox = "none"\n')
    from gitkit import git

    (repo / "old.png").write_bytes(png(10))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Draw")
    plan = {
        **PLAN,
        "scope": {
            "write": ["new.png", "old.png", "trick.png", "big.py"],
            "run": ["python3 draw.py"],
        },
    }
    plan["steps"] = [{**PLAN["steps"][0], "tools": ["run_command"]}]
    ran = ("run_command", {"command": "python3", "args": ["draw.py"]})
    ended = [("complete_step", {"step": 1, "summary": "Drawn"}), ("finish", {"summary": "Done."})]
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        ("execute", [{"calls": [ran]}, {"calls": ended}]),
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    assert vault.rows("execution.completed"), vault.rows("execution.failed")
    return vault


def test_pictures_are_shown_before_and_after(vault: TestVault) -> None:
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
        sources = re.findall(r'<img [^>]*alt="(\S+) (\w+)" src="([^"]+)"', page)
        named = [(name, when) for name, when, _ in sources]
        assert named == [
            ("new.png", "after"),
            ("old.png", "before"),
            ("old.png", "after"),
            ("trick.png", "after"),
        ]
        assert "binary, new, " in page
        assert "Binary files" not in page
        first = browser.client.get(sources[0][2])
        assert (first.content, first.headers["content-type"]) == (png(200), "image/png")
        assert first.headers["x-content-type-options"] == "nosniff"
        assert browser.client.get(sources[1][2]).content == png(10)
        for where in (
            sources[3][2],
            "/r/say-hello/changes/pictures/a1b2c3d",
            "/r/x/changes/pictures/0",
        ):
            assert browser.client.get(where).status_code == 404  # what it is, not its name, decides


def test_page_of_2000_lines_is_light(vault: TestVault) -> None:
    with browsing(vault) as browser:
        page = browser.client.get("/r/say-hello", headers={"accept-encoding": "gzip"})
        assert "content-encoding" not in page.headers, "it has a form's token"
        assert len(page.content) < 100_000
        (link,) = re.findall(
            r'<a href="(/r/say-hello/changes/\d+)">Show 2,001 lines</a>', page.text
        )
        whole = browser.client.get(link, headers={"accept-encoding": "gzip"})
        assert whole.headers["content-encoding"] == "gzip"
        assert whole.text.count('data-n="') == 2_000
        assert "token" not in whole.text
        browser.get(link)
        browser.get("/r/say-hello/changes/99", 404)
