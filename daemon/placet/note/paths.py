"""Name the folders and files in a vault, and show names to people.

All functions are pure. A name may hold anything that a file system allows. Python writes bytes that
are not UTF-8 as lone surrogates.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from uuid import UUID, uuid5

# The configuration's path in a vault.
CONFIG_PATH = "System/placet.toml"

# Who may approve, in a vault whose approvals are signed.
SIGNERS_PATH = "System/allowed_signers"

# The note that every conversation begins with.
PROMPT_PATH = "SYSTEM_PROMPT.md"


class Folder(StrEnum):
    """The vault's folders, relative to its root."""

    REQUESTS = "Inbox/Requests"
    PLANS = "Inbox/Plans"
    QUESTIONS = "Inbox/Questions"
    ACTIVE = "System/Active"
    REJECTED = "Inbox/Rejected"
    ARCHIVE = "Inbox/Archive"
    KNOWLEDGE = "Knowledge"
    REPORTS = "Knowledge/Reports"
    AGENTS = "System/Agents"


# The folders where a person's move or save means something. The daemon lists and watches them.
QUEUES = (Folder.REQUESTS, Folder.PLANS, Folder.QUESTIONS, Folder.ACTIVE, Folder.REJECTED)

# Holds the vault's id. If it is missing, the vault is absent, and no note counts as deleted.
MARKER = "System/.placet-vault"

# Holds the journal's last event, like the mark next to the journal. A backup of the state folder
# restores that mark too, but not this one.
TWIN = "System/.placet-mark"

MAX_MARKER_BYTES = 256

# Longest `request_id`, in characters.
MAX_ID = 48

# Longest file name on ext4, APFS, NTFS and btrfs (NAME_MAX).
MAX_NAME_BYTES = 255

# never change this constant
_TRACES = UUID("6f0d3a52-5c0e-5d57-9a53-0a3d5f1c7b11")

_NOT_DECOMPOSED = str.maketrans(
    {
        "ß": "ss",
        "ẞ": "SS",
        "æ": "ae",
        "Æ": "AE",
        "œ": "oe",
        "Œ": "OE",
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "ð": "d",
        "Ð": "D",
        "þ": "th",
        "Þ": "TH",
        "ı": "i",  # noqa: RUF001 - this is the Turkish letter
    }
)  # letters with a usual ASCII spelling that NFKD leaves whole

_TEMPORARY = re.compile(
    r"\..*|~\$.*|~syncthing~.*|.*~|#.*#|4913|.*\.(?:tmp|swp|swo|swx|icloud|part|partial|crdownload|download)",
    re.IGNORECASE | re.DOTALL,
)
_CONFLICT_WORD = re.compile(r"conflict|konflikt|conflit|конфл|競合|冲突|衝突|충돌", re.IGNORECASE)
_COPY_OR_DATE = re.compile(
    r"cop[iyí]|cóp|kop[iy]|exempla|копи|копі|コピー|副本|複本|复本|복사|\d{4}-?\d\d-?\d\d",
    re.IGNORECASE,
)
_CONFLICT_TAIL = re.compile(
    r"\.sync-conflict-\d{8}-\d{6}(?:-[0-9A-Za-z]+)?"  # Syncthing
    r"|\.Conflict(?:\.\d+)?"  # Resilio Sync
    r"|_conflict-\d{8}-\d{6}"  # ownCloud before 2.4
    r"|_[^_]+_[A-Z][a-z]{2}-\d\d-(?:\d{6}-)?\d{4}_[A-Za-z]*Conflict"  # Synology Drive
    r"|\s*\[conflict(?:ed)?(?: ?\d+)?\]"  # pCloud, Google Drive
)
_BRACKET = re.compile(r"\((?:[^()]|\([^()]*\))*\)\Z")
_SIDE = ".placet"

# The first words of every side note.
SIDE_CALLOUT = "> [!warning] "


def is_note(name: str) -> bool:
    """Return whether a file name is a markdown note's, by its suffix."""
    return len(name) > len(".md") and name.lower().endswith(".md")


