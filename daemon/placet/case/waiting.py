"""Define why work waits, and the sentences about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placet.wording import age


class WaitReason(StrEnum):
    """The reason for which work waits; the journal names it."""

    UNREACHABLE = "unreachable"  # the network, an overload: this work tries again later
    ASKED_TO_WAIT = "asked_to_wait"  # the server said how long: not even a restart tries earlier
    # a person has to fix something (a key, credit, a model's name): no work asks the model
    BLOCKED = "blocked"
    DAY = "day"  # what the vault may use today is used up: no work asks the model
    ROOM = "room"  # this work's next call is larger than what is left of the day's budget
    MACHINE = "machine"  # a full disk or the like, which met this work
    LEASE = "lease"  # another daemon carries this mission out, or did when it went away
    WORKER = "worker"  # no worker of the team is there for it
    # the person must decide whether the vault becomes a repository, and with which files
    HISTORY = "history"
    # a note with the agent's instructions changed after the approval, or holds an unresolved merge
    INSTRUCTIONS = "instructions"
    SANDBOX = "sandbox"  # commands would run in a weaker sandbox than the approver was shown
    MISTAKE = "mistake"  # placet's own

    @property
    def holds_all(self) -> bool:
        """Whether this reason stops all work."""
        return self in (WaitReason.BLOCKED, WaitReason.DAY)


ALLOW_HISTORY = "placet config set vault.history true"
"""What ends a wait for a history of the vault; the notice of it names this command."""
CONTINUES = "Then this request continues by itself."
"""The end of the notice of a wait for a history of the vault."""


def asks_about_history(notice: str) -> str:
    """Return what a request's notice asks a person about the vault's history; "" for nothing."""
    if CONTINUES not in notice:
        return ""
    if ALLOW_HISTORY in notice:
        return f"may placet keep a history of the vault? Yes: {ALLOW_HISTORY}"
    return notice.splitlines()[0]


@dataclass(frozen=True, slots=True)
class Hold:
    """No work asks the model until `until_s`. Then one case tries.

    If the model answers, all work resumes. `until_s` is on a clock that also runs while the machine
    sleeps.

    `probe` is that case's trace_id and the journal's newest event when it began to try. It is None
    before.
    """

    why: WaitReason
    reason: str
    until_s: float
    probe: tuple[str, int] | None = None

    @property
    def notice(self) -> str:
        """The text for people, in the vault and in `placet status`."""
        if self.why is WaitReason.DAY:
            return self.reason
        return (
            f"{self.reason.rstrip('.')}. placet tries again every minute while the daemon runs. "
            "Once it is fixed, all work resumes."
        )


def wait_text(why: WaitReason, reason: str, after_s: float) -> str:
    """Return the text for people about work that is retried after `after_s` seconds."""
    if why in (WaitReason.HISTORY, WaitReason.INSTRUCTIONS, WaitReason.SANDBOX, WaitReason.ROOM):
        return reason
    who = _WAITED_FOR.get(why, "the model")
    if not after_s:
        return f"waiting for {who}: {reason.rstrip('.')}."
    # in whole minutes: the note that says so is not written again for each try
    within = age(-(-after_s // 60) * 60)
    return (
        f"waiting for {who}: {reason.rstrip('.')}. placet tries again within {within}, while the "
        "daemon runs."
    )


_WAITED_FOR = {
    WaitReason.MISTAKE: "placet",
    WaitReason.MACHINE: "the machine",
    WaitReason.LEASE: "another daemon",
    WaitReason.WORKER: "a worker",
}
