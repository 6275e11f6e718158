"""Define a model's turn as pure functions: messages, budget, guards, retries."""
