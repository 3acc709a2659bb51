"""Tells whether a connected worker may still run an execution whose job is gone, as after a flush of Redis."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.time_units import MINUTE, SECOND

_RECONNECTED = MINUTE  # after a start of Redis: a worker that connects within it may be older
_SLACK = 3 * SECOND  # Redis reports ages in whole seconds, and Redis and the database have clocks of their own
_UNKNOWN = "How long n8n's workers have been connected is not known: one of them may still run it."
_NO_TIME = "When it began is not known: any worker that is connected may still run it."
_OLDER = "A worker has been connected since before it began, and may still run it."
_RECONNECTING = (
    "Redis was started after it began, and a worker connected within a minute of that: it may be older than its "
    "connection, and still run it."
)


@dataclass(frozen=True, slots=True)
class WorkerAges:
    """Ages of the connections of n8n's workers. Times are ms since 1970. `oldest`: when the longest connected worker
    connected; None: there is none.
    """

    is_known: bool = False
    oldest: int | None = None
    redis_started_at: int | None = None  # None: Redis does not report it

    def may_run(self, began: int | None) -> str:
        """Returns why a worker may still run an execution that began then; "" when none can."""
        if not self.is_known:
            return _UNKNOWN
        if self.oldest is None:
            return ""
        if began is None:
            return _NO_TIME
        if self.oldest - _SLACK <= began:
            return _OLDER
        if self.redis_started_at is None:
            return _UNKNOWN
        is_new = self.redis_started_at <= began or self.oldest > self.redis_started_at + _RECONNECTED
        return "" if is_new else _RECONNECTING
