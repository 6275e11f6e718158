"""Push a branch for a person, with GitPython: as they are, in their environment, with their hooks.

`run` is for missions: it starts git from an empty environment, and no program that a repository
names.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from placet.errors import UserError
from placet.git.run import Repo, program_on


def push_branch(
    repo: Repo,
    remote: str,
    branch: str,
    say: Callable[[str], None],
    on_progress: Callable[[str], None],
    receipt: str = "",
) -> list[str]:
    """Push a branch to the branch of the same name; return what the remote and the hook said.

    The ref `receipt`, if given, is pushed with it. `say` is told each of these lines at once,
    `on_progress` git's progress line. Never forces, and pushes no tag and no submodule. Raises
    UserError if the remote or the hook refuses, or cannot be reached.
    """
    import git  # costs 150 ms and 3 MB, which the daemon should not pay

    class Progress(git.RemoteProgress):
        def update(self, *_: Any) -> None:
            on_progress(self._cur_line or "")

        def line_dropped(self, line: str) -> None:
            if line.strip():
                say(line)

        def new_message_handler(self) -> Callable[[Any], None]:
            def handle(line: bytes | str) -> None:
                # a remote's words need not be UTF-8
                text = line.decode(errors="replace") if isinstance(line, bytes) else line
                self._parse_progress_line(text.rstrip())

            return handle

    logging.getLogger("git").setLevel(logging.CRITICAL)  # it prints what is raised below
    git.refresh(program_on(os.environ.get("PATH", os.defpath)))
    progress, results, why = Progress(), git.remote.PushInfoList(), ""
    try:
        with git.Repo(repo.path, expand_vars=False) as opened:
            results = opened.remote(remote).push(
                [f"{ref}:{ref}" for ref in (f"refs/heads/{branch}", receipt) if ref],
                progress=progress,
                no_follow_tags=True,
                recurse_submodules="no",
            )
    except git.GitCommandError:
        why = "your pre-push hook refused it, or the remote cannot be reached"
    except (git.exc.GitError, ValueError) as error:
        why = str(error)
    refused = [one.summary.strip() for one in results if one.flags & one.ERROR]
    if refused or not results:
        said = [*refused, *(line.removeprefix("fatal: ") for line in progress.error_lines)]
        raise UserError(
            f"{remote} did not take {branch}: {next(iter(said), why).rstrip('.')}.",
            f"Look at it: {repo.command_line} push {remote} {branch}",
        )
    return progress.other_lines
