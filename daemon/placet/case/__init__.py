"""The life of a request: what you did, what follows, and why. Pure, with `decide` at its heart."""
