"""Writes queues and jobs as one value of a URL, a check box or a filter."""

from __future__ import annotations

from recovery.domain.refs import JobRef, QueueRef


def written(ref: QueueRef) -> str:
    return f"{ref.deployment}/{ref.slug}"


def written_job(ref: JobRef) -> str:
    """Returns the job as check boxes and URLs name it."""
    return f"{written(ref.queue)}/{ref.slug}"
