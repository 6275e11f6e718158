"""Measure placet, each figure next to a named baseline of the same minute."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kit"))
