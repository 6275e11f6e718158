"""Describe a text file once, for reading, searching, editing and writing it.

The model reads and writes UTF-8 with newlines. The file keeps its encoding, byte order mark, line
ends and final newline; `Root.write` keeps its mode. No encoding is guessed: a file is UTF-8, or
git names its encoding.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from placet.errors import ToolError
from placet.git.attributes import Attributes
from placet.secrets import outside

_END = re.compile(r"\r\n|\r|\n")
MIXED = "mixed"
"""The line end of a file that has several."""

# Bytes that are not UTF-8, as lone surrogates. In some encodings the next byte looks like ASCII,
# but is the second half of a character.
_BYTE = re.compile("[\udc80-\udcff]")
_OTHER = re.compile("([\udc80-\udcff]+[0-~]?)")

# Encodings that git can name. Python has codecs that are not encodings of text.
_NAMES = re.compile(r"(?:utf|iso|latin|cp|windows|koi8|shift|sjis|euc|big5|gb|mac)[\w-]*", re.I)

# The encodings that need a byte order mark: the marks, with the encoding of what follows. A new
# file gets the first one.
_MARKED = {
    "UTF-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "UTF-16LE-BOM": ((codecs.BOM_UTF16_LE, "utf-16-le"),),
    "UTF-16BE-BOM": ((codecs.BOM_UTF16_BE, "utf-16-be"),),
    "UTF-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}

_UTF8 = "utf-8"
WAY_OUT = "To replace it whole, delete it first."


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file at `path`.

    `text` is its content with its own line ends, without its byte order mark `bom`. `codec` is
    Python's name of its encoding, "" if some bytes are not UTF-8: they are lone surrogates. `end`
    is the end of its lines, MIXED, or "" if it has no line end and git names none.
    """

    path: str
    text: str
    codec: str
    bom: bytes
    end: str

    def edited(self, old: str, new: str, known: Sequence[str]) -> tuple[bytes, int]:
        """Return the file's bytes with `old` replaced by `new`, and how often that was.

        `old` is matched with the text as it is shown, but not in secrets (`known` are further
        ones). Every other byte stays, and each line keeps its end. Raises ToolError
        `other_encoding` for text that the file cannot hold, and `mixed_line_ends` for an edit that
        would join two lines.
        """
        if not self.codec and not (old + new).isascii():
            raise ToolError(
                "other_encoding",
                f"{self.path} has bytes that are not UTF-8 text. In such a file only ASCII text "
                "can be replaced, by ASCII text. Leave other changes to a person.",
            )
        old, new = _newlines(old), _newlines(new)
        changed, count = list[str](), 0
        for piece, secret in outside(self.text, known):
            parts = [piece] if self.codec or secret else _OTHER.split(piece)
            for number, part in enumerate(parts):
                shown = _newlines(part)
                found = 0 if secret or number % 2 else shown.count(old)
                changed.append(self._replaced(part, shown, old, new) if found else part)
                count += found
        return self.encoded("".join(changed)), count

    def _replaced(self, text: str, shown: str, old: str, new: str) -> str:
        if self.end != MIXED:
            return _with_ends(shown.replace(old, new), self.end)
        # Lines that `old` and `new` begin and end with are unchanged, so they keep their ends.
        ends = _END.findall(text)
        gone, come = old.split("\n"), new.split("\n")
        first = _equal(gone[:-1], come[:-1])
        last = _equal(gone[:first:-1], come[:first:-1])
        taken, wanted = old.count("\n"), new.count("\n") - first - last
        filled, at = list[str](), 0
        for number, part in enumerate(shown.split(old)):
            if number:
                own, at = ends[at : at + taken], at + taken
                middle = own[first : taken - last]
                before = max(at - taken + first - 1, 0)
                more = (middle[-1:] or ends[before : before + 1] or ["\n"]) * wanted
                its = [*own[:first], *[*middle, *more][:wanted], *own[taken - last :]]
                filled.append(_filled(new, its))
            kept, at = ends[at : at + part.count("\n")], at + part.count("\n")
            filled.append(_filled(part, kept))
        after = "".join(filled)
        if _newlines(after) != shown.replace(old, new):  # a lone CR came before an LF
            raise ToolError(
                "mixed_line_ends",
                f"{self.path} mixes line ends so that this edit would join two lines. Leave it to "
                "a person.",
            )
        return after

    def rewritten(self, content: str) -> bytes:
        """Return the file's bytes with another content, in the file's form.

        Raises ToolError `other_encoding` or `mixed_line_ends` for a file whose form would be lost.
        """
        if not self.codec:
            raise ToolError(
                "other_encoding",
                f"{self.path} has bytes that are not UTF-8 text. Writing it whole would lose them. "
                f"Replace ASCII text with edit_file, or leave it to a person. {WAY_OUT}",
            )
        if self.end == MIXED:
            raise ToolError(
                "mixed_line_ends",
                f"{self.path} has lines with different ends (CRLF, LF or CR). Writing it whole "
                "would change them. Use edit_file, which keeps the end of each line.",
            )
        content = content.removeprefix("\ufeff") if self.bom else content
        content = _newlines(content) if self.end else content
        if self.text and content:
            stripped = content.rstrip("\r\n")
            if not self.text.endswith(("\r", "\n")):
                content = stripped
            elif stripped == content:
                content += "\n"
        return self.encoded(_with_ends(content, self.end))

    def encoded(self, text: str) -> bytes:
        """Return the bytes of a text as it is, in the file's encoding.

        Raises ToolError `other_encoding` for text that the file cannot hold.
        """
        try:
            return self.bom + (
                text.encode(self.codec) if self.codec else text.encode(_UTF8, "surrogateescape")
            )
        except UnicodeEncodeError as error:
            raise ToolError(
                "other_encoding",
                f"{self.path} has the encoding {self.codec}, as git's attributes say. It cannot "
                f"hold {text[error.start]!a}. Write it otherwise, or leave it to a person.",
            ) from error


