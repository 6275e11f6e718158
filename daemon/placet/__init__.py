"""placet: requests become plans, a person approves, an agent carries them out on a branch of its own."""

__version__ = "0.1.0"
