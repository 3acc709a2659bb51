"""Merges actions from the audit log, and incidents, into a job's timeline."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.actions.audit.audit_log import NOTE
from recovery.actions.catalog import ENTRIES
from recovery.domain.identifiers import printable
from recovery.domain.queues.job_timeline import TimelineEvent
from recovery.domain.time_units import elapsed
from recovery.reads.audit.queries import AuditRow
from recovery.reads.stuck.incidents import IncidentRecord

_BY = {
    "stalled-check": "the library's stalled check",
    "operator": "an operator",
    "scanner": "a scanner",
    "worker": "its own worker",
    "removed": "its removal",
}


def merge_events(
    events: Iterable[TimelineEvent], lines: Iterable[AuditRow], incidents: Iterable[IncidentRecord], now: int
) -> list[TimelineEvent]:
    """Returns all events by their time; the steps of which no time is known stay behind the step before them."""
    woven = list(events)
    extra = [_act(line, now) for line in lines]
    for incident in incidents:
        extra += _incident(incident)
    for event in sorted(extra, key=lambda event: event.at or 0):
        woven.insert(_place(woven, event), event)
    return woven


def _place(events: list[TimelineEvent], new: TimelineEvent) -> int:
    before = [place for place, event in enumerate(events) if event.at is not None and event.at <= (new.at or 0)]
    return before[-1] + 1 if before else 0


def _act(line: AuditRow, now: int) -> TimelineEvent:
    status = line.status(now)
    if line.phase == NOTE:
        return TimelineEvent(
            f"{line.act.capitalize()} by {printable(line.actor)}", line.at, f"(#{line.number})", "paused"
        )
    done = next((entry.done for act, entry in ENTRIES.items() if act.value == line.act), line.act)
    what = (
        f"{done.capitalize()} by {printable(line.actor)}" if status == "done" else f"{line.act.capitalize()}: {status}"
    )
    by = "" if status == "done" else f" Requested by {printable(line.actor)}."
    return TimelineEvent(what, line.at, f"{printable(line.reason)}{by} (#{line.number})", "paused")


def _incident(incident: IncidentRecord) -> list[TimelineEvent]:
    found = [TimelineEvent(f"Detected: {incident.kind}", incident.opened_at, _evidence(incident), "stuck")]
    if incident.closed_at is not None:
        by = _BY.get(incident.resolved_by, "unknown")
        length = elapsed(incident.took or 0)
        found.append(TimelineEvent("Recovered", incident.closed_at, f"by {by}, after {length}", "completed"))
    return found


def _evidence(incident: IncidentRecord) -> str:
    if not incident.holder or incident.holder in incident.evidence:
        return printable(incident.evidence)
    return f"{printable(incident.evidence)} Worker: {printable(incident.holder)}.".strip()
