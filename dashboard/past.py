"""Merges actions from the audit log, and incidents, into a job's timeline."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.actions.audit import NOTE
from recovery.actions.catalog import ENTRIES
from recovery.domain.ages import took
from recovery.domain.refs import shown
from recovery.domain.timeline import Event
from recovery.reads.audit import Line
from recovery.reads.incidents import Record

_BY = {
    "stalled-check": "the library's stalled check",
    "operator": "an operator",
    "scanner": "a scanner",
    "worker": "its own worker",
    "removed": "its removal",
}


def woven(events: Iterable[Event], lines: Iterable[Line], incidents: Iterable[Record], now: int) -> list[Event]:
    """Returns all events by their time; the steps of which no time is known stay behind the step before them."""
    woven = list(events)
    extra = [_act(line, now) for line in lines]
    for incident in incidents:
        extra += _incident(incident)
    for event in sorted(extra, key=lambda event: event.at or 0):
        woven.insert(_place(woven, event), event)
    return woven


def _place(events: list[Event], new: Event) -> int:
    before = [place for place, event in enumerate(events) if event.at is not None and event.at <= (new.at or 0)]
    return before[-1] + 1 if before else 0


def _act(line: Line, now: int) -> Event:
    status = line.status(now)
    if line.phase == NOTE:
        return Event(f"{line.act.capitalize()} by {shown(line.actor)}", line.at, f"(#{line.number})", "paused")
    done = next((entry.done for act, entry in ENTRIES.items() if act.value == line.act), line.act)
    what = f"{done.capitalize()} by {shown(line.actor)}" if status == "done" else f"{line.act.capitalize()}: {status}"
    by = "" if status == "done" else f" Requested by {shown(line.actor)}."
    return Event(what, line.at, f"{shown(line.reason)}{by} (#{line.number})", "paused")


def _incident(incident: Record) -> list[Event]:
    found = [Event(f"Detected: {incident.kind}", incident.opened_at, _evidence(incident), "stuck")]
    if incident.closed_at is not None:
        by = _BY.get(incident.resolved_by, "unknown")
        length = took(incident.took or 0)
        found.append(Event("Recovered", incident.closed_at, f"by {by}, after {length}", "completed"))
    return found


def _evidence(incident: Record) -> str:
    if not incident.holder or incident.holder in incident.evidence:
        return shown(incident.evidence)
    return f"{shown(incident.evidence)} Worker: {shown(incident.holder)}.".strip()
