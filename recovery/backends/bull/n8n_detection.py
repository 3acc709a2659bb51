"""Tells a queue of n8n from any other: its jobs name a workflow and an execution.

Its rules are its own: main learns from a publish alone that a job failed; a job that runs again runs its workflow from
the start; and executions of a paused queue are taken for crashed.
"""

from __future__ import annotations

from recovery.backends.redis_common import decode

DATA_LIMIT = 16 * 1024  # bytes: n8n's jobs hold ids and flags, no payload
EXECUTION = "executionId"
ABORT = {"kind": "abort-job"}  # what n8n writes as the progress of a job that is to be aborted, since 1.55
OLD_ABORT = -1  # before that
_NAMES = frozenset({EXECUTION, "workflowId"})


def is_n8n(data: bytes | str | None) -> bool:
    """Returns True if this is what n8n writes as the data of a job."""
    if data is None or len(data) > DATA_LIMIT:
        return False
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return decode.mapping(raw).keys() >= _NAMES
