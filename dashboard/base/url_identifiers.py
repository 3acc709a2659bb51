"""Writes queues and jobs as one value of a URL, a check box or a filter."""

from __future__ import annotations

from recovery.domain.identifiers import JobRef, QueueRef


def queue_url_ref(ref: QueueRef) -> str:
    return f"{ref.deployment}/{ref.slug}"


def job_url_ref(ref: JobRef) -> str:
    """Returns the job as check boxes and URLs name it."""
    return f"{queue_url_ref(ref.queue)}/{ref.slug}"
