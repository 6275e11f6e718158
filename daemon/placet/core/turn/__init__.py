"""One turn with a model: what is said, what it costs, and when to stop."""
