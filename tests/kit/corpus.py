"""Make notes like those in real vaults: hand-made ones with one trap each, and generated mixes.

Each note says whether placet can edit it. placet must refuse the others and leave them unchanged.
"""

# ruff: noqa: RUF001, SIM905  # data: a note stands on one line, with the quotes and letters it has

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CorpusNote:
    name: str
    raw: bytes
    editable: bool = True


def hand_made() -> list[CorpusNote]:
    """Return the hand-made notes."""
    return [CorpusNote(name, _bytes(raw)) for name, raw in _EDITABLE.items()] + [
        CorpusNote(name, _bytes(raw), editable=False) for name, raw in _REFUSED.items()
    ]


def generated(count: int, seed: int = 2026) -> list[CorpusNote]:
    """Return `count` generated notes; the same ones for the same seed."""
    rng = random.Random(seed)
    return [_generate(rng, number) for number in range(count)]


def corpus() -> list[CorpusNote]:
    """Return the corpus that the figures are about."""
    return hand_made() + generated(260)


def _bytes(raw: str | bytes) -> bytes:
    return raw if isinstance(raw, bytes) else raw.encode()


_EDITABLE: dict[str, str | bytes] = {
    "empty": b"",
    "one line": b"Fix the login bug",
    "bare request": "Fix the login bug.\n\nIt says *wrong password* for names with umlauts.\n",
    "bare crlf": b"Fix the login bug.\r\n\r\nIt logs people out.\r\n",
    "bare lone cr": b"Old Macintosh note\rsecond line\r",
    "bare with a stray cr": b"progress 10%\rprogress 20%\nnext line\n",
    "bare with bom": b"\xef\xbb\xbfWritten in Notepad\r\n",
    "bare blank lines first": b"\n\n---\nstatus: not frontmatter\n---\n",
    "bare heading": "# Title\n\nText\n\n---\n\nstatus: text below a rule\n",
    "bom twice": "\ufeff\ufeff---\nstatus: pending\n---\nbody\n",
    "pending": "---\nstatus: pending\n---\nDo it.\n",
    "no body": "---\nstatus: pending\n---\n",
    "no body, no newline": "---\nstatus: pending\n---",
    "no final newline": "---\ntitle: x\nstatus: pending\n---\nlast line",
    "empty block": "---\n---\nbody\n",
    "blank block": "---\n\n---\nbody\n",
    "only a comment": "---\n# fill me in\n---\nbody\n",
    "comments": "---\n# who\nauthor: me # not you\n  # indented\nstatus: pending   # set by hand\n# last\n---\nbody\n",
    "quoted status": "---\nstatus: \"pending\"\nother: 'x'\n---\n",
    "single quoted status": "---\nstatus: 'pending'  # why\n---\n",
    "quoted key": '---\n"status": pending\n\'title\': "a: b"\n---\n',
    "null status": "---\nstatus:\ntitle: x\n---\n",
    "null status with comment": "---\nstatus:   # unset\ntitle: x\n---\n",
    "status last and null": "---\ntitle: x\nstatus:\n---\n",
    "tilde status": "---\nstatus: ~\n---\n",
    "status list": "---\nstatus:\n  - pending\n  - new\n# about tags\ntags: [a, b]\n---\n",
    "status list, not indented": "---\nstatus:\n- pending\n\n- new\n\ntags:\n- a\n---\n",
    "status flow list": "---\nstatus: [pending,\n  new]  # two\ntags: []\n---\n",
    "status block scalar": "---\nstatus: |\n  pending\n\n  still\n\nnext: 1\n---\n",
    "status folded, keep": "---\nstatus: >+\n  pending\n  still\n\n\nnext: 1\n---\n",
    "status multi-line plain": "---\nstatus: pending\n  and waiting\n\n  for long\nnext: 1\n---\n",
    "status multi-line quoted": '---\nstatus: "pending\n\n  and waiting"   # c\nnext: 1\n---\n',
    "status mapping": "---\nstatus:\n  now: pending\n  then: done\n\n  # why\nnext: 1\n---\n",
    "block scalar last": "---\ntitle: x\nsummary: |+\n  keep\n  the end\n\n---\nbody\n",
    "block scalar with a fence": "---\nsummary: |\n  ---\n  status: not this\n  ---\nstatus: pending\n---\nbody\n",
    "block scalar with hashes": "---\nsummary: |\n  # no comment\n    deeper\n  end\nstatus: pending\n---\n",
    "aligned": "---\ntitle:      x\nstatus:     pending\nlong_name:  y\n---\n",
    "tab behind colon": "---\ntitle:\tx\nstatus:\tpending\n---\n",
    "tabs behind values": "---\ntitle: x\t\nstatus: pending\t\t# c\n---\n",
    "spaces behind fences": "---  \nstatus: pending\n--- \t\nbody\n",
    "trailing spaces": "---  \ntitle: x   \nstatus: pending   \n---\nbody  \n",
    "indented mapping": "---\n  title: x\n  status: pending\n---\nbody\n",
    "document end": "---\nstatus: pending\n...\n---\nbody\n",
    "directive comment": "---\n#%YAML 1.2\nstatus: pending\n---\n",
    "crlf": b"---\r\ntitle: x\r\nstatus: pending\r\ntags:\r\n  - a\r\n---\r\nbody\r\n",
    "crlf with bom": b"\xef\xbb\xbf---\r\nstatus: pending\r\n---\r\nbody",
    "mixed newlines": b"---\r\ntitle: x\nstatus: pending\r\ntags: [a]\n---\nbody\r\nmore\n",
    "lone cr": b"---\rtitle: x\rstatus: pending\r---\rbody\r",
    "bom": "\ufeff---\nstatus: pending\n---\nbody\n",
    "emoji": "---\ntitle: 🚀 Rocket 👩‍🚀\nstatus: 🔥\n🦊: yes\n---\n😀\n",
    "umlauts": "---\ntitle: Grüße aus Köln\nSchlüssel: ä\nstatus: pending\n---\nÖl\n",
    "japanese": "---\nタイトル: 会議メモ\ntags: [仕事, 予定]\n---\n本文\n",
    "arabic": "---\nالعنوان: ملاحظة\nstatus: pending\n---\nنص\n",
    "line separator in a value": '---\ntitle: "a\u2028b"\nstatus: pending\n---\nx\u2028y\n',
    "non-breaking space": "---\ntitle: a\u00a0b\nstatus: pending\n---\n",
    "links": '---\nup: "[[Projects/Big one]]"\nrelated:\n  - "[[A]]"\n  - "[[B|b]]"\nstatus: pending\n---\n[[C]]\n',
    "unquoted link": "---\nup: [[Projects]]\nstatus: pending\n---\n",
    "url": "---\nsource: https://example.org/a?b=c#d\nstatus: pending\n---\n",
    "numbers": "---\nid: 0123\nbig: 1_000\nhex: 0x1F\nsexagesimal: 12:30\nfloat: 1.50\nnan: .nan\nstatus: 3\n---\n",
    "booleans": "---\non: yes\noff: No\npublish: on\ny: n\nstatus: true\n---\n",
    "number keys": "---\n2024: a\n1.5: b\nnull: c\ntrue: d\n2024-01-01: e\n---\n",
    "dates": "---\ncreated: 2024-02-29\nupdated: 2024-02-29T10:00:00+02:00\nat: 2024-02-29 10:00\nstatus: pending\n---\n",
    "awkward keys": "---\ncontent: a\nhandler: b\nself: c\nmetadata: d\n---\nbody\n",
    "key with spaces": "---\nDue date: 2024-01-01\nfull name: a b\nstatus : pending\n---\n",
    "url as key": "---\nhttps://example.org: x\nstatus: pending\n---\n",
    "anchors": "---\nbase: &b {x: 1}\ncopy: *b\nstatus: pending\n---\n",
    "merge key": "---\nbase: &b\n  status: merged\n  x: 1\n<<: *b\ntitle: t\n---\n",
    "tagged": "---\nid: !!str 0123\nstatus: !!str pending\n---\n",
    "aliases": "---\naliases: [One, 'Two: three', \"Four # five\"]\ncssclasses: \nstatus: pending\n---\n",
    "nested": "---\nobsidianUIMode: source\nkanban:\n  lanes:\n    - name: a\n      status: inner\n    - name: b\nstatus: pending\n---\n",
    "inner status first": "---\njob: {status: inner}\nmeta:\n    status: inner\nstatus: pending\n---\nstatus: body\n",
    "similar keys": "---\nstatus_old: a\nnew-status: b\nStatus: c\nstatus: d\n---\n",
    "json in a value": '---\nconfig: \'{"status": "inner"}\'\nstatus: pending\n---\n',
    "rule first": "---\n\nA note that begins with a rule.\n\n---\n\nMore.\n",
    "rule and list": "---\n\n- one\n- two\n\n---\n",
    "rule and markup": "---\n**Bold** and `code` here\n---\nx\n",
    "rule without end": "---\n\nSome text: with a colon\n",
    "rule, text at once": "---\nprose right below\n",
    "rule alone": "---",
    "two rules": "---\n\ntext\n\n---\n\ntext\n\n---\n",
    "four dashes": "----\nstatus: pending\n----\n",
    "fence with text": "--- # yaml\nstatus: pending\n---\n",
    "indented fence": " ---\nstatus: pending\n---\n",
    "rules in the body": "---\nstatus: pending\n---\n\n---\n\nstatus: body\n\n---\n",
    "code fence with frontmatter": "---\nstatus: pending\n---\n```yaml\n---\nstatus: code\n---\n```\n",
    "callouts": "---\nstatus: pending\n---\n> [!warning]- Careful\n> text\n\n%%hidden%%\n<!-- c -->\n- [ ] task\n",
    "dataview": '---\nstatus: pending\n---\nfield:: value\n```dataview\nTABLE status FROM ""\n```\n',
    "templater body": "---\nstatus: pending\n---\n<% tp.file.title %> {{date}}\n",
    "explicit empty values": "---\ntags:\naliases:\ncssclass:\nstatus:\n---\n",
    "long line": "---\ndescription: " + "word " * 400 + "\nstatus: pending\n---\n",
    "toml": '+++\ntitle = "x"\nstatus = "pending" # c\n+++\nbody\n',
    "toml literal": "+++\nstatus = 'pending'\npath = 'C:\\x'\n+++\n",
    "toml with tables": '+++\n# site\ntitle = "x"\n\n# menu\n[menu]\nstatus = "inner"\n[[items]]\nname = 1\n+++\nbody\n',
    "toml only tables": "+++\n[menu]\nmain = true\n+++\nbody\n",
    "toml multi-line": '+++\nsummary = """\nstatus is\\\n  fine\n"""\ntags = [\n  "a", # first\n  "b",\n]\nstatus = ["x",\n "y"]\n+++\n',
    "toml crlf": b'+++\r\ntitle = "x"\r\nstatus = "pending"\r\n+++\r\nbody\r\n',
    "toml dates": "+++\ndate = 2024-02-29T10:00:00Z\nlocal = 2024-02-29\ntime = 10:00:00\n+++\n",
    "toml quoted key": '+++\n"status" = "pending"\n"a b" = 1\n+++\n',
    "toml odd spacing": '+++\n  title="x"\n\tstatus   =   "pending"\t# c\n\n+++\n',
    "toml empty": "+++\n+++\nbody\n",
    "toml bom": '\ufeff+++\nstatus = "pending"\n+++\n',
    "toml emoji": '+++\ntitle = "🚀 ü"\n"ü" = 1\n+++\n🚀\n',
    "plus line": "+++\n\nThree plus signs are text.\n",
    "impossible date": "---\ndate: 2024-02-30\n---\n",
}

