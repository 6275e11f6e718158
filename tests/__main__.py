"""Run the tools, then pytest: `python -m tests`. Further words go to pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = (("ruff", "check"), ("ruff", "format", "--check"), ("mypy",), ("lint-imports",))
PYTEST = ("-m", "pytest", "-q", "-n", "6", "--dist", "worksteal")


def main(words: list[str]) -> None:
    """Run each tool. Run pytest if none of them failed, and end as it does."""
    programs = Path(sys.executable).parent
    if missing := [tool[0] for tool in TOOLS if not (programs / tool[0]).exists()]:
        sys.exit(f"{missing[0]} is missing. Type: pip install -c constraints.txt '.[dev]'")
    os.chdir(ROOT)
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
    os.execv(sys.executable, [sys.executable, *PYTEST, *words])


if __name__ == "__main__":
    main(sys.argv[1:])
