"""The report of a mission, made from its end and from what the journal knows of it."""

from __future__ import annotations

import os

from placet.agent.asked_report import asked_section
from placet.agent.record import Record
from placet.agent.report import outcome_of
from placet.agent.report_parts import Circumstances
from placet.agent.work import Mission
from placet.agent.workplace import Ports
from placet.case.estimate import median
from placet.case.events import MissionEnded
from placet.chat.result import Ended
from placet.core.life.why_failed import of_last_mission
from placet.core.text.blocks import Frontmatter
from placet.core.wording import rfc3339

MAX_ROWS = 10_000
"""Maximum of a case's rows that a report is made from, the last ones."""


def report(ports: Ports, mission: Mission, ended: Ended) -> MissionEnded:
    """Return the end of a mission as the loop takes it, with its report."""
    case, moment = mission.case, ports.clock.wall()
    record = Record.load(ports.journal, case, case.generation, ports.clock)
    with ports.journal.read() as reader:
        rows = reader.activity(case.trace_id, limit=MAX_ROWS, newest=True)
        costs = reader.calls.mission_costs(mission.complexity.value)
        asked = asked_section(case, rows, record, reader)
    return outcome_of(
        ended,
        Circumstances(
            case,
            mission.plan,
            mission.complexity,
            ports.config.model.name,
            ports.config.model.provider,
            ports.sandbox.title,
            moment,
            rfc3339(moment),
            Frontmatter(ports.config.vault.frontmatter),
            of_last_mission(rows),
            median(costs),
            lambda path: os.path.lexists(ports.vault / path),
            record.pictures(),
            mission.remarks,
            asked,
        ),
    )
