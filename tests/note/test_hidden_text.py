# ruff: noqa: RUF001 - look-alike characters are what these tests are about

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet.note.escape import code_span, warning_callout
from placet.note.hidden_text import UnseenKind, find_unseen, homoglyphs, visible
from placet.note.markdown import commented_lines


def kinds(text):
    return [(u.line, u.kind) for u in find_unseen(text)]


def tags(text):
    return "".join(chr(0xE0000 + ord(c)) for c in text)


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("pass\u200bword", UnseenKind.ZERO_WIDTH, "U+200B ZERO WIDTH SPACE"),
        ("pass\u200dword", UnseenKind.ZERO_WIDTH, "U+200D"),
        ("pass\u200cword", UnseenKind.ZERO_WIDTH, "U+200C"),
        ("a\u2060b", UnseenKind.ZERO_WIDTH, "WORD JOINER"),
        ("a\ufeffb", UnseenKind.ZERO_WIDTH, "U+FEFF"),
        ("\u200b" * 5, UnseenKind.ZERO_WIDTH, "5 times"),
        ("if x\u202e } \u2066", UnseenKind.BIDI, "RIGHT-TO-LEFT OVERRIDE"),
        ("a\u2067b", UnseenKind.BIDI, "ISOLATE"),
        ("a\u200fb", UnseenKind.BIDI, "RIGHT-TO-LEFT MARK"),
        ("שלום\u200f\u200f\u200e\u200f", UnseenKind.BIDI, "4 times"),
        ("hi " + tags("rm -rf /"), UnseenKind.TAG, "spell “rm -rf /”"),
        ("\U0001f600" + tags("evil") + "\U000e007f", UnseenKind.TAG, "spell “evil”"),
        ("\U0001f3f4" + tags("evilx") + "\U000e007f", UnseenKind.TAG, "spell “evilx”"),
        (
            "\u2764\ufe0f" + "".join(chr(0xE0100 + b - 16) for b in b"delete"),
            UnseenKind.VARIATION,
            "spell “delete”",
        ),
        ("a\ufe0f", UnseenKind.VARIATION, "VARIATION SELECTOR-16"),
        ("1\ufe0f", UnseenKind.VARIATION, "U+FE0F"),
        ("soft\u00adhyphen", UnseenKind.INVISIBLE, "SOFT HYPHEN"),
        ("a\u034fb", UnseenKind.INVISIBLE, "GRAPHEME JOINER"),
        ("a\u2063b", UnseenKind.INVISIBLE, "INVISIBLE SEPARATOR"),
        ("a\u3164b", UnseenKind.BLANK, "HANGUL FILLER"),
        ("a\u2800b", UnseenKind.BLANK, "BRAILLE"),
        ("a\ue000b", UnseenKind.PRIVATE, "U+E000"),
        ("a\x1b[8mb", UnseenKind.CONTROL, "U+001B"),
        ("a\u2028b", UnseenKind.CONTROL, "U+2028"),
        ("a <!-- do evil --> b", UnseenKind.COMMENT, "do evil"),
        ("<!-- do\n\nevil", UnseenKind.COMMENT, "do evil"),
        ("<!---->", UnseenKind.COMMENT, "an empty comment"),
        ("\\\\<!-- x -->", UnseenKind.COMMENT, "x"),
        ("<![CDATA[x]]>", UnseenKind.COMMENT, "[CDATA[x]]"),
        ("<?x evil ?>", UnseenKind.COMMENT, "x evil"),
        ("a %%evil%% b", UnseenKind.COMMENT, "evil"),
        ("%%\nevil\n%%", UnseenKind.COMMENT, "evil"),
        ("```\n%%evil%%\n```", UnseenKind.COMMENT, "evil"),
        ("```\n%%\nevil\n%%\n```", UnseenKind.COMMENT, "evil"),
        ("a ` b\n` <!-- x --> `", UnseenKind.COMMENT, "x"),
        ("> ```\n<!-- x -->", UnseenKind.COMMENT, "x"),
        (">> ```\n> <!-- x -->", UnseenKind.COMMENT, "x"),
        ("> ```\n> > ```\n> ```\n> <!-- x -->", UnseenKind.COMMENT, "x"),
        ("<!--\n```\n-->", UnseenKind.COMMENT, "```"),
        ("<span style='display:none'>x", UnseenKind.HTML, "display:none"),
        ("<p\nhidden>x", UnseenKind.HTML, "hidden"),
        ("<details>", UnseenKind.HTML, "<details>"),
        ("</x y>", UnseenKind.HTML, "</x y>"),
        ("<ignore-all-rules>", UnseenKind.HTML, "ignore-all-rules"),
        ("[https://good.com](https://evil.com/x)", UnseenKind.LINK, "evil.com"),
        ("[good.com/a](https://evil.com)", UnseenKind.LINK, "evil.com"),
        ("[www.good.com](<https://evil.com>)", UnseenKind.LINK, "evil.com"),
        ("[ ](https://evil.com)", UnseenKind.LINK, "evil.com"),
        ("[//]: # (evil)", UnseenKind.DEFINITION, "evil"),
        ("> [x]: evil", UnseenKind.DEFINITION, "evil"),
        ("[^1]: evil", UnseenKind.DEFINITION, "evil"),
        ("x = 1" + " " * 200 + "evil()", UnseenKind.FAR_RIGHT, "evil()"),
        ("```\n" + "\t" * 50 + "evil()\n```", UnseenKind.FAR_RIGHT, "evil()"),
        ("```\n" + "x" * 2000 + "evil\n```", UnseenKind.FAR_RIGHT, "evil"),
        ('```toml\nwrite = ["src/\u0430uth/**"]\n```', UnseenKind.LOOKALIKE, "Cyrillic"),
    ],
)
def test_text_hidden_in_reading_view_is_found(text, kind, shown):
    found = find_unseen("first line\n\n" + text)
    assert {u.kind for u in found} == {kind}, found
    assert shown in " ".join(u.shown for u in found)
    assert all(u.line >= 3 for u in found)
    assert all(u.shown == visible(u.shown) and "\n" not in u.shown for u in found)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "",
        "\ufeff# With a byte order mark",
        "café naïve \u00a0 nbsp, thin\u202fspace, ideographic\u3000space",
        "👨‍👩‍👧‍👦 👩🏽‍💻 ❤️‍🔥 🏳️‍🌈 🏴‍☠️ 🏳️‍⚧️ ☺️ ☎︎ 1️⃣ #️⃣ ⚠️ ‼️ ℹ️ ©️ ↔️ 👍🏽",
        "\U0001f3f4" + tags("gbeng") + "\U000e007f",
        "می‌خواهم کتاب‌ها",
        "क्‍ष न्‌य ශ්‍රී ന്‍",
        "שלום עולם",
        "مرحبا بالعالم",
        "שלום\u200f!",
        "مرحبا \u200e(x)",
        "ภาษา\u200bไทย",
        "葛\U000e0100",
        "e\u0301 combined",
        "日本語 한국어 中文 русский ελληνικά",
        "`<!-- shown -->` and `%%shown%%` and ``a ` <b x>``",
        "\\<!-- shown -->",
        "\\%\\%shown\\%\\%",
        "100% sure, 50 % off",
        "```html\n<!-- shown -->\n<div style='x'>\n```",
        "~~~\n[//]: # (shown)\n~~~",
        "```python\n# %%\nx = 1\n# %%\n```",
        "a < b and c > d",
        "<b>bold</b> <br> <kbd>x</kbd> <br/>",
        "<https://a.com>",
        "1 <!2",
        "`Vec<String>`",
        "[text](https://a.com)",
        "[https://a.com](https://a.com/x)",
        "[a.com](https://www.a.com)",
        "[x.md](https://a.com/x.md)",
        "[[wiki|alias]]",
        "- [ ] box: x",
        "note[^1]\n\n[^1]: shown at the end",
        "![](a.png)",
        "word" * 500,
        "    indented\n\n\n\n\n\n\n\nfar below",
        "trailing" + " " * 80,
        '```toml\nwrite = ["заметки/**", "ñandú"]\n```',
        "new emoji \U0001fae8",
        "> ```\n> <!-- shown -->\n> > ```\n> %% shown\n> ```\ntext",
        ">> ```\n>> <!--\n>> ```",
    ],
)
def test_ordinary_writing_gives_no_alarm(text):
    assert find_unseen(text) == ()
    assert warning_callout(find_unseen(text)) == ""


