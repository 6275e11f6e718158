"""The turn of a model: messages, budget, guards, retries. Pure."""
