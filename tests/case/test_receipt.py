"""Test which changes are inside an approved scope, and that a receipt is read as written."""

from __future__ import annotations

from decimal import Decimal

import pytest

from placet.case.case import Signed
from placet.case.mission_result import CommandRun
from placet.case.receipt import Change, Receipt, as_json, read_receipt, why_outside
from placet.plan.hosts import host_from
from placet.plan.scope import Scope

SCOPE = Scope(write=("src/app.py", "docs/**", "!docs/private/**", "link", ".gitmodules"))


@pytest.mark.parametrize(
    ("path", "before", "after", "why"),
    [
        ("src/app.py", "100644", "100644", ""),
        ("src/app.py", "100644", "100755", ""),
        ("src/app.py", "100644", "000000", ""),
        ("docs/new.md", "000000", "100644", ""),
        ("link", "000000", "120000", ""),
        ("link", "120000", "000000", ""),
        ("src/other.py", "000000", "100644", "outside"),
        ("src/other.py", "100644", "000000", "outside"),
        ("src/app.py/x.py", "000000", "100644", "outside"),
        ("src", "000000", "100644", "outside"),
        ("SRC/app.py", "000000", "100644", "outside"),
        ("docs/Private/x", "000000", "100644", "outside"),
        ("docs/../secret", "000000", "100644", "outside"),
        ("docs/link", "000000", "120000", "symbolic link"),
        ("docs/link", "100644", "120000", "symbolic link"),
        ("docs/module", "000000", "160000", "submodule"),
        ("docs/module", "160000", "160000", "submodule"),
        ("docs/module", "160000", "100644", "submodule"),
        (".gitmodules", "000000", "100644", "how git behaves"),
        (".GitModules", "000000", "100644", "how git behaves"),
        ("docs/.GIT/config", "000000", "100644", "how git behaves"),
        ("docs/a.md", "100644", "100664", "mode 100664"),
    ],
)
def test_change_outside_of_scope_is_named(path: str, before: str, after: str, why: str) -> None:
    found = why_outside(SCOPE, Change(path, before, after, "1" * 40, "2" * 40))
    assert (why in found) if why else (found == "")


def test_receipt_is_read_as_written() -> None:
    scope = Scope(("a\udcff",), (("true",),), hosts=(host_from("packages.example"),))
    written = Receipt(
        "t",
        "r",
        2,
        "finished",
        "b",
        "t",
        ("c",),
        (Change("a\udcff", "100644", "100644", "1", "2"),),
        scope,
        (Signed("anna", "SHA256:x", "text\n", "armour", 5, "https://x"),),
        (CommandRun("true", None, "true"),),
        7,
        Decimal("0.01"),
        3,
        "h",
    )
    assert read_receipt(as_json(written).encode("ascii")) == written
    with pytest.raises(ValueError, match="whole Receipt"):
        read_receipt(b"{}")