def is_binary(data: bytes) -> bool:
    """Return whether the first 8 KiB have a NUL byte, as no text has; git looks at 8,000 bytes."""
    return b"\0" in data[:8192]


def text_file(path: str, data: bytes, known: Attributes) -> TextFile:
    """Return the text file with these bytes; b"" is also that of a new file.

    `known` are git's attributes. Raises ToolError `not_text` for a binary file, and for a file that
    is not in the encoding that git names.
    """
    name = known.encoding.upper()
    if name in ("", "UTF-8", "UTF8"):
        bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        codec = _UTF8
        if is_binary(data):
            raise ToolError(
                "not_text",
                f"{path} is a binary file of {len(data):,} bytes, or text in an encoding that "
                "git's attributes do not name (`working-tree-encoding`). Leave it to a person.",
            )
        try:
            text = data[len(bom) :].decode()
        except UnicodeDecodeError:
            codec, text = "", data[len(bom) :].decode(_UTF8, "surrogateescape")
    else:
        bom, codec, text = _decoded(path, data, name)
    return TextFile(path, text, codec, bom, _end_of(text) or ("\r\n" * (known.eol == "crlf")))


def _decoded(path: str, data: bytes, name: str) -> tuple[bytes, str, str]:
    """Return the byte order mark, Python's name of the encoding, and the text."""
    marked = _MARKED.get(name, ((b"", name),))
    bom, codec = next((one for one in marked if data.startswith(one[0])), marked[0])
    if _NAMES.fullmatch(codec):
        with suppress(LookupError, UnicodeError):
            text = data[len(bom) :].decode(codec)
            if not data or bom + text.encode(codec) == data:
                return bom, codec, text
    raise ToolError(
        "not_text",
        f"{path} is not text in the encoding {name} that git's attributes name for it, or this "
        "encoding is unknown here. Leave it to a person.",
    )


def _end_of(text: str) -> str:
    if "\r" not in text:
        return "\n" * ("\n" in text)
    both, first, second = (text.count(end) for end in ("\r\n", "\r", "\n"))
    if both == first == second:
        return "\r\n"
    return MIXED if second else "\r"


def shown(text: str) -> str:
    """Return a file's text for a model: with newlines, and U+FFFD for bytes that are not UTF-8."""
    text = _newlines(text)
    return text if text.isascii() else _BYTE.sub("\ufffd", text)


def _newlines(text: str) -> str:
    return _END.sub("\n", text) if "\r" in text else text


def _with_ends(text: str, end: str) -> str:
    return text if end in ("", "\n") else text.replace("\n", end)


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many of the first lines are equal."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))])


def _filled(text: str, ends: Sequence[str]) -> str:
    """Return a text with newlines with these ends instead."""
    lines = text.split("\n")
    return "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))
