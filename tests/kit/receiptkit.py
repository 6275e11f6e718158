"""Make missions with signed approvals and their receipts, without a daemon."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from gitkit import git, make_repo
from placet.case.case import Signed
from placet.case.receipt import (
    DAEMON,
    LIST,
    NAMESPACE,
    STATED,
    Receipt,
    as_json,
    names_of,
)
from placet.codec import sha256
from placet.git.receipt import RECEIPTS, changes_between, write_receipt
from placet.git.repository import open_repo
from placet.host.signers import sign
from placet.note.frontmatter import read_note
from placet.plan.allowed_signers import Signer, read_key
from placet.plan.parse import parse_plan
from placet.plan.sshsig import fingerprint, read_signature
from placet.plan.statement import Terms, statement
from vaultkit import TestVault

TRACE = "550e8400-e29b-41d4-a716-446655440000"
REF = f"{RECEIPTS}550e8400-2"
WRITE = ("src/app.py", "docs/**", "link")
FILES = {"src/app.py": "a = 1\n", "secret.txt": "s\n", "docs/a.md": "a\n", "docs/b.md": "b\n"}


def plan_of(write: Sequence[str] = WRITE) -> bytes:
    """Return the text of a plan with this scope."""
    globs = ", ".join(f'"{glob}"' for glob in write)
    return (
        "---\ntrace_id: x\n---\n# Do it\n\n## Why\nTo test.\n\n## Scope\n```toml\n"
        f"write = [{globs}]\n```\n\n## Steps\n### 1. Do it\nWrite.\n"
    ).encode()


@dataclass(frozen=True)
class Keys:
    """Keys of a person, of a daemon, and of somebody else."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Keys:
        folder.mkdir()
        for name in ("anna", DAEMON, "mallory"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name]
            subprocess.run(words, cwd=folder, check=True)
        return cls(folder)

    def signer(self, name: str) -> Signer:
        kind, key, _ = (self.folder / f"{name}.pub").read_text().split()
        return Signer(name, read_key(kind, key))

    @property
    def listed(self) -> bytes:
        """What a checker trusts."""
        lines = (self.signer("anna").line(), self.signer(DAEMON).line(NAMESPACE))
        return "".join(f"{line}\n" for line in lines).encode()


@dataclass
class Done:
    """A mission that ended, in the repository `folder`, on the branch `work`."""

    folder: Path
    keys: Keys
    base: str
    commits: list[str] = field(default_factory=list)
    plans: list[bytes] = field(default_factory=lambda: [plan_of()])
    portal: str = "code"
    stated_base: str = ""

    def step(self, change: Callable[[Path], object], *, own: bool = True) -> str:
        """Commit a change of the checkout's files; return the commit."""
        change(self.folder)
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "Step")
        sha = self.tip
        if own:
            self.commits.append(sha)
        return sha

    @property
    def tip(self) -> str:
        return git(self.folder, "rev-parse", "HEAD")

    def texts(self) -> list[str]:
        """Return the statements of the approvals."""
        return [
            statement(
                Terms(
                    sha256(plan),
                    "do-it",
                    TRACE,
                    self.portal,
                    self.stated_base or self.base,
                    "demo (scripted)",
                    3,
                    (),
                    Decimal(1),
                    5,
                ).lines(),
                f"0-{number:032x}",
            )
            for number, plan in enumerate(self.plans)
        ]

    def stated(self, texts: Sequence[str], **other: object) -> Receipt:
        anna = self.keys.signer("anna")
        tip = self.tip
        made = Receipt(
            TRACE,
            "do-it",
            1,
            "finished",
            self.base,
            tip,
            tuple(self.commits),
            changes_between(open_repo(self.folder), self.base, tip) if tip != self.base else (),
            parse_plan(read_note(self.plans[-1]).body, None).scope,
            tuple(Signed("anna", anna.fingerprint, text, "") for text in texts),
            (),
            0,
            Decimal(0),
            1,
            "0" * 64,
        )
        return replace(made, **other)  # type: ignore[arg-type]

    def files(self, by: str = DAEMON, **other: object) -> dict[str, bytes]:
        """Return the files of the receipt; `other` are fields of `Receipt` that say otherwise."""
        texts, files = self.texts(), dict[str, bytes]()
        for number, (text, plan) in enumerate(zip(texts, self.plans, strict=True), 1):
            armour = sign(self.keys.folder / "anna", text)
            parts = text.encode(), armour.encode(), plan
            files |= dict(zip(names_of(number), parts, strict=True))
        stated = as_json(self.stated(texts, **other))
        armour = sign(self.keys.folder / by, stated, NAMESPACE)
        assert fingerprint(read_signature(armour).key) == self.keys.signer(by).fingerprint
        return {
            **files,
            LIST: self.keys.listed,
            STATED: stated.encode(),
            f"{STATED}.sig": armour.encode(),
        }

    def write(self, files: dict[str, bytes] | None = None, tip: str = "") -> str:
        """Write the receipt; return its ref."""
        repo, when = open_repo(self.folder), datetime(2026, 1, 2, tzinfo=UTC)
        write_receipt(
            repo, REF, tip or self.tip, self.files() if files is None else files, "Receipt", when
        )
        return REF


def template(folder: Path) -> Path:
    """Make the repository that missions begin from: two commits, on branch main."""
    made = make_repo(folder, {"old.txt": "old\n"})
    shutil.rmtree(made / ".git/hooks", ignore_errors=True)
    for name, text in FILES.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    git(made, "add", "-A")
    git(made, "commit", "-q", "-m", "Files")
    return made


def begun(place: Path, at: Path, keys: Keys) -> Done:
    """Begin a mission in a copy of a template."""
    shutil.copytree(place, at, symlinks=True)
    git(at, "checkout", "-q", "-b", "work")
    return Done(at, keys, git(at, "rev-parse", "main"))


def must_sign(vault: TestVault, folder: Path) -> Keys:
    """Have a vault count signed approvals only; anna signs them by `placet approve`."""
    keys = Keys.made(folder)
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(f'{config}\n[approval]\nsigned = true\nkey = "{folder}/anna"\n')
    vault.click("signer", "add", "anna", f"{folder}/anna.pub")
    return keys
