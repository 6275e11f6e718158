"""Access the vault and the files of tools: scan, replace without loss, confine paths."""
