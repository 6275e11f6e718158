"""Store every event, every case and every mission's record in one database.

The journal makes six promises. Each has one place in the code.

An answer means that the batch is stored. One thread owns the only connection that writes
(`writer`). Callers give it batches of writes (`writes`, each with its SQL). It applies all queued
batches in one transaction, commits, and only then answers. An answered batch survives the process.
A `durable` one also survives a power cut, because its commit is flushed. Ask for that before an
effect outside the journal: a commit in git, a note that people see.

A batch is atomic and fails alone (`writer.Transaction`). Its writes state what they expect: a case
its version, a command that it is pending, an entry of a record that its number is free, a worker
that its token still holds the lease. A wrong expectation raises Conflict, LeaseLost or LeaseHeld
for that batch only. So a worker that was frozen for an hour cannot write after another worker took
its mission over.

The journal waits while the machine is in trouble. If the disk is full, read-only or locked, batches
stay queued, the user is told once, and writing resumes by itself. With less than 16 MB free, no
model is called (`agent.model_call`), so that its reply can be recorded. Only a stopping daemon
refuses what it cannot write (JournalPaused).

Damage is found, kept and named. The file is checked when it is opened (`file.check`): a large one
only after somebody met damage in it. A damaged file is set aside, never repaired, and the daemon
starts a new journal. A damaged text or record entry (BodyDamaged) stops only the case that needs
it.

Events cannot be changed unnoticed. They form a hash chain (`chain`). Each text and each entry of a
record is stored with its hash. `maintenance.examine` checks them all. Whoever can rewrite the whole
file can compute new hashes, so cautious users keep the last hash elsewhere.

The database may be PostgreSQL instead of a file. The plug-in `placet_team` gives it the same
statements, tables and promises. `database.Store` is what a writer needs of either. In PostgreSQL
all writers lock the chain's row first, and leases use the server's clock. If the answer to a COMMIT
is lost, the writer checks before it repeats it. A daemon's readers wait while the server is away.

Readers of a file never wait and never write (`reader`). Each has a read-only connection and sees
one snapshot. Queries before a model call or in each tick take the same time in a journal of any
length (the sums in `costs`, the indexes in `schema`).
"""
