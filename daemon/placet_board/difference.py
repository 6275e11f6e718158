"""Show a mission's difference file by file, with colours where they take little time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import (
    BashLexer,
    CLexer,
    CppLexer,
    CSharpLexer,
    CssLexer,
    GoLexer,
    HtmlLexer,
    IniLexer,
    JavaLexer,
    JavascriptLexer,
    JsonLexer,
    KotlinLexer,
    MakefileLexer,
    MarkdownLexer,
    PythonLexer,
    RubyLexer,
    RustLexer,
    SqlLexer,
    SwiftLexer,
    TOMLLexer,
    TypeScriptLexer,
    XmlLexer,
    YamlLexer,
)
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from placet.client.difference import MAX_PICTURE_BYTES, Difference
from placet.wording import file_size
from placet_board.markdown import seen

MAX_FILES = 200
"""Maximum files of a difference on a page; `placet diff` shows all."""
MAX_LINES = 3_000
"""Maximum lines of a file on its page."""
FOLDED_FROM = 250
"""Lines from which on a file is sent only when you open it."""
MAX_INLINE_CHARS = 20_000
"""Characters of the files on a request's page; the others are sent when you open them."""
MAX_PICTURES = 20
"""Maximum pictures on a page, the first ones."""
MAX_LINE_CHARS = 500
"""Longest line with syntax colours, in characters."""
COLOUR_S = 0.3
"""Seconds for the colours of a page; the lines after that are plain."""

LEXERS: Mapping[str, type[Lexer]] = {
    **dict.fromkeys(("py", "pyi"), PythonLexer),
    **dict.fromkeys(("js", "mjs", "cjs", "jsx"), JavascriptLexer),
    **dict.fromkeys(("ts", "tsx"), TypeScriptLexer),
    **dict.fromkeys(("c", "h"), CLexer),
    **dict.fromkeys(("cc", "cpp", "cxx", "hpp"), CppLexer),
    **dict.fromkeys(("sh", "bash"), BashLexer),
    **dict.fromkeys(("yml", "yaml"), YamlLexer),
    **dict.fromkeys(("html", "htm"), HtmlLexer),
    **dict.fromkeys(("xml", "svg"), XmlLexer),
    **dict.fromkeys(("ini", "cfg"), IniLexer),
    **dict.fromkeys(("kt", "kts"), KotlinLexer),
    **dict.fromkeys(("mk", "makefile"), MakefileLexer),
    "cs": CSharpLexer,
    "css": CssLexer,
    "go": GoLexer,
    "java": JavaLexer,
    "json": JsonLexer,
    "md": MarkdownLexer,
    "rb": RubyLexer,
    "rs": RustLexer,
    "sql": SqlLexer,
    "swift": SwiftLexer,
    "toml": TOMLLexer,
}
"""The lexers by the end of a file's name. A hostile line takes the slowest ones 30 ms."""

_PICTURES = frozenset({"png", "jpg", "jpeg", "gif", "webp"})


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line: `kind` is added, removed, same, where or header.

    `number` is the line's in the new file, of a removed one in the old file; 0 for none.
    """

    kind: str
    html: Markup
    number: int = 0


@dataclass(frozen=True, slots=True)
class PatchFile:
    """One file's difference: its place in the whole, and what the page shows of it.

    `about` are the words for a binary file. `pictures` are blobs, with "before" or "after".
    """

    at: int
    name: str
    added: int
    removed: int
    total: int
    lines: tuple[PatchLine, ...]
    about: str
    pictures: tuple[tuple[str, str], ...]

    @property
    def rest(self) -> int:
        """How many lines are not on the page of the file."""
        return max(0, self.total - MAX_LINES)

    @property
    def bar(self) -> str:
        """Five letters that say how much was added (`a`) and removed (`r`), `-` for no more."""
        total = max(self.added + self.removed, 5)
        counts = (self.added, self.removed)
        filled = [round(number * 5 / total) or int(number > 0) for number in counts]
        return f"{'a' * filled[0]}{'r' * filled[1]}-----"[:5]


@dataclass(frozen=True, slots=True)
class Patch:
    """A difference by file; `is_cut` if it has more than is shown."""

    files: tuple[PatchFile, ...]
    is_cut: bool

    @property
    def folders(self) -> dict[str, list[PatchFile]]:
        """The files by folder, in the order of their names."""
        found: dict[str, list[PatchFile]] = {}
        for file in sorted(self.files, key=lambda one: one.name.split("/")):
            found.setdefault(file.name.rpartition("/")[0], []).append(file)
        return found

    @property
    def has_folded(self) -> bool:
        """Whether a file's lines are sent only when it is opened."""
        return any(file.total and not file.lines for file in self.files)


@dataclass(slots=True)
class _Part:
    """What git writes of one file; `blobs` are the ids before and after, "" for none."""

    name: str
    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    blobs: tuple[str, str] = ("", "")
    is_binary: bool = False


