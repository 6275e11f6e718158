"""placet plans requests, waits for a person's approval, and carries plans out on branches."""

__version__ = "0.1.0"
