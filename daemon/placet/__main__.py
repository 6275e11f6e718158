"""`python -m placet`."""

from placet.cli import main

main()
