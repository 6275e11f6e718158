"""Decide what follows from gestures and results, and explain it. Pure; `decide` is the centre."""
