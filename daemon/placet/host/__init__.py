"""The machine: clock, state, settings, locks, notices, events; one outside thing each."""
