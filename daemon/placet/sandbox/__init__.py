"""Run a mission's commands in a box.

An agent reaches the machine in two ways. Its file tools run inside the daemon and open every path
by handle below one root (`placet.disk.confine`). Its commands are programs that could do whatever
the daemon's user may, so they run in a box. Neither wall relies on the other, or on what the model
was told.

At the strongest level a box promises:

- It sees only the worktree, the system's folders and the tool chains on PATH (`visible_paths`). It
  does not see the home, the vault, another repository's files or an outside process.
- It writes only in the worktree and in a private temporary folder, never to `.git`. The daemon runs
  git, with the repository's programs switched off (`placet.git.run`).
- It has no network unless the approved plan has it, and never a unix socket. If the plan names
  hosts, a proxy outside connects it to those alone (`listen`, `proxy`, `tunnels`).
- Its environment has a few names, and none of the daemon's keys.
- It ends when its command ends, with everything that the command started, also if the daemon is
  killed (`run`, `launcher`, `cleanup`).
- It cannot use up the machine: time, memory, processes, output and disk have limits
  (`box.BoxLimits`).

The level is measured, not assumed. At start the daemon attacks itself. `probe` runs each of
`attacks` in a real box, from the best level down. It takes the first level that blocks all that it
promises to block. `probe.GAPS` lists what a level does not promise. A plan is approved for a level.
If the machine later offers a weaker one, the plan waits for the person. If the approved level
fails, the command fails; placet does not try a weaker one.

Not promised: a flaw in the kernel opens every box, and two commands of one mission are not isolated
from each other. What commands leave in the worktree is only a proposal. The commit checks it
against the plan, and the person reviews it.
"""