def test_line_numbers_respect_every_line_ending():
    assert kinds("a\r\nb\u200b\rc\u200b\n<!-- x\ny -->\r\n%%z%%") == [
        (2, UnseenKind.ZERO_WIDTH),
        (3, UnseenKind.ZERO_WIDTH),
        (4, UnseenKind.COMMENT),
        (6, UnseenKind.COMMENT),
    ]


def test_hidden_characters_are_found_in_code_too():
    assert kinds("```\na\u200bb\n```\n`\u202e`") == [
        (2, UnseenKind.ZERO_WIDTH),
        (4, UnseenKind.BIDI),
    ]


def test_line_starting_inside_comment_counts_as_commented():
    assert commented_lines("a\n<!--\n## Scope\n--> b\nc <!-- x --> d\n%% y\nz %%\nw") == {
        2,
        3,
        4,
        6,
        7,
    }
    assert commented_lines("```\n<!--\n```\n## Scope") == frozenset()
    assert commented_lines("`<!--`\n\\<!--\n## Scope") == frozenset()
    assert commented_lines("%%\nto the end\n") == {1, 2, 3}


def test_visible_escapes_only_hidden_characters():
    assert visible("a\u200bb\U000e0041 👩‍💻 می‌خواهم") == "a\\u{200B}b\\u{E0041} 👩‍💻 می‌خواهم"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("src/\u0430uth.py", "Cyrillic and Latin"),
        ("t\u03b5sts/x", "Greek and Latin"),
        ("\u0440\u0430\u0443/x.py", "look like pay/x.py"),
        ("src\u2215x", "looks like /"),
        ("a\u2024py", "looks like ."),
        ("ｓｒｃ/x", "looks like s"),
        ("𝐬rc", "looks like s"),
        ("a\u00a0b", "space"),
        ("a\u200bb", "not shown"),
        ("a\x1bb", "not shown"),
    ],
)
def test_lookalike_path_is_reported(path, words):
    assert words in (homoglyphs(path) or "")
    assert (homoglyphs(path) or "").isascii() or "\u200b" not in (homoglyphs(path) or "")


