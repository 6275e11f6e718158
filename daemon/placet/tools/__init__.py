"""What a model can call: the registry of tools, and the two things that carry calls out."""
