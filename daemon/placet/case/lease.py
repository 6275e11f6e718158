"""Define the lease on a mission, and the rule for when another process may take it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, so exactly that a reused pid is another owner.

    `host` names the machine (and the pid namespace, where it is not the machine's first); `boot_id`
    changes with each boot; `pid_start` is the process's start time as the system writes it,
    compared only for equality.
    """

    host: str
    boot_id: str
    pid: int
    pid_start: str

    def __post_init__(self) -> None:
        if not self.host or not self.boot_id or self.pid <= 0 or not self.pid_start:
            raise ValueError(f"not a process: {self}")

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """A mission's lease, as the journal has it."""

    trace_id: str
    token: int
    """Grows by one with each holder, never shrinks."""
    owner: Owner
    held: bool
    acquired_at: str
    """For display."""
    heartbeat_s: float
    """Seconds on the clock of the owner's boot (CLOCK_BOOTTIME).

    A stepped wall clock changes nothing.
    """
    expires_s: float
    """Seconds on the same clock."""

    @property
    def ttl_s(self) -> float:
        """Seconds that the last heartbeat asked for."""
        return self.expires_s - self.heartbeat_s


def may_take(
    lease: Lease,
    by: Owner,
    *,
    now_s: float,
    still_for_s: float,
    gone_token: int | None,
    one_clock: bool = False,
) -> bool:
    """Return whether `by` may take the lease from its holder.

    `now_s` is `by`'s boot-time clock. `still_for_s` is for how long `by` has seen this heartbeat
    unchanged. `gone_token` is the token of a holder that `by` has proved to be gone. Two clocks are
    compared only if they belong to the same boot. Another machine's lease expires after its ttl
    without a heartbeat, measured on our own clock. With `one_clock` all leases use the clock of a
    database, and `now_s` is its time.
    """
    if not lease.held or gone_token == lease.token:
        return True
    if lease.owner.boot_id == by.boot_id:
        return now_s >= lease.expires_s
    if lease.owner.host == by.host:
        return True  # an earlier boot of this machine: no process of it can live
    return now_s >= lease.expires_s if one_clock else still_for_s >= lease.ttl_s
