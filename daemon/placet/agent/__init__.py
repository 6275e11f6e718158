"""Plan requests and execute missions. Both are jobs that return values."""
