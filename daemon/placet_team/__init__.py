"""Do the work on several machines: one daemon decides, workers work."""
