"""Run the daemon: look at the vault, decide, record, perform."""