_REFUSED: dict[str, str | bytes] = {
    "duplicate": "---\nstatus: pending\ntitle: x\nstatus: done\n---\nbody\n",
    "duplicate, quoted": '---\nstatus: pending\n"status": done\n---\n',
    "duplicate inside": "---\nstatus: pending\njob:\n  a: 1\n  a: 2\n---\n",
    "template": "---\ntitle: {{title}}\nstatus: pending\n---\n",
    "templater": "---\ntitle: <% tp.file.title %>\ndate: {{date}}\n---\n",
    "at sign": "---\nauthor: @me\nstatus: pending\n---\n",
    "backtick": "---\ncmd: `ls`\n---\n",
    "colon in a title": "---\ntitle: Part 1: The start\nstatus: pending\n---\n",
    "tab indent": "---\ntags:\n\t- a\n---\n",
    "bad indent": "---\ntitle: x\n  status: pending\n---\n",
    "open quote": '---\ntitle: "x\nstatus: pending\n---\n',
    "open bracket": "---\ntags: [a, b\nstatus: pending\n---\n",
    "merge conflict": "---\n<<<<<<< HEAD\nstatus: a\n=======\nstatus: b\n>>>>>>> x\n---\n",
    "two documents": "---\nstatus: a\n...\nstatus: b\n---\n",
    "flow mapping": "---\n{status: pending, title: x}\n---\n",
    "explicit keys": "---\n? status\n: pending\n---\n",
    "list as key": "---\n? [a]\n: x\n---\n",
    "alias as key": "---\na: &k x\n*k : y\n---\n",
    "unknown tag": "---\nstatus: !secret pending\n---\n",
    "python tag": "---\nstatus: !!python/object/apply:os.system ['true']\n---\n",
    "wrong tag": "---\nstatus: !!bool maybe\n---\n",
    "no end": "---\nstatus: pending\ntitle: x\n\nbody\n",
    "no end, crlf": b"---\r\nstatus: pending\r\n\r\nbody\r\n",
    "ends with dots only": "---\nstatus: pending\n...\nbody\n",
    "control character": "---\ntitle: a\x07b\n---\n",
    "not utf-8": "---\ntitle: Grüße\n---\nKöln\n".encode("latin-1"),
    "utf-16": "---\nstatus: pending\n---\n".encode("utf-16"),
    "binary": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "nul": b"---\nstatus: pending\n---\nbo\0dy\n",
    "holds itself": "---\na: &a [*a]\n---\n",
    "merges itself": "---\na: &a\n  <<: *a\n---\n",
    "key behind a line separator": "---\na: 1 # c\u2028status: pending\n---\n",
    "laughs": "---\na0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    + "---\n",
    "laughs by merging": "---\na0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
    + "---\n",
    "brackets": "---\na: " + "[" * 20_000 + "\n---\n",
    "braces": "---\na: " + "{a: " * 7_000 + "\n---\n",
    "dashes": "---\na:\n " + "- " * 10_000 + "\n---\n",
    "too long": "---\n" + "".join(f"key{n}: value\n" for n in range(4_000)) + "---\n",
    "huge number": "---\na: 0x" + "f" * 20_000 + "\n---\n",
    "toml duplicate": "+++\na = 1\na = 2\n+++\n",
    "toml broken": "+++\na = \n+++\n",
    "toml yaml inside": "+++\nstatus: pending\nb = 1\n+++\n",
    "toml no end": '+++\ntitle = "x"\n\nbody\n',
    "toml dotted": "+++\na.b = 1\nstatus = 1\n+++\n",
    "toml brackets": "+++\na = " + "[" * 20_000 + "\n+++\n",
    "toml key of many parts": "+++\n[a]\n" + "a." * 10_000 + "b = 1\n+++\n",
    "toml nested": "+++\na = " + "[" * 80 + "]" * 80 + "\n+++\n",
    "toml huge number": "+++\na = 0x" + "f" * 20_000 + "\n+++\n",
    "toml lone cr": "+++\ra = 1\r+++\r",
}


