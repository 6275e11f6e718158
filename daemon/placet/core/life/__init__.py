"""The life of a request: what people did, what follows, and why."""
