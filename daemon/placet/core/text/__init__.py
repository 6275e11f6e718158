"""Texts: notes, plans, scopes, and what they hide."""
