"""The entries of a record: each a key, and the type of what is kept there.

They are all that survives a kill; `agent/record` says how they are written and taken up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar, cast

from placet.chat.budget import Amount
from placet.chat.compaction import Compaction
from placet.chat.messages import Reply, Turn, text_block, user_turn
from placet.chat.result import Ended
from placet.journal.writes import ATTEMPT as ATTEMPT_PREFIX
from placet.journal.writes import REPLY as REPLY_PREFIX
from placet.tools.base import Outcome

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """A key of the record, and the type of what stands there.

    `operation` names the work of the git processes up to this outcome, empty where there are none.
    """

    key: str
    kind: type[T]
    operation: str = ""

    def at(self, *where: int | str) -> Key[T]:
        """Return the entry of one turn, call, step or commit."""
        return Key(":".join((self.key, *map(str, where))), self.kind, self.operation)


@dataclass(frozen=True, slots=True)
class Opening:
    """The start of a conversation: system prompt, texts of the first turn, and remarks for people.

    `remarks` say which instructions were cut or left out, and why.
    """

    system: tuple[str, ...]
    texts: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def turn(self) -> Turn:
        """The first turn."""
        return user_turn([text_block(text) for text in self.texts])


@dataclass(frozen=True, slots=True)
class Prepared:
    """The changes to the turns before one call: remarks at the end, old results made shorter."""

    remarks: tuple[str, ...]
    compaction: Compaction | None


@dataclass(frozen=True, slots=True)
class Attempted:
    """A model call: what it may use at most (intent), or used without a reply (outcome).

    `kind` is the error's, empty in an intent.
    """

    amount: Amount
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Replied:
    """A model's reply, its blocks unchanged. `cost_usd` is None where the price is unknown."""

    reply: Reply
    cost_usd: Decimal | None
    took_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that is about to be carried out."""

    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MissionPlace:
    """The place of a mission, chosen once: base commit, branch, name of worktree and references."""

    base: str
    branch: str
    name: str


# Of every conversation. `N` is a turn of the model, from 1; `I` a call in it, from 0.
OPENING = Key("opening", Opening)
TURN = Key("turn", Prepared)  # :N, before it is sent
ATTEMPT = Key(f"{ATTEMPT_PREFIX}reply", Attempted)  # :N:M, the M-th attempt at a reply
REPLY = Key(REPLY_PREFIX.rstrip(":"), Replied)  # :N
CALL = Key("call", Outcome)  # :N:I; its intent is a Begun
NOTICED = Key("guard", str)  # a pattern that the model was told of, or was ended by
BEGAN = Key("began", float)  # when the work began, in seconds since 1970
WAITED = Key("waited", float)  # :CALL, how long a person was asked, in seconds
LIFE = Key("life", int)  # a daemon took it up (intent) and left it on purpose (outcome)

# Of a planning.
BASE = Key("base", str, "open the repository")  # the commit that the plan is written from
EARLIER = Key("earlier", Amount)  # what earlier plannings of the request used

# Of a mission. `S` is a step, from 1; `J` an action of a literal step, from 0.
PLACE = Key("place", MissionPlace)
BRANCH = Key("branch", str, "make the worktree")  # git's own folder of the worktree
LITERAL = Key("literal", Outcome)  # :S:J; its intent is a Begun
# :N after a turn, :literal:S:J before, :call:N:I where it asks a person, :after:call:N:I or
# :after:literal:S:J where the record is carried; a commit, or empty
CHECKPOINT = Key("checkpoint", str)
STEP = Key("step", str, "commit")  # :S; its commit, empty where nothing had changed
LAST_COMMIT = Key("last commit", str, "commit")
DRIFT = Key("drift", str)  # :COMMIT, the verdict on what changed up to it
ENDED = Key("ended", cast("type[Ended]", Ended), "look at the branch")  # before git is tidied up
NOT_KEPT = Key("not kept", str)  # files that no reference may have, each with a NUL after it
ROLLED_BACK = Key("rolled back", str)  # the ref that keeps a failed mission's work
