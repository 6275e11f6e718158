"""The work of an agent: plans and missions, as jobs that return values."""
