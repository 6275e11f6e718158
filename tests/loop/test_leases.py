from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.case.lease import Lease, Owner, may_take
from placet.errors import UserError
from placet.host.clock import boottime_s
from placet.host.lock import VaultLock, boot_id, lock_holder, this_process

OTHER = Owner("elsewhere", "boot-9", 7, "70")


def held(owner: Owner, *, token: int = 1, expires_s: float = 130.0) -> Lease:
    return Lease(
        "t", token, owner, held=True, acquired_at="", heartbeat_s=100.0, expires_s=expires_s
    )


# the rule


@pytest.mark.parametrize(
    ("lease", "now_s", "still_for_s", "gone_token", "free"),
    [
        # the same boot: its clock decides
        (held(Owner("h", "boot-1", 7, "70")), 129.9, 0.0, None, False),
        (held(Owner("h", "boot-1", 7, "70")), 130.0, 0.0, None, True),
        # a provably gone holder goes at once, but only the one that was proved gone
        (held(Owner("h", "boot-1", 7, "70"), token=3), 100.0, 0.0, 3, True),
        (held(Owner("h", "boot-1", 7, "70"), token=3), 100.0, 0.0, 2, False),
        # an earlier boot of this machine: gone, whatever its clock said
        (held(Owner("h", "boot-0", 7, "70"), expires_s=1e9), 5.0, 0.0, None, True),
        # another machine's clock means nothing here: only standing still for a whole ttl does
        (held(OTHER), 1e9, 29.9, None, False),
        (held(OTHER), 0.0, 30.0, None, True),
    ],
)
def test_lease_is_free_only_in_listed_cases(lease, now_s, still_for_s, gone_token, free):
    me = Owner("h", "boot-1", 8, "80")
    assert may_take(lease, me, now_s=now_s, still_for_s=still_for_s, gone_token=gone_token) is free


def test_a_released_lease_is_free():
    lease = Lease("t", 1, OTHER, held=False, acquired_at="", heartbeat_s=0, expires_s=1e9)
    assert may_take(lease, Owner("h", "b", 1, "1"), now_s=0, still_for_s=0, gone_token=None)


@given(
    now_s=st.floats(0, 129.99),
    host=st.sampled_from("hi"),
    pid=st.integers(1, 9),
    gone=st.none() | st.just(0),
)
def test_live_lease_is_refused_within_same_boot(now_s, host, pid, gone):
    lease = held(Owner("h", "boot-1", 7, "70"))
    by = Owner(host, "boot-1", pid, "1")
    assert not may_take(lease, by, now_s=now_s, still_for_s=1e9, gone_token=gone)


NO_PROCESS = [("", "b", 1, "1"), ("h", "", 1, "1"), ("h", "b", 0, "1"), ("h", "b", 1, "")]


@pytest.mark.parametrize("args", NO_PROCESS)
def test_owner_requires_valid_process(args):
    with pytest.raises(ValueError, match="not a process"):
        Owner(*args)


# processes


@pytest.mark.skipif(sys.platform != "linux", reason="CLOCK_BOOTTIME and /proc are Linux'")
def test_the_clock_is_boot_time():
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(boottime_s() - uptime_s) < 5
    assert re.fullmatch(r"[0-9a-f-]{36}", boot_id())


# the vault's lock


def lock_at(path: Path) -> VaultLock:
    return VaultLock(path, this_process(), "2026-11-21T10:00:00Z")


def test_second_daemon_is_refused_with_lock_holder(tmp_path):
    path = tmp_path / "lock"
    with lock_at(path):
        with pytest.raises(UserError) as caught, lock_at(path):
            pass
        me = this_process()
        assert f"pid {me.pid} on {me.host} since 2026-11-21T10:00:00Z" in str(caught.value)
        assert lock_holder(path) == f"pid {me.pid} on {me.host} since 2026-11-21T10:00:00Z"
    assert path.exists(), "an unlinked lock file lets a third daemon in beside the second"
    assert lock_holder(path) is None
    with lock_at(path):
        pass


def test_no_lock_file_means_no_daemon(tmp_path):
    assert lock_holder(tmp_path / "none") is None


def test_replaced_lock_file_does_not_lock(tmp_path):
    path = tmp_path / "lock"
    with lock_at(path):
        first = path.stat().st_ino
        path.rename(tmp_path / "old")
        with lock_at(path):  # nothing can prevent it, but the new file is what gets locked
            assert path.stat().st_ino != first
            with pytest.raises(UserError), lock_at(path):
                pass


def test_symlink_as_lock_file_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("text")
    with pytest.raises(UserError, match="cannot be written"), lock_at(tmp_path / "lock"):
        pass
    assert (tmp_path / "precious").read_text() == "text"


HOLD = """
import sys, time
from pathlib import Path
from placet.host.lock import VaultLock, this_process
with VaultLock(Path(sys.argv[1]), this_process(), "now"):
    print("held", flush=True)
    time.sleep(60)
"""


PARENT = HOLD.replace("import sys, time", "import subprocess, sys, time").replace(
    'print("held", flush=True)',
    """
    executed = subprocess.Popen(["sleep", "60"], close_fds=False)
    print("held", executed.pid, flush=True)
""".lstrip(),
)


def test_child_of_killed_daemon_holds_no_lock(tmp_path):
    path = tmp_path / "lock"
    argv = [sys.executable, "-c", PARENT, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline().split()[1])
        try:
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert lock_holder(path) is None
            with lock_at(path):
                pass
        finally:
            os.kill(pid, signal.SIGKILL)
