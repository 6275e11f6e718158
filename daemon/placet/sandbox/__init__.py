"""The wall around processes: commands run in a box, at the strongest level that holds on this machine."""
