"""Wrap the machine: clock, state, settings, locks, notices, events. One module each."""
