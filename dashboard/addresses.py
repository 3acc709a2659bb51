"""Queues and jobs as one word of an address, of a check box, or of a filter."""

from __future__ import annotations

from recovery.domain.refs import JobRef, QueueRef


def written(ref: QueueRef) -> str:
    return f"{ref.deployment}/{ref.slug}"


def written_job(ref: JobRef) -> str:
    """A job as a checkbox and an address name it."""
    return f"{written(ref.queue)}/{ref.slug}"
