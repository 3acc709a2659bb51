"""Whether a worker that is connected may still run an execution that has no job any more, as after a flush of Redis."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.ages import MINUTE, SECOND

_RECONNECTED = MINUTE  # after a start of Redis: who connects within it may have been there before
_SLACK = 3 * SECOND  # ages are told in whole seconds, and Redis and the database have clocks of their own
_UNKNOWN = "How long n8n's workers have been connected is not known: one of them may still run it."
_NO_TIME = "When it began is not known: any worker that is connected may still run it."
_OLDER = "A worker has been connected since before it began, and may still run it."
_RECONNECTING = (
    "Redis was started after it began, and a worker connected within a minute of that: it may be older than its "
    "connection, and still run it."
)


@dataclass(frozen=True, slots=True)
class WorkerAges:
    """Times are ms since 1970. `oldest`: when the worker that is connected longest connected; None: there is none."""

    is_known: bool = False
    oldest: int | None = None
    redis_started_at: int | None = None  # None: it does not say

    def may_run(self, began: int | None) -> str:
        """Why one of them may still run what began then; "" when none of them can."""
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
