"""Records reveals of payloads: the audit has who saw which part of what, before it is shown."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Actor
from recovery.domain.identifiers import JobRef, printable

ACT = "reveal"


def record_of_job(actor: Actor, job: JobRef, parts: Iterable[str]) -> int:
    """Writes one entry for the parts that are revealed together; returns its number. If NotRecorded, show nothing."""
    body = {"options": {"parts": ", ".join(parts)}, "jobs": [{"job": job.id}]}
    return audit_log.note(actor, ACT, body=body, queue=job.queue, jobs=(job.id,))


def record_of_key(actor: Actor, key: str) -> int:
    """Writes the entry for the result that is kept under an idempotency key."""
    return audit_log.note(actor, ACT, body={"options": {"parts": "result", "key": printable(key)}})


def record_of_line(actor: Actor, source: str, line: str) -> int:
    """Writes the entry for a line of a log."""
    return audit_log.note(actor, ACT, body={"options": {"parts": "log line", "source": source, "line": line}})