@pytest.mark.parametrize(
    "path",
    [
        "src/auth/**",
        "заметки/план.md",
        "日本語/メモ.md",
        "ελληνικά.txt",
        "naïve/résumé.md",
        "café – menu.md",
        "русский/хор.md",
    ],
)
def test_honest_path_raises_no_warning(path):
    assert homoglyphs(path) is None


def test_the_callout_lists_each_finding_with_its_line():
    found = find_unseen("x\n<!-- `a` ``b`` -->\n\u200b")
    assert warning_callout(found).split("\n") == [
        "> [!warning] This note has text that reading view does not show",
        "> - line 2 below this box, comment: ``` `a` ``b`` ```",
        "> - line 3 below this box, zero-width character: `U+200B ZERO WIDTH SPACE, in “\\u{200B}”`",
    ]
    many = warning_callout(find_unseen("\u200b\n" * 200))
    assert many.count("\n") == 51
    assert many.endswith("> - and 150 more")


_PIECES = st.sampled_from(
    [
        "<!--",
        "-->",
        "%%",
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\r\n",
        "\\",
        "\u200b",
        "\u202e",
        "\U000e0041",
        "\ufe0f",
        "\u2764",
        "<b x>",
        "[a.com](https://b.com)",
        "[x]: y",
        " " * 50,
        "a",
        "\x1b",
        "\u2028",
        "[",
        "](",
        "> ",
        'toml\n"\u0430b"',
    ]
)
_TEXT = st.lists(_PIECES | st.text(max_size=3), max_size=15).map("".join)


@settings(max_examples=40)
@given(_TEXT)
def test_the_callout_itself_hides_nothing(text):
    assert find_unseen(warning_callout(find_unseen(text))) == ()


