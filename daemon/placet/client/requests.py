"""Put a request into the vault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from placet.agent.instruction_notes import agents
from placet.case.notes import inspect_note
from placet.case.request import RequestProblems, read_request, title_of
from placet.client.site import Site
from placet.disk.errors import AlreadyThere
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.journal.database import is_begun
from placet.journal.reader import open_reader
from placet.note.frontmatter import Frontmatter, UnsafeEdit, read_note, stamp
from placet.note.paths import Folder, request_id, trace_id


class Submitted(NamedTuple):
    """A new request: its note's path, and the ids that follow from that and the text."""

    path: str
    request_id: str
    trace_id: str


def submit(site: Site, text: str, *, title: str | None, meta: Mapping[str, Any]) -> Submitted:
    """Drop a request into the vault; return its path in it, and its ids.

    `meta` goes into its frontmatter. The name is the title's; a name that is taken gets a number.
    """
    if not text.strip():
        raise UserError("The request is empty.", "Say what you want done.", exit_code=2)
    config = site.in_force().config  # a portal counts as it was accepted
    # the text may be a whole note, frontmatter and all
    body = read_note(text.encode()).body.strip()
    name = _file_name(
        title or title_of("request.md", body if body.startswith("#") else "# " + body)
    )
    raw = text.encode()
    if not raw.endswith(b"\n"):
        raw += b"\n"
    if meta:
        try:
            raw = stamp(raw, dict(meta), kind_if_none=Frontmatter(config.vault.frontmatter))
        except UnsafeEdit as error:
            raise UserError(
                f"The request: {error}", "Fix its frontmatter, then try again."
            ) from error
    try:  # whoever types it hears at once what the daemon would say in a side note
        read_request(
            f"{name}.md",
            read_note(raw),
            agents(site.vault),
            config.portals,
            config.vault.default_agent,
            config.vault.own_keys,
        )
    except RequestProblems as found:
        raise UserError(
            "\n  ".join(["The request cannot be used:", *found.problems]),
            "Nothing was written. Fix it, then try again.",
            exit_code=2,
        ) from found
    with Vault(site.vault) as folder:
        folder.ensure_folders()
        for n in range(1, 1000):
            path = f"{Folder.REQUESTS}/{name}{'' if n == 1 else f' {n}'}.md"
            made = _with_ids(site, path, raw)  # before a daemon sees it and gives them
            try:
                if folder.publish(path, raw, in_whole=True):
                    return made
            except AlreadyThere:
                continue
    raise UserError(
        f"There are a thousand requests named {name!r} already.", "Give another --title."
    )


def _with_ids(site: Site, path: str, raw: bytes) -> Submitted:
    """Return a request with the ids that a daemon will give it, as `open_requests` does."""
    name, note = PurePosixPath(path).name, inspect_note(path, raw)
    trace, ordinal = note.trace_id, 0
    if not is_begun(site.state.journal):
        return Submitted(path, request_id(name), trace or trace_id(name, note.digest, 0))
    with open_reader(site.state.journal) as reader:
        while not trace or reader.cases_named(trace):
            trace, ordinal = trace_id(name, note.digest, ordinal), ordinal + 1
        return Submitted(path, request_id(name, reader.is_taken), trace)


def _file_name(title: str) -> str:
    title = re.sub(r"(\.md)+\Z", "", title.strip(), flags=re.IGNORECASE)
    name = "".join(" " if c in '\\/:*?"<>|#^[]' or ord(c) < 32 else c for c in title)
    return " ".join(name.split()).strip(". ")[:80].strip() or "Request"
