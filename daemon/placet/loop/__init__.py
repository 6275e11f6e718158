"""The daemon: look at the vault, decide, record, perform."""
