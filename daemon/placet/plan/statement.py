"""Write and read the statement that a signed approval signs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from placet.codec import sha256
from placet.wording import counted, one_line

NAMESPACE = "placet-approval"
"""The namespace of signatures of approvals: a signature made for anything else does not count."""
_HEAD = "placet approval 1"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a person approves: a text, where it runs, and with what."""

    digest: str
    """SHA-256 of the text that the approval binds (`plan/digest.py`)."""
    request_id: str
    trace_id: str
    portal: str
    """Empty for the vault itself."""
    base_commit: str
    model: str
    sandbox: int
    """The level of the sandbox for commands."""
    instructions: Sequence[tuple[str, str]]
    """Digests of the notes that the agent follows, by path."""
    budget_usd: Decimal | None
    iterations: int

    def lines(self) -> str:
        """Return the statement without its nonce."""
        budget = (
            "no budget of its own" if self.budget_usd is None else f"at most ${self.budget_usd}"
        )
        place = f"repository {one_line(self.portal)}" if self.portal else "this vault"
        return "\n".join([
            _HEAD,
            f"plan sha256:{self.digest}",
            f"request {one_line(self.request_id)}",
            f"trace {self.trace_id}",
            f"{place}, base {one_line(self.base_commit)}",
            f"model {one_line(self.model)}, sandbox {self.sandbox}, instructions "
            f"sha256:{digest_of(self.instructions)}, {budget} and "
            f"{counted(self.iterations, 'iteration')}",
            "",
        ])  # fmt: skip


def statement(lines: str, nonce: str) -> str:
    """Return the text to sign: the lines of some terms, and a nonce, which counts once."""
    return f"{lines}nonce {nonce}\n"


def digest_of(instructions: Sequence[tuple[str, str]]) -> str:
    """Return the digest of the notes that an agent follows, given theirs by path."""
    followed = "".join(f"{path}\0{digest}\n" for path, digest in instructions)
    return sha256(followed.encode())


@dataclass(frozen=True, slots=True)
class Stated:
    """What a statement says. `lines` is all but its nonce."""

    digest: str
    request_id: str
    trace_id: str
    base_commit: str
    instructions: str
    nonce: str
    lines: str


FULL_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STATEMENT = re.compile(
    rf"(?P<lines>{_HEAD}\nplan sha256:(?P<digest>[0-9a-f]{{64}})\nrequest (?P<request_id>[^\n]+)\n"
    rf"trace (?P<trace_id>[0-9a-f-]{{36}})\n[^\n]+, base (?P<base_commit>{FULL_COMMIT.pattern})\n"
    r"model [^\n]+, instructions sha256:(?P<instructions>[0-9a-f]{64}), [^\n]+\n)"
    r"nonce (?P<nonce>[0-9]+-[0-9a-f]{32})\n"
)


def read_statement(text: str) -> Stated | None:
    """Return what a statement says, None for any other text."""
    found = _STATEMENT.fullmatch(text)
    return Stated(**found.groupdict()) if found is not None else None
