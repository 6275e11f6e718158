"""Test how long the loop sleeps after a tick."""

from __future__ import annotations

from pathlib import Path

from tests.loop.test_work import Line

from looping import Time, bare_vault, looping
from placet.chat.messages import ModelError, ModelErrorKind


def test_paused_ready_work_does_not_spin(tmp_path: Path) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    line.error = ModelError(ModelErrorKind.TRANSIENT, "slow down", status=429, retry_after_s=600)
    vault.drop("Say hello.\n")
    with looping(vault, time=time, model=line.opened) as running:
        running.settle()
        vault.configure(
            (vault.root / "System/placet.toml").read_text() + "[daemon]\npaused = true\n"
        )
        running.settle()
        time.pass_time(601)
        assert running.loop.tick().again_in_s >= 1


def test_queued_outbox_commands_do_not_spin(tmp_path: Path) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    with looping(vault, time=time, model=line.opened) as running:
        plans = vault.root / "Inbox/Plans"
        plans.rmdir()
        plans.write_text("in the way")
        vault.drop("Say hello.\n")
        rest = running.settle()
        assert len(running.loop.state.outbox.pending) == 2
        assert rest.again_in_s >= 1
        plans.unlink()
        time.pass_time(60)
        running.settle()
        assert vault.plan().exists()
