"""What every test gets."""

import os
import sys

# The suite starts hundreds of processes of placet: each would compile it anew where this is set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