def patch_of(found: Difference, only: int | None = None) -> Patch:
    """Return a difference by file: the short ones with their lines, or all of one file."""
    lines = seen(found.text).removesuffix("\n").split("\n")
    parts = list(_parts(lines))
    until = time.monotonic() + COLOUR_S
    room, pictures = MAX_INLINE_CHARS, MAX_PICTURES
    files = []
    for at, part in enumerate(parts[:MAX_FILES]):
        chars = sum(map(len, part.body))
        is_shown = at == only
        if only is None and len(part.body) <= FOLDED_FROM and chars <= room:
            is_shown, room = True, room - chars
        shown = tuple(_lines(part, until)) if is_shown else ()
        file = _file(at, part, shown, found.sizes, pictures)
        pictures -= len(file.pictures)
        files.append(file)
    return Patch(tuple(files), len(parts) > MAX_FILES or lines[-1].startswith("… (cut after "))


_INDEX = re.compile(r"index ([0-9a-f]+)\.\.([0-9a-f]+)")


def _parts(lines: Sequence[str]) -> Iterator[_Part]:
    part: _Part | None = None
    for line in lines:
        if line.startswith("diff --git "):
            if part is not None:
                yield part
            part = _Part(_name(line.removeprefix("diff --git ")))
        elif part is None:
            continue
        elif part.body or line.startswith("@@"):
            part.body.append(line)
        elif line.startswith(("new file", "deleted file", "old mode", "new mode")):
            part.head.append(line)
        elif index := _INDEX.match(line):
            part.blobs = (index[1], index[2])
        elif line.startswith("Binary files "):
            part.is_binary = True
    if part is not None:
        yield part


def _name(both: str) -> str:
    """Return the path in `a/PATH b/PATH`; git shows no renames, and quotes both or neither."""
    half = both[(len(both) + 1) // 2 :]
    return half.strip('"').removeprefix("b/")


def _file(
    at: int,
    part: _Part,
    shown: tuple[PatchLine, ...],
    sizes: Mapping[str, int],
    most_pictures: int,
) -> PatchFile:
    about = ""
    pictures: tuple[tuple[str, str], ...] = ()
    if part.is_binary:
        before, after = (sizes.get(blob) for blob in part.blobs)
        about = f"binary, {_sizes(before, after)}"
        if part.name.rpartition(".")[2].lower() in _PICTURES:
            named = zip(("before", "after"), part.blobs, (before, after), strict=True)
            pictures = tuple(
                (when, blob) for when, blob, size in named if 0 < (size or 0) <= MAX_PICTURE_BYTES
            )[:most_pictures]
    added, removed = (sum(line.startswith(sign) for line in part.body) for sign in "+-")
    total = 0 if part.is_binary else len(part.body)
    return PatchFile(at, part.name, added, removed, total, shown, about, pictures)


def _sizes(before: int | None, after: int | None) -> str:
    if before is None:
        return "new" if after is None else f"new, {file_size(after)}"
    if after is None:
        return f"deleted, {file_size(before)}"
    return f"{file_size(before)}, now {file_size(after)}"


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})")
_KINDS = {"+": "added", "-": "removed", " ": "same", "@": "where"}


def _lines(part: _Part, until: float) -> Iterator[PatchLine]:
    """Give the lines of a file; those after the moment `until` are plain."""
    if not part.is_binary:
        for line in part.head:
            yield PatchLine("header", escape(line))
    kind = LEXERS.get(part.name.rpartition("/")[2].rpartition(".")[2].lower())
    lexer = kind(stripnl=False) if kind is not None else None
    old = new = 0
    for line in part.body[:MAX_LINES]:
        if hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[2])
        kind_of_line = _KINDS.get(line[:1], "header")
        number = {"added": new, "same": new, "removed": old}.get(kind_of_line, 0)
        html = escape(line)
        is_text = number and len(line) <= MAX_LINE_CHARS
        if lexer is not None and is_text and time.monotonic() < until:
            html = escape(line[:1]) + coloured(line[1:], lexer)
        yield PatchLine(kind_of_line, html, number)
        old += kind_of_line in ("same", "removed")
        new += kind_of_line in ("same", "added")


def coloured(text: str, lexer: Lexer) -> Markup:
    """Return a line as HTML, with a span for each run of a colour."""
    runs: list[tuple[str, list[str]]] = []
    for _, token, value in lexer.get_tokens_unprocessed(text):
        name = _class_of(token)
        if not runs or runs[-1][0] != name:
            runs.append((name, []))
        runs[-1][1].append(value)
    span = Markup('<span class="{}">{}</span>')
    pieces = ((name, "".join(values)) for name, values in runs)
    return Markup("").join(span.format(name, text) if name else text for name, text in pieces)


@cache
def _class_of(token: _TokenType) -> str:
    return next((_COLOURS[kind] for kind in token.split() if kind in _COLOURS), "")


_COLOURS: Mapping[_TokenType, str] = {
    **dict.fromkeys((Keyword, Operator.Word, Name.Tag), "s-k"),
    **dict.fromkeys((Number, Name.Builtin, Name.Decorator, Name.Attribute), "s-n"),
    String: "s-s",
    Comment: "s-c",
}
