"""Everything placet does with git. `run` is the only module that starts it."""