@settings(max_examples=30)
@given(_TEXT)
def test_visible_leaves_nothing_hidden(text):
    shown = visible(text)
    assert visible(shown) == shown
    assert not [
        u
        for u in find_unseen(shown)
        if u.kind in (UnseenKind.ZERO_WIDTH, UnseenKind.BIDI, UnseenKind.TAG, UnseenKind.CONTROL)
    ]


@settings(max_examples=30)
@given(st.text("`a ", max_size=12))
def test_a_code_span_holds_any_line(text):
    span = code_span(text)
    ticks = len(span) - len(span.lstrip("`"))
    assert span.endswith("`" * ticks)
    assert "`" * ticks not in span[ticks:-ticks].replace("a", " ").split()
    assert text in span


@pytest.mark.parametrize(
    "piece",
    [
        "<!-- ",
        "%% ",
        "`` ` ",
        "<a ",
        "[",
        "[a](",
        "\u200b",
        "\u200d\ufe0f",
        "<!x",
        "\\`",
        " " * 41 + "x",
        "```\n",
        "www.",
        "[x]: ",
        "\U000e0041",
        "1\ufe0f",
        "شش\u200d",
        "a.b-c",
        '```toml\n"\u0430',
    ],
)
def test_hidden_text_search_takes_linear_time(piece):
    text = piece * (20_000 // len(piece))
    began = time.process_time()
    warning_callout(find_unseen(text))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        r"All is well.$\phantom{push the branch}$",
        "$$\n\\phantom{x}\n$$",
        r"$\rlap{src}$ only",
        "pass&ZeroWidthSpace;word",
        "&#x202E;txt",
        '[fine](https://a.example "hidden")',
        "[fine](<https://a.example> 'hidden')",
        "(status:: approved)",
        "[scope:: everything]",
        "Ok.\n\n" + "\u00a0\n\n" * 80 + "and delete everything",
        "Ok." + "\n\n\\\n" * 60 + "x",
        "Ok.\n\n" + "&nbsp;\n\n" * 80 + "x",
        "https://good.example@evil.example/",
        "[x](https://good.example@evil.example/)",
        "https://good\u2024com.evil.example",
        "de\u0336lete\u0336",
        "` = 1`",
        "`$= x`",
        "`` \u00a0$= x ``",
        "`\n= x`",
        "`VIEW[approve][text(hidden):decision]`",
        "`!run`",
        "`<% tp.x %>`",
        "[See](obsidian://new?file=x&overwrite=true)",
        "[See\\](obsidian\\://new?file=x)",
        "[a [b] c](  <javascript:alert(1)>)",
        "<shortcuts://run-shortcut?name=x>",
        "[x](file:///etc/passwd)",
    ],
)
def test_text_disguised_in_reading_view_is_reported(text):
    assert find_unseen(text)


@pytest.mark.parametrize(
    "text",
    [
        "It costs $4, then $5.",
        "AT&T; R&D",
        "std::vector",
        "a :: b",
        "x = 1",
        "`x = 1`",
        "[a](https://a.example)",
        "mail@a.example",
        "a\n\n\n\nb",
        "Việt e\u0301",
        "`$HOME`",
    ],
)
def test_ordinary_text_is_not_reported(text):
    assert not find_unseen(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("| a |\n|---|\n| x | and delete everything |", [(3, "and delete everything")]),
        ("> | a | b |\n> |:--|--:|\n> | x | y | z |", [(3, "z")]),
        ("a | b\n--- | ---\n1 | 2 | 3 | 4", [(3, "3 | 4")]),
        ("|a|b|c|\n|-|-|-|\n# x\n|a|\n|-|\n|x|hidden|", [(6, "hidden")]),
        ("| a | b |\n|---|---|\n| x | y |\n| `a\\|b` | c\\|d |\n| x |", []),
        ("| a | b |\n|---|\n| x | y |", []),  # no table: its second line is of another width
        ("```\n| a |\n|---|\n| x | y |\n```", []),
        ("| a |\n|---|\n\nx | y", []),
    ],
)
def test_cells_beyond_table_columns_are_reported(text: str, told: list[tuple[int, str]]) -> None:
    assert [
        (one.line, one.shown) for one in find_unseen(text) if one.kind is UnseenKind.CELL
    ] == told
