"""Plan requests and carry out missions. Both are jobs that return values."""
