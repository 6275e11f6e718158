"""Write the receipt of a mission whose approvals were signed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from placet.agent.ports import Ports
from placet.agent.record import LAST_COMMIT, Postponed, Record
from placet.agent.repository import repository
from placet.agent.tool_calls import MACHINE_RETRY_S
from placet.agent.work import Mission, name_of
from placet.case.case import Signed
from placet.case.mission_result import MissionResult
from placet.case.receipt import (
    DAEMON,
    LIST,
    NAMESPACE,
    STATED,
    Receipt,
    as_json,
    names_of,
)
from placet.case.waiting import WaitReason
from placet.errors import End, UserError, passing
from placet.git.history import log
from placet.git.receipt import RECEIPTS, changes_between, write_receipt
from placet.git.repository import resolve
from placet.git.run import GitError, Repo, RepositoryChanged
from placet.host.signers import NotSigned, daemon_key, read_list, sign
from placet.host.state import SIGNERS
from placet.journal.writes import BodyDamaged
from placet.plan.allowed_signers import Signer, as_text
from placet.plan.sshsig import read_signature
from placet.plan.statement import read_statement
from placet.wording import one_line


def with_receipt(
    ports: Ports, mission: Mission, record: Record, ended: MissionResult
) -> MissionResult:
    """Write the receipt of a mission that ended, and return its result, which names it.

    A mission without a signed approval has none, nor has one whose repository is gone. Raises
    Postponed where the receipt cannot be written now: no mission with one ends before it is there.
    """
    case = mission.case
    if not case.signed:
        return ended
    try:
        repo = repository(ports, case.request.portal, record)
    except UserError:
        return ended
    ref = f"{RECEIPTS}{name_of(case, record)}"
    try:
        stated = _receipt(ports, mission, repo, record, ended)
        files = _files(ports, case.signed, as_json(stated))
        message = f"Receipt of {case.request_id}\n\nPlacet-Trace: {case.trace_id}\n"
        when = datetime.fromisoformat(case.approval.at)
        write_receipt(repo, ref, stated.tip, files, message, when)
    except (GitError, RepositoryChanged, NotSigned, UserError, OSError) as error:
        if ended.end is End.REPOSITORY and isinstance(error, GitError) and not passing(error):
            return ended
        why = f"Its receipt cannot be written: {one_line(str(error))}"
        raise Postponed(why, MACHINE_RETRY_S, WaitReason.MACHINE) from error
    return replace(ended, receipt=ref)


def _receipt(
    ports: Ports, mission: Mission, repo: Repo, record: Record, ended: MissionResult
) -> Receipt:
    case = mission.case
    base = ended.base or mission.base_commit
    tip = ended.commit or ended.kept_commit or resolve(repo, base) or ""
    own = {record.get(LAST_COMMIT), ended.kept_commit, *(step.commit for step in ended.steps)}
    is_work = tip not in ("", base)
    made = log(repo, tip, f"^{base}") if is_work else []
    with ports.journal.ask() as reader:
        row, row_hash = reader.last()
    return Receipt(
        case.trace_id,
        case.request_id,
        case.generation,
        ended.end.value,
        base,
        tip,
        tuple(one.sha for one in reversed(made) if one.sha in own),
        changes_between(repo, base, tip) if is_work else (),
        mission.plan.scope,
        case.signed,
        ended.commands,
        ended.spent.tokens,
        ended.spent.cost_usd,
        row,
        row_hash,
    )


def _files(ports: Ports, signed: tuple[Signed, ...], stated: str) -> dict[str, bytes]:
    """Return a receipt's files by name. Raises BodyDamaged if the journal lost a text."""
    files: dict[str, bytes] = {}
    with ports.journal.read() as reader:
        for number, one in enumerate(signed, 1):
            said = read_statement(one.statement)
            text = reader.text(said.digest) if said is not None else None
            if text is None:
                raise BodyDamaged("the text of a signed approval is gone")
            parts = (one.statement.encode(), one.signature.encode(), text)
            files |= dict(zip(names_of(number), parts, strict=True))
    state = ports.worktrees.parent
    signature = sign(daemon_key(state), stated, NAMESPACE)
    daemon = Signer(DAEMON, read_signature(signature).key).line(NAMESPACE)
    files[LIST] = as_text(read_list(state, SIGNERS)) + f"{daemon}\n".encode()
    return files | {STATED: stated.encode(), f"{STATED}.sig": signature.encode()}