_WORDS = (
    "alpha Beta gamma délta 木 Ωmega project meeting notes draft review budget login bug search index "
    "🚀 café naïve Straße server client token report weekly idea"
).split()

_YAML_ENTRIES = (
    "title: {w} {w}",
    'title: "{w}: {w}"',
    "title: '{w} ''{w}'''",
    "author: {w} # {w}",
    "date: 2025-0{d}-1{d}",
    "created: 2025-0{d}-1{d}T0{d}:00:00Z",
    "created: 2025-0{d}-1{d} 0{d}:30",
    "id: 00{d}{d}",
    "time: 1{d}:30",
    "tags: [{w}, {w}]",
    "tags:\n  - {w}\n  - {w}",
    "tags:\n- {w}\n- '#{w}'\n- \"[[{w}]]\"",
    "tags: {w}, {w}",
    "tags:",
    "aliases: []",
    'aliases:\n  - {w} {w}\n  # more\n  - "{w}"',
    "publish: {b}",
    "rating: {d}.{d}",
    'up: "[[{w}]]"',
    "summary: |\n  {w} {w}\n\n  # {w}\n  {w}",
    "summary: >-\n  {w}\n  {w}",
    "summary: {w}\n  {w}\n  {w}",
    "summary: |+\n  {w}\n\n",
    'summary: "{w}\n  {w}"',
    "nested:\n  status: {w}\n  trace_id: {w}\n  list:\n    - {d}",
    "nested: {{status: {w}, deep: [{d}, {d}]}}",
    "url: https://example.org/{w}?q={d}#x",
    "empty: ''",
    "percent: 5{d}%",
    "Schlüssel {w}: {w}",
    "'quoted {d}': {w}",
    "position: {d}{d}.5, -{d}",
    "cssclasses:\t{w}",
    "weight:    {d}",
    "base: &base\n  k: {w}\nother: *base",
    "math: $x^{d}$",
    "priority: {d}   # 0-10",
    "budget_usd: 0.{d}0",
)
_YAML_STATUS = (
    "status: {w}",
    'status: "{w}"',
    "status: '{w}'  # by hand",
    "status:",
    "status: # unset",
    "status:    {w}",
    "status: ~",
    "status:\n  - {w}\n  - {w}",
    "status: |\n  {w}\n  {w}",
    "status: {w}\n  {w}",
    "status: [{w},\n  {w}]",
    "status: {d}",
    "status:\t{w}",
    '"status": {w}',
    "status : {w}",
    "status:\n  a: {w}\n  b: {w}",
    "status: {b}",
)
_TOML_ENTRIES = (
    'title = "{w} {w}"',
    "title = '{w}'",
    "date = 2025-0{d}-1{d}",
    "date = 2025-0{d}-1{d}T0{d}:00:00Z",
    "draft = true # {w}",
    'tags = ["{w}", "{w}"]',
    'tags = [\n  "{w}", # {w}\n  "{w}",\n]',
    'summary = """\n{w}\n  {w}"""',
    "weight={d}",
    'author   =   "{w}"',
    '"key {d}" = {d}.{d}',
    'params = {{ a = {d}, status = "{w}" }}',
    "  indented = {d}",
)
_TOML_STATUS = (
    'status = "{w}"',
    "status='{w}'",
    'status = "{w}" # {w}',
    "status = {d}",
    'status = [\n  "{w}",\n]',
)
_TOML_TABLES = (
    '[menu]\nstatus = "{w}"\n  name = {d}',
    "[[items]]\nn = {d}\n[[items]]\nn = 0",
    '[a.b]\nx = "{w}"',
)
_BODIES = (
    "",
    "\n",
    "{w} {w}\n",
    "\n# {w}\n\n{w} {w}.\n",
    "{w}",
    "\n\n> [!note] {w}\n> {w}\n",
    "- [ ] {w}\n- [x] {w}\n\t- {w}\n",
    "\n---\n\nstatus: {w}\n\n---\n",
    "```yaml\n---\nstatus: {w}\n---\n```\n",
    "{w}  \n{w}\t\n\n\n",
    "status: {w}\n",
    "%%{w}%%\n",
    "| {w} | {w} |\n|---|---|\n| {d} | {d} |\n",
    "+++\nstatus = {d}\n+++\n",
    "{w}\u2028{w}\u0085{w}\x0c\n",
)


