"""The daemon: it looks, decides, records and performs."""
