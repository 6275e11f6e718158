"""Run the tools, then pytest: `python -m tests`. Further words go to pytest.

`python -m tests quick` runs no tools, and only the tests that `tests/quick.py` chooses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = (("ruff", "check"), ("ruff", "format", "--check"), ("mypy",), ("lint-imports",))
PYTEST = ("-m", "pytest", "-q", "-p", "tests.quick", "--dist", "worksteal")


def main(words: list[str]) -> None:
    """Check and test. The exit code is that of pytest, unless a tool fails."""
    os.chdir(ROOT)
    if words[:1] == ["quick"]:
        words = ["-n", "3", "--quick", *words[1:]]
    else:
        check()
        words = ["-n", "4", *words]
    os.execv(sys.executable, [sys.executable, *PYTEST, *words])


def check() -> None:
    """Run each tool. Exit if one of them fails."""
    programs = Path(sys.executable).parent
    if missing := [tool[0] for tool in TOOLS if not (programs / tool[0]).exists()]:
        sys.exit(f"{missing[0]} is missing. Type: pip install -c constraints.txt '.[dev]'")
    failed = []
    for tool in TOOLS:
        line = " ".join(tool)
        done = subprocess.run(
            [str(programs / tool[0]), *tool[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(f"{'failed' if done.returncode else 'ok':6}  {line}", flush=True)
        if done.returncode:
            print(done.stdout, flush=True)
            failed.append(line)
    if failed:
        sys.exit(f"pytest was not started. Correct this first: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