def _stem(name: str) -> str:
    return name[: -len(".md")] if is_note(name) else name


def request_id(file_name: str, is_taken: Callable[[str], bool] = lambda _: False) -> str:
    """Return the slug of a request's file name: at most 48 characters, not one that `is_taken`.

    Its form is `[a-z0-9]+(-[a-z0-9]+)*`. Accents are dropped, letters such as `ß` are spelled out.
    A name without an ASCII letter or digit becomes `request-` and the first digits of its SHA-256.
    If the slug is taken, `-2`, `-3`, … is appended. The same arguments give the same id.
    """
    stem = _stem(file_name)
    plain = unicodedata.normalize("NFKD", stem.translate(_NOT_DECOMPOSED)).lower()
    letters = "".join(c for c in plain if not unicodedata.combining(c))
    slug = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:MAX_ID].rstrip("-")
    if not slug:
        slug = f"request-{sha256(stem.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    unique, number = slug, 1
    while is_taken(unique):
        number += 1
        unique = f"{slug[: MAX_ID - len(str(number)) - 1].rstrip('-')}-{number}"
    return unique


_UNNAMED = re.compile(
    r"(?:untitled|unbenannt|sans titre|sin título|senza titolo|sem título|naamloos|bez nazwy|"
    r"без названия|未命名|無題のファイル)(?: \d+)?",
    re.IGNORECASE,
)


def is_unnamed(file_name: str) -> bool:
    """Return whether a note has the name that Obsidian gives to new notes."""
    return bool(_UNNAMED.fullmatch(unicodedata.normalize("NFC", _stem(file_name)).strip()))


def is_request_id(text: str) -> bool:
    """Return whether a text from a note can be a `request_id`, which becomes part of paths."""
    return request_id(text) == text


def trace_id(name: str, content_digest: str, ordinal: int) -> str:
    """Return a request's UUID, made from its name, its content's digest and an ordinal.

    The same request gives the same id, also after a crash. `ordinal` distinguishes a request that
    is added again with the same name and content after the first was finished.
    """
    what = f"{name}\0{content_digest}\0{ordinal}".encode("utf-8", "surrogatepass")
    return str(uuid5(_TRACES, sha256(what).hexdigest()))


# Prefix of every note that placet is writing. Editors do not show dot files, and no scan lists
# them.
TEMP_PREFIX = ".placet-tmp-"


def is_temporary(name: str) -> bool:
    """Return whether editors, browsers or sync tools use this name while they write.

    Includes all dotfiles.
    """
    return _TEMPORARY.fullmatch(name) is not None


_PLACEHOLDER = re.compile(
    r"\.(?P<icloud>.+)\.icloud|(?P<name>.+)\.(?:nextcloud|owncloud)", re.IGNORECASE | re.DOTALL
)


def placeholder_of(name: str) -> str | None:
    """Return the note's name if a sync tool has this file in place of the note, else None.

    "Free up space" of Nextcloud, ownCloud and iCloud replaces a file by such a placeholder.
    """
    found = _PLACEHOLDER.fullmatch(name)
    original = "" if found is None else found["icloud"] or found["name"]
    return original if is_note(original) else None


def conflict_of(name: str) -> str | None:
    """Return the original's name if this is a sync tool's conflict copy, else None.

    Knows Obsidian Sync, Dropbox and Nextcloud (also translated), Syncthing, Seafile, Resilio,
    Synology, ownCloud and pCloud. A conflict copy is never a request and never an approval. In
    brackets, a word for conflict is not enough (`Fix it (merge conflict).md` is a request). They
    must also contain a word for copy, or a date.
    """
    stem, found = _stem(name), False
    while (shorter := _without_conflict(stem)) is not None:
        stem, found = shorter, True
    return f"{stem}{name[len(_stem(name)) :]}" if found else None


