"""Do everything that placet does with git. `run` starts it for missions, `push` for a person."""
