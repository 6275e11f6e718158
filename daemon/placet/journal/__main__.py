"""Bring a journal's schema up to date; `schema.migrate_aside` runs it."""

import sys

from placet.journal.schema import migrate_here

sys.exit(migrate_here(sys.argv[1]))
