"""The journal: every event, every case, every mission's record, in one SQLite database.

One thread owns the one connection that writes (`writer`). Callers hand it batches of write values
(`writes`); it applies what has queued up in one transaction, commits, and only then answers: an
answer means that the batch will survive the process. A batch is all or nothing; one that fails
(Conflict, LeaseLost, LeaseHeld) fails alone. Everyone else reads, each on a connection of its own
(`reader`). The events form a hash chain (`chain`).
"""
