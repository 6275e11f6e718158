"""Test which names of files another system cannot check out."""

from __future__ import annotations

import pytest

from placet.note.portable import unportable
from placet.plan.dangers import dangers
from placet.plan.scope import Scope


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("con.txt", "Windows reserves the name"),
        ("a/AUX/b", "Windows reserves the name"),
        ("aux .txt", "Windows reserves the name"),
        ("COM¹", "Windows reserves the name"),
        ("a/conin$", "Windows reserves the name"),
        ("a/b ", "ends in a blank or a dot"),
        ("dir./b", "ends in a blank or a dot"),
        ("a:b", "a character that Windows does not allow"),
        ("a\nb", "a character that Windows does not allow"),
    ],
)
def test_name_that_windows_lacks_is_told(path: str, why: str) -> None:
    (told,) = unportable([path], ())
    assert why in told


@pytest.mark.parametrize(
    "path", ["console.txt", "src/nul_test.py", "a b", ".env", "com10", "com⁴", "conin", "e\u0301"]
)
def test_ordinary_name_is_not_told(path: str) -> None:
    assert unportable([path], ["other", path]) == []


def test_names_that_differ_by_case_are_told() -> None:
    assert unportable(["src/A.py"], ["src/a.py", "src/b.py"]) == [
        "`src/A.py` and `src/a.py` differ by case only: Windows and macOS check out one of them."
    ]
    assert len(unportable(["Src/x"], ["src/y", "src/z"])) == 1


def test_names_that_differ_by_unicode_form_are_told() -> None:
    (told,) = unportable(["caf\u00e9"], ["cafe\u0301"])
    assert told.endswith("differ by Unicode form only: macOS checks out one of them.")
    (told,) = unportable(["Caf\u00e9"], ["cafe\u0301"])
    assert told.endswith("differ by case only: Windows and macOS check out one of them.")


def test_plan_tells_of_unportable_names() -> None:
    told = dangers(Scope(write=("out/con.txt", "Readme.md", "README.md")))
    assert any("`out/con.txt` cannot be checked out" in one for one in told)
    assert any("`README.md` and `Readme.md` differ" in one for one in told)