def _fill(rng: random.Random, template: str) -> str:
    text = template.replace("{{", "\x01").replace("}}", "\x02")
    for hole, choices in (
        ("{w}", _WORDS),
        ("{d}", "123456789"),
        ("{b}", ("true", "no", "Yes", "off")),
    ):
        while hole in text:
            text = text.replace(hole, rng.choice(choices), 1)
    return text.replace("\x01", "{").replace("\x02", "}")


def _entries(rng: random.Random, templates: tuple[str, ...], status: tuple[str, ...]) -> list[str]:
    names: set[str] = set()
    entries = []
    for template in rng.sample(templates, rng.randint(0, 8)):
        name = template.strip().partition(":")[0].partition("=")[0].strip()
        if name not in names:
            names.add(name)
            entries.append(_fill(rng, template))
    if rng.random() < 0.7:
        entries.insert(rng.randint(0, len(entries)), _fill(rng, rng.choice(status)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        entries.insert(
            rng.randint(0, len(entries)),
            rng.choice(("# a comment", "", "# status: commented", "  # deep")),
        )
    return entries


def _generate(rng: random.Random, number: int) -> CorpusNote:
    kind = rng.choices(("yaml", "toml", "bare"), (8, 2, 1))[0]
    body = "".join(_fill(rng, rng.choice(_BODIES)) for _ in range(rng.randint(0, 3)))
    if kind == "yaml":
        entries = _entries(rng, _YAML_ENTRIES, _YAML_STATUS)
        text = "".join(f"{line}\n" for line in ["---", *entries, "---"]) + body
    elif kind == "toml":
        entries = _entries(rng, _TOML_ENTRIES, _TOML_STATUS)
        entries += [_fill(rng, t) for t in rng.sample(_TOML_TABLES, rng.choice((0, 0, 1, 3)))]
        text = "".join(f"{line}\n" for line in ["+++", *entries, "+++"]) + body
    else:
        text = f"{_fill(rng, '{w} {w}')}\n{body}"
    newline = rng.choices(("\n", "\r\n", "\r"), (8, 4, 0 if kind == "toml" else 1))[0]
    text = text.replace("\n", newline)
    if rng.random() < 0.2:
        text = "\ufeff" + text
    return CorpusNote(f"generated {number} {kind} {newline!r}", text.encode())