def _without_conflict(stem: str) -> str | None:
    """Return the stem without its last conflict mark; None without one, or if nothing is left."""
    tail = re.fullmatch(rf"(.+?)(?:{_CONFLICT_TAIL.pattern})", stem, re.IGNORECASE | re.DOTALL)
    if tail:
        return tail[1]
    numbered = re.fullmatch(r"(.+\)) ?\(?\d{1,3}\)?", stem, re.DOTALL)  # the second copy on one day
    body = numbered[1] if numbered else stem
    found = _BRACKET.search(body)
    inside, before = (found[0], body[: found.start()].rstrip()) if found else ("", "")
    if not before:
        return None
    if "sfconflict" in inside.lower() or (
        _CONFLICT_WORD.search(inside) and _COPY_OR_DATE.search(inside)
    ):
        return before
    return None


def is_utf8(name: str) -> bool:
    """Return whether every byte of a file's name is UTF-8.

    Python writes the others as lone surrogates (PEP 383).
    """
    return not any("\udc80" <= char <= "\udcff" for char in name)


def show(name: str) -> str:
    r"""Return the name for people, with characters escaped that they cannot see or that mislead.

    Control, format (zero width, bidirectional), private and unassigned characters become `\n`,
    `\x1b`, `\u202e`. A byte that is not UTF-8 becomes `\xff`. A backslash is doubled, so that no
    two names look the same.
    """
    if name.isascii() and name.isprintable() and "\\" not in name:
        return name
    return "".join(_shown(c) for c in name)


def show_path(path: str) -> str:
    r"""Return a path for people, as `show` does; a blank at its end becomes `\x20`."""
    stem = path.rstrip(" ")
    return show(stem) + r"\x20" * (len(path) - len(stem))


def _shown(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # how Python writes a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    if char == "\\" or unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        return char.encode("unicode_escape").decode("ascii")
    return char


def plan_name(request: str) -> str:
    """Return the file name of the plan of a request, in `Inbox/Plans`."""
    return f"{request}_plan.md"


def active_name(request: str) -> str:
    """Return the file name of an approved plan, in `System/Active`."""
    return f"{request}.md"


def rejected_name(request: str) -> str:
    """Return the file name of a rejected plan, in `Inbox/Rejected`."""
    return f"{request}_rejected.md"


def question_name(request: str, number: int) -> str:
    """Return the file name of a question about a request, in `Inbox/Questions`."""
    return f"{request}_{number}.md"


def amendment_name(request: str, number: int) -> str:
    """Return the file name of a wider scope that a mission asks for, in `Inbox/Plans`."""
    return f"{request}_amendment{number}.md"


def report_name(date: dt.date, trace8: str, request: str, *, failed: bool) -> str:
    """Return the file name of a report, in `Knowledge/Reports`; `date` is the UTC day."""
    return f"{date:%Y-%m-%d}_{trace8}_{request}{'_failure' if failed else ''}.md"


def with_suffix(path: str, suffix: str) -> str:
    """Return a file's path with `suffix` before its extension.

    A name that is too long for a file system is cut, and made unique by part of its digest.
    """
    folder, slash, name = path.rpartition("/")
    stem, dot, end = name.rpartition(".")
    stem, extension = (stem, f".{end}") if dot else (name, "")
    raw = stem.encode("utf-8", "surrogateescape")
    room = MAX_NAME_BYTES - len(f"{suffix}{extension}".encode("utf-8", "surrogateescape"))
    if len(raw) > room:
        mark = f"-{sha256(raw).hexdigest()[:8]}"
        stem = raw[: room - len(mark)].decode("utf-8", "ignore") + mark
    return f"{folder}{slash}{stem}{suffix}{extension}"


def numbered(path: str, number: int) -> str:
    """Return a file's path with `-2`, `-3`, … before the extension, for a name that is taken.

    Number 1 leaves the path unchanged.
    """
    return path if number == 1 else with_suffix(path, f"-{number}")


def side_note_name(name: str) -> str:
    """Return the file name of the note that explains a problem with the note of this name."""
    return with_suffix(f"{_stem(name)}.md", _SIDE)


def is_side_note(name: str) -> bool:
    """Return whether this is a side note's name."""
    return name.lower().endswith(f"{_SIDE}.md")
