"""The journal: every event, every case, every mission's record, in one database.

It promises six things, and each has one place in the code.

An answer means that the batch is kept. One thread owns the one connection that writes (`writer`).
Callers hand it batches of writes (`writes`, each with its SQL); it applies all that are queued in
one transaction, commits, and only then answers. A batch so answered survives the process; one
committed as `durable` survives a power cut, because its commit is flushed. Ask for that before an
effect outside of the journal: a commit in git, a note that people see.

A batch is all or nothing, and fails alone (`writer.Transaction`). Its writes say what they expect:
a case its version, a command that it is pending, an entry of a record that its number is free, a
worker that its token still holds the lease. A wrong expectation is Conflict, LeaseLost or LeaseHeld
for that batch; the other batches of the same transaction are committed. So a worker that was
stopped for an hour and wakes up after another took its mission over can write nothing.

Trouble of the machine is waited out. If the disk is full, read-only or locked, batches stay queued,
a person is told once, and it goes on by itself. While the disk has less than 16 MB free no model is
called (`agent.model_call`), so that a reply can be recorded. Only a daemon that is told to end
refuses what cannot be written (JournalPaused).

Damage is found, kept and named. The file is checked when it is opened (`file.check`). A damaged
one is set aside, never repaired, and the daemon begins a new journal. A damaged text or record
entry (BodyDamaged) stops the one case that needs it.

What happened cannot be changed unnoticed. The events form a hash chain (`chain`). Each text and
each entry of a record stands beside its hash. `maintenance.examine` reads all of it. Whoever can
rewrite the whole file can compute new hashes, so a cautious person keeps the last hash elsewhere.

The database may be PostgreSQL instead of a file: the plug-in `placet_team` gives it the same
statements, tables and promises. What a writer needs of either is `database.Store`. There all
writers take the chain's row first, leases run on the server's clock, and a COMMIT whose answer was
lost is asked about before it is repeated. A daemon's readers wait while it is away.

Readers of a file never wait, and none writes (`reader`). Each has a connection that can only read,
and sees one moment. Everything asked before a model call, or in each tick, costs the same however
long the journal is (the sums in `costs`, the indexes in `schema`).
"""
