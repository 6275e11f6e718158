"""Run the blocks of README and guide in a temporary home, as a reader would.

A ```sh block runs line by line, and each command must exit with 0. A ```console block has lines
`$ command`, each followed by its output. There `…` stands for any text in a line; alone on a line,
for any number of lines. A block below `<!-- not run: reason -->` or another comment does not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gitkit import make_repo
from placet.client.new_vault import init
from placet.host.config import write_setting
from placet.note.frontmatter import read_note
from placet.sandbox.box import Level
from placet.sandbox.probe import probe
from vaultkit import ME, TestVault, meddling, running, until

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "daemon" / "docs"
README = ROOT / "README.md"
PATIENCE_S = 60.0
HOME = "/home/ann"
_FENCE = re.compile(
    r"(?ms)(?:^[ ]*<!-- (?:not run: )?(?P<why>[^\n]*?) -->\n)?"
    r"^(?P<indent>[ ]*)(?P<ticks>`{3,})(?P<kind>[a-z]*)\n(?P<text>.*?)^(?P=indent)(?P=ticks)$"
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    kind: str
    text: str
    not_run: str = ""

    def commands(self) -> Iterator[tuple[str, str | None]]:
        """Yield each command, with the output that a console block shows for it."""
        lines = self.text.splitlines()
        if self.kind == "console":
            for part in re.split(r"(?m)^\$ ", self.text)[1:]:
                command, _, shown = part.partition("\n")
                yield command, shown.rstrip()
            return
        while lines:
            command = lines.pop(0)
            if not command.strip() or command.lstrip().startswith("#"):
                continue
            while command.endswith("\\"):
                command += "\n" + lines.pop(0)
            if here := re.search(r"<<'?(\w+)'?", command):
                while not command.endswith(f"\n{here[1]}"):
                    command += "\n" + lines.pop(0)
            yield command, None


def pages() -> dict[str, str]:
    """Return the text of README.md and of each page of the guide, by name."""
    return {path.name: path.read_text() for path in (README, *sorted(GUIDE.glob("*.md")))}


def blocks(page: str, *kinds: str) -> list[Block]:
    """Return the blocks of a page, of these kinds if some are named."""
    text = pages()[page]
    return [
        Block(
            page,
            text.count("\n", 0, found.start("ticks")) + 1,
            found["kind"],
            re.sub(rf"(?m)^{found['indent']}", "", found["text"]),
            found["why"] or "",
        )
        for found in _FENCE.finditer(text)
        if not kinds or found["kind"] in kinds
    ]


def matches(shown: str, printed: str) -> bool:
    """Return whether a command printed what a page shows."""
    rows = [
        r"(?:[^\n]*\n)*?"
        if line.strip() == "…"
        else r"[^\n]*?".join(map(re.escape, line.rstrip().split("…"))) + r"[ ]*\n"
        for line in shown.splitlines()
    ]
    return (
        re.fullmatch("".join(rows), printed.rstrip() + "\n" if printed.strip() else "") is not None
    )


STEP = {"tools": ["write_file"], "done_when": ["the file is there"]}


def _plan(title: str, path: str, **more: Any) -> dict[str, Any]:
    return {
        "title": title,
        "summary": f"`{path}` says it.",
        "steps": [{"title": title, "description": f"Write `{path}`.", **STEP}],
        "scope": {"write": [path]},
        "risks": ["none"],
        **more,
    }


def _wrote(path: str, text: str) -> dict[str, Any]:
    return {
        "calls": [
            ("write_file", {"path": path, "content": text}),
            ("complete_step", {"step": 1, "summary": f"Write {path}"}),
            ("finish", {"summary": f"{path} is written."}),
        ]
    }


MEDIAN = {
    "title": "Fix the median of an even number of values",
    "summary": "`median` takes the upper of the two middle values. It should return their mean.",
    "steps": [
        {
            "title": "Return the mean of the two middle values",
            "description": "Change `median` in `stats.py`.",
            "tools": ["edit_file", "run_command"],
            "done_when": ["`python3 -m unittest` passes"],
        },
        {"title": "Say in the README how to run the tests", "description": "One line.", **STEP},
    ],
    "scope": {"write": ["stats.py", "README.md"], "run": ["python3 -m unittest"]},
    "risks": ["`median` returns a float for even counts now."],
}
MENDED = (
    "    middle = len(ordered) // 2\n    if len(ordered) % 2:\n        return ordered[middle]\n"
    "    return (ordered[middle - 1] + ordered[middle]) / 2"
)
# The scripted model's part: by request, what it plans, and what it does.
REPLIES: Mapping[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "fix-the-median*": (
        MEDIAN,
        [
            {
                "calls": [
                    (
                        "edit_file",
                        {
                            "path": "stats.py",
                            "old": "    return ordered[len(ordered) // 2]",
                            "new": MENDED,
                        },
                    ),
                    ("run_command", {"command": "python3", "args": ["-m", "unittest"]}),
                    ("complete_step", {"step": 1, "summary": "Return the mean"}),
                ]
            },
            {
                "calls": [
                    ("write_file", {"path": "README.md", "content": "# stats\n"}),
                    ("complete_step", {"step": 2, "summary": "Name the test command"}),
                    ("finish", {"summary": "`median` is right. All three tests pass."}),
                ]
            },
        ],
    ),
    "choose-a-licence*": (
        _plan("Add a licence", "LICENSE"),
        [
            {
                "calls": [
                    (
                        "ask_person",
                        {
                            "question": "Which licence should it be?",
                            "options": ["MIT", "Apache 2.0"],
                            "why": "Nothing in the repository says.",
                        },
                    )
                ]
            },
            _wrote("LICENSE", "MIT\n"),
        ],
    ),
    "write-a-changelog*": (
        _plan("Begin a changelog", "CHANGELOG.md"),
        [
            {
                "calls": [
                    (
                        "request_scope",
                        {"why": "The README has to link to it.", "write": ["README.md"]},
                    )
                ]
            },
            _wrote("CHANGELOG.md", "# Changelog\n"),
        ],
    ),
    "port-it-to-cobol*": (
        _plan("Port it", "stats.cob"),
        [{"calls": [("give_up", {"reason": "There is no COBOL compiler here."})]}],
    ),
    "*": (_plan("Write a note", "NOTES.md"), [_wrote("NOTES.md", "Notes.\n")]),
}


@dataclass
class Person:
    """Somebody who types a page's commands into a shell, and waits until the daemon is done."""

    home: Path
    held: ExitStack
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path = field(default_factory=Path)
    daemon: bool = False

    def __post_init__(self) -> None:
        self.cwd = self.home
        tools = self.home / "bin"
        tools.mkdir()
        for name in ("placet", "sqlite-utils"):
            (tools / name).symlink_to(Path(sys.executable).parent / name)
        (tools / "python").symlink_to(sys.executable)
        (self.home / ".gitconfig").write_text(
            "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n"
        )
        keep = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC", "PLACET", "GIT_", "XDG_"))
        }
        self.env = {
            **keep,
            "HOME": str(self.home),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SHELL": "/bin/bash",
            "USER": "ann",
            "LOGNAME": "ann",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        files = resources.files("placet.client").joinpath("demo_files")
        names = ("stats.py", "test_stats.py")
        make_repo(
            self.home / "src" / "code",
            {
                ".gitignore": "__pycache__/\n",
                **{name: files.joinpath(f"{name}.txt").read_text() for name in names},
            },
        )

    @property
    def vault(self) -> TestVault:
        """The vault that the guide speaks of, with this person's home."""
        extra = {name: self.env[name] for name in ("HOME", "PATH", "USER", "LOGNAME")}
        state = self.env.get("PLACET_STATE_HOME", str(self.home / ".local" / "state" / "placet"))
        return TestVault(self.home / "vault", Path(state), extra)

    def settle_in(self) -> None:
        """Make the vault, a portal in it, and start the daemon: where most pages begin."""
        init(self.vault.root, self.env, history=True)
        write_setting(self.vault.root, ("portals", "code"), {"path": "~/src/code"})
        self.with_model()
        self.start()
        self.cwd = self.vault.root

    def with_model(self) -> None:
        """Put the scripted model where the guide's reader has theirs."""
        vault = self.vault
        for request, (plan, did) in REPLIES.items():
            planned = [{"calls": [("submit_plan", plan)]}]
            vault_script(vault, request, planned, did)
        for key, value in {
            ("model", "provider"): "scripted",
            ("model", "name"): "guide",
            ("model", "script"): "System/replies.toml",
            ("vault", "quiet_s"): 0.2,
        }.items():
            write_setting(vault.root, key, value)
        if probe().level is Level.NONE:
            write_setting(vault.root, ("commands", "sandbox"), "none")

    def start(self) -> None:
        """Start the daemon in another terminal."""
        self.held.enter_context(meddling())
        self.held.enter_context(running(self.vault))
        self.daemon = True

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run one command line; what it changes of the shell holds for the next."""
        if re.fullmatch(r"placet run( --vault \S+)?( +#.*)?", command):
            self.start()
            return subprocess.CompletedProcess(command, 0, "", "")
        told = self.home / ".shell"
        script = f"{command}\n__code=$?\n{{ pwd; env -0; }} > {told}\nexit $__code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        if told.exists():
            place, _, rest = told.read_text().partition("\n")
            self.cwd = Path(place)
            self.env = dict(one.split("=", 1) for one in rest.split("\0") if "=" in one)
            told.unlink()
        config = self.vault.root / "System" / "placet.toml"
        replies = config.with_name("replies.toml")
        if command.startswith("placet init") and config.exists() and not replies.exists():
            self.with_model()
        if self.daemon:
            until(self.is_quiet, f"the daemon after: {command}", PATIENCE_S)
        said = done.stdout.replace(str(self.home), HOME).replace(f"by {ME}", "by ann")
        return subprocess.CompletedProcess(command, done.returncode, said, "")

    def is_quiet(self) -> bool:
        """Return whether the daemon has done all that the notes ask for, as they say."""
        root = self.vault.root
        if not root.is_dir() or any((root / "System" / "Active").glob("*.md")):
            asks = any((root / "Inbox" / "Questions").glob("*.md")) or any(
                (root / "Inbox" / "Plans").glob("*_amendment*.md")
            )
            if not asks:
                return False
        for folder, busy in _BUSY.items():
            for path in (root / folder).rglob("*.md"):
                if path.name.endswith(".placet.md"):
                    continue
                try:
                    meta = read_note(path.read_bytes()).meta
                except FileNotFoundError:
                    return False
                if path.with_name(f"{path.stem}.placet.md").exists():
                    continue
                if str(meta.get("status") or "") in busy or meta.get("decision"):
                    return False
                if meta.get("answer") and meta.get("status") == "open":
                    return False
        return True


_BUSY: Mapping[str, tuple[str, ...]] = {
    "Inbox/Requests": ("", "pending", "planning"),
    "Inbox/Plans": ("", "needs_revision", "approved", "rejected"),
    "Inbox/Rejected": ("", "review"),
    "Inbox/Questions": ("answered",),
}


def vault_script(
    vault: TestVault, request: str, planned: list[dict[str, Any]], did: list[dict[str, Any]]
) -> None:
    """Add one request's conversations to the file of replies; placet.toml stays as it is."""
    config = vault.root / "System" / "placet.toml"
    before = config.read_text()
    vault.script(
        ("plan", planned), ("revise", planned), ("execute", did), request=request, more=True
    )
    config.write_text(before)


def follow(page: str, folder: Path, *, settled: bool) -> int:
    """Type all blocks of a page; return how many commands were run. Fails at the first surprise."""
    count = 0
    with ExitStack() as held:
        (folder / "home").mkdir(parents=True)
        person = Person(folder / "home", held)
        if settled:
            person.settle_in()
        for block in blocks(page, "sh", "console"):
            if block.not_run:
                continue
            for command, shown in block.commands():
                done = person.types(command)
                where = f"{page}:{block.line}: $ {command}\n{done.stdout}"
                assert shown is not None or done.returncode == 0, where
                assert shown is None or matches(shown, done.stdout), f"{where}\n--- shown:\n{shown}"
                count += 1
    shutil.rmtree(folder, ignore_errors=True)
    return count
