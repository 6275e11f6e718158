"""The vault and the files that tools may touch: scan, replace without loss, the path wall."""
