"""The wall around processes: commands run in a box, at the strongest level that holds on this machine."""

from placet.sandbox.leftovers import end_left_behind
from placet.sandbox.probe import Finding, Probe, make_undumpable, probe
from placet.sandbox.process import exec_in_box, never, run
from placet.sandbox.values import Box, Level, Limits, Ran

__all__ = [
    "Box",
    "Finding",
    "Level",
    "Limits",
    "Probe",
    "Ran",
    "end_left_behind",
    "exec_in_box",
    "make_undumpable",
    "never",
    "probe",
    "run",
]
