"""Run placet's command line: `python -m placet`."""

from placet.cli.main import main

main()
