"""Do everything that placet does with git. `run` is the only module that starts it."""
