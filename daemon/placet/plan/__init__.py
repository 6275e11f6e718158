"""Turn plans from text to values and back; say what they permit and what is dangerous. Pure."""
