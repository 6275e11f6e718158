"""Plan requests, wait for a person's approval, and execute approved plans on branches."""

__version__ = "0.1.0"
