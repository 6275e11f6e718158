"""The vault and the files that tools may touch."""
