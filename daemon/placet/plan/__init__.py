"""Plans: from text to values and back, what they permit, and what is dangerous in them. Pure."""
