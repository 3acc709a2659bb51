"""Presents n8n's processes on /stuck/n8n."""

from __future__ import annotations

from typing import Any

from dashboard.base.job_rows import Cells
from recovery.domain.identifiers import printable
from recovery.domain.n8n.instances import (
    NAMES,
    EndedInstance,
    InstanceEnding,
    InstanceHistory,
    N8nInstance,
    concerns,
    summary,
)

SHOWN = 100  # processes listed; all are counted
_ENDED = {
    InstanceEnding.STOPPED: ("stopped", ""),
    InstanceEnding.DIED: ("died: it did not shut down", "stuck"),
    InstanceEnding.UNKNOWN: ("gone", "warn"),
}


def instance_table(history: InstanceHistory | None, now: int) -> dict[str, Any] | None:
    """Returns the table of n8n's processes; None: not checked yet, or this n8n keeps no registry."""
    if history is None or not (history.here or history.gone or history.fault or history.unknown):
        return None
    lines = [_here(one, now) for one in history.instances] + [_gone(one) for one in reversed(history.gone)]
    return {
        "summary": printable(summary(history.instances)) if history.here else "",
        "checked_at": history.checked_at,
        "concerns": [printable(one) for one in concerns(history, now)],
        "lines": lines[:SHOWN],
        "left_out": max(0, len(lines) - SHOWN),
    }


def _here(one: N8nInstance, now: int) -> Cells:
    is_silent = one.is_silent(now)
    return _line(one) | {"state": "no heartbeat" if is_silent else "alive", "tone": "stuck" if is_silent else ""}


def _gone(gone: EndedInstance) -> Cells:
    state, tone = _ENDED[gone.ending]
    return _line(gone.instance) | {"state": state, "tone": tone}


def _line(one: N8nInstance) -> Cells:
    role = one.role if one.type == "main" and one.role != "unset" else ""
    return {
        "host": printable(one.host),
        "what": " · ".join(filter(None, (NAMES.get(one.type, "unknown type"), role, printable(one.pool)))),
        "version": printable(one.version),
        "since": one.registered_at,
        "seen": one.seen_at,
    }
