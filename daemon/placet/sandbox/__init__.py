"""Run a mission's commands in a box.

An agent reaches the machine in two ways. Its file tools run inside the daemon, behind the wall
around paths (`placet.disk.confine`), which opens every path by handle below one root. Its commands
are programs that could do whatever the daemon's user may, so they run in a box. Neither wall relies
on the other, or on what the model was told.

At the strongest level a box promises:

- It sees the worktree, the system's folders and the tool chains on PATH (`visible_paths`), and
  nothing else: not the home, not the vault, no other repository's files, no process outside.
- It writes only in the worktree and in a private temporary folder, never to `.git`: the daemon runs
  git, with the repository's programs switched off (`placet.git.run`).
- It has no network unless the approved plan has it, and never a unix socket.
- Its environment has a few names, and no key of the daemon's.
- It ends when its command ends, with everything that the command started, also if the daemon is
  killed (`run`, `launcher`, `cleanup`).
- It cannot use up the machine: time, memory, processes, output and disk have limits
  (`box.BoxLimits`).

The level is measured, not assumed. At start the daemon attacks itself: `probe` runs each of
`attacks` in a real box, from the best level down, and takes the first level that blocks all that it
promises to block. `probe.GAPS` lists what a level does not promise. A plan is approved for a level:
if the machine later offers a weaker one, the plan waits for you. No command runs at a weaker level
because the wanted one failed; that is an error.

Not promised: a flaw in the kernel opens every box, and two commands of one mission are not isolated
from each other. What commands leave in the worktree is only a proposal, which the commit checks
against the plan and you review.
"""
