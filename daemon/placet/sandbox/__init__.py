"""The second of the two walls: around the processes that a mission starts.

An agent reaches the machine in two ways, and each has a wall of its own. Its file tools run inside
the daemon, and name paths: the wall around paths (`placet.disk.confine`) opens every one by handle
below one root. Its commands are programs that may do anything that the daemon's user may: they run
in a box, which this package builds. Neither wall relies on the other, and neither on what the model
was told.

A box promises this, at the strongest level:

- It sees the worktree, the system's own folders and the tool chains on PATH (`visible_paths`), and
  nothing else: not the home, not the vault, no other repository's files, no process outside.
- It writes in the worktree and in a temporary folder of its own, never to `.git`: what git does
  there, the daemon does, with the repository's programs switched off (`placet.git.run`).
- It has no network unless the plan was approved with it, and never a unix socket.
- It gets an environment of a few names, in which no key of the daemon's is.
- It ends when its command ends, with everything that the command started, however that hid; also
  if the daemon is killed meanwhile (`run`, `launcher`, `cleanup`).
- It cannot use up the machine: time, memory, processes, output and disk have limits
  (`box.BoxLimits`).

The level is found, not assumed. At start the daemon attacks itself: `probe` runs each of `attacks`
in a real box, from the best level down, and takes the first level that blocks all that it promises
to block. The gaps of each level are listed (`probe.GAPS`). A plan is approved for a level: if the
machine offers a weaker one later, the plan waits for a person. No command is ever run at a weaker
level because the wanted one failed; that is an error.

What is not promised: a flaw in the kernel opens every box, and two commands of one mission are not
walled off from each other. A box keeps a mission's commands in; what they leave in the worktree is
still only a proposal, which the commit checks against the plan and a person reads.
"""
