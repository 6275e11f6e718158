"""Test what is shown of an answer that takes long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placet.host import answering
from placet.host.answering import answer_shown, answer_under_way


def test_answer_is_shown_while_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answer_shown(tmp_path, "t1") as received:
        received(5)
        assert answer_under_way(tmp_path, "t1") == "", "a short one needs no sign"
        monkeypatch.setattr(answering, "EVERY_S", 0.0)
        received(0)
        assert answer_under_way(tmp_path, "t1") == "reading the prompt, 0 s"
        received(2_100)
        assert answer_under_way(tmp_path, "t1") == "answering, 2,100 tokens"
        assert answer_under_way(tmp_path, "t2") == ""
        file = tmp_path / "answer-t1"
        began_s = float(file.read_text().split()[0])
        file.write_text(f"{began_s - 245} 0")
        assert answer_under_way(tmp_path, "t1") == "reading the prompt, 4 min"
        os.utime(file, (began_s - 60, began_s - 60))
        assert answer_under_way(tmp_path, "t1") == "", "its daemon was killed"
        file.write_text("garbage")
        assert answer_under_way(tmp_path, "t1") == ""
    assert list(tmp_path.iterdir()) == []


def test_unwritable_state_folder_stops_no_answer(tmp_path: Path) -> None:
    with answer_shown(tmp_path / "missing", "t") as received:
        received(1)
    assert answer_under_way(tmp_path / "missing", "t") == ""
