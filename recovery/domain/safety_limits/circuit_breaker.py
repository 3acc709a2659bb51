"""Stops auto-retries of jobs that fail again: one circuit breaker for each queue and error signature.

Closed, it counts how the last auto-retries ended. When more than half of at least twenty failed again it opens, and no
job is retried. After a pause it is half-open: one job is retried as a probe. When the probe succeeds the breaker closes
and counts anew; when it fails, the next pause is longer.

Until twenty have ended, no more than twenty run at once: else thousands could be retried before the first has failed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from recovery.domain import json_fields
from recovery.domain.auto_retry.backoff import Backoff
from recovery.domain.auto_retry.error_signatures import LIMIT
from recovery.domain.identifiers import printable
from recovery.domain.time_units import DAY, HOUR, MINUTE, age

ENOUGH = 20  # auto-retries that have to have ended before the breaker may open; only the last so many count
COUNTED_FOR = 72 * HOUR  # an old result says nothing about the upstream now
OUT_LIMIT = 1_000  # auto-retries that are followed at once: the state has to stay small
OUT_FOR = DAY  # an auto-retry without a result for so long is not waited for any more
PAUSE = Backoff(first=5 * MINUTE, factor=2.0, longest=6 * HOUR, jitter=0.2)


class BreakerStage(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class AutoRetryOutcome(StrEnum):
    """Result of an auto-retry."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # again, with any error
    UNKNOWN = "unknown"  # it was removed, or was not retried: no evidence


@dataclass(frozen=True, slots=True)
class PendingRetry:
    """An auto-retried job that is still pending. `failed_at`: when it failed before the retry; 0: not known."""

    id: str
    at: int
    failed_at: int = 0


@dataclass(frozen=True, slots=True)
class BreakerResult:
    at: int
    has_failed: bool


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """State of one circuit breaker. While it is open `results` stand still: they are why it opened. `error` is the last
    error of a retried job; it has to be redacted like every error before it is shown.
    """

    signature: str = ""
    results: tuple[BreakerResult, ...] = ()
    out: tuple[PendingRetry, ...] = ()
    opened_at: int | None = None
    retry_at: int = 0  # open: when a probe may go
    trips: int = 0  # pauses since it opened: one, and one for each probe that failed
    probe: str | None = None  # id of the job that went as one
    error: str = ""

    @classmethod
    def doubtful(cls, signature: str, now: int) -> CircuitBreaker:
        """Returns an open breaker, for a stored state that cannot be read; after a pause one job is the probe."""
        return cls(signature, opened_at=now)._pausing(now)

    def stage(self, now: int) -> BreakerStage:
        if self.opened_at is None:
            return BreakerStage.CLOSED
        return BreakerStage.HALF_OPEN if self._is_probed(now) or now >= self.retry_at else BreakerStage.OPEN

    def room(self, now: int) -> int:
        """Returns how many jobs the breaker lets be auto-retried now."""
        match self.stage(now):
            case BreakerStage.OPEN:
                return 0
            case BreakerStage.HALF_OPEN:
                return 0 if self._is_probed(now) else 1
        most = OUT_LIMIT if len(self._counted(now)) >= ENOUGH else ENOUGH
        return max(0, most - len(self._out(now)))

    def retried(self, id: str, now: int, failed_at: int = 0) -> CircuitBreaker:
        """Records an auto-retry, before the job is retried. Settle an earlier one first: its failure counts too."""
        probes = self.stage(now) is BreakerStage.HALF_OPEN and not self._is_probed(now)
        others = tuple(out for out in self._out(now) if out.id != id)
        # The probe is always followed; of the others those that were retried first, so that one of them will end.
        kept = others[: OUT_LIMIT - 1] if probes else others
        out = (*kept, PendingRetry(id, now, failed_at))[:OUT_LIMIT]
        return replace(self, out=out, probe=id if probes else self.probe)

    def settled(self, id: str, ended: AutoRetryOutcome, now: int, error: str = "") -> CircuitBreaker:
        """Records how an auto-retry ended. A job that is not pending changes nothing, so a repeat counts once."""
        if id not in {out.id for out in self._out(now)}:
            return self
        left = replace(self, out=tuple(out for out in self._out(now) if out.id != id))
        if ended is AutoRetryOutcome.FAILED:
            left = replace(left, error=_line(error) or self.error)
        if self.opened_at is not None:
            return left._probed(ended, now) if id == self.probe else left
        return (
            left
            if ended is AutoRetryOutcome.UNKNOWN
            else left._counting(BreakerResult(now, ended is AutoRetryOutcome.FAILED))
        )

    def released(self) -> CircuitBreaker:
        """Returns the breaker after a person closed it: it counts anew. Pending retries stay followed."""
        return CircuitBreaker(self.signature, out=self.out, error=self.error)

    def followed(self, now: int) -> tuple[PendingRetry, ...]:
        """Returns the pending auto-retries that have not timed out."""
        return self._out(now)

    def is_idle(self, now: int) -> bool:
        """Returns True if the breaker holds no information and stops nothing, so it need not be stored."""
        return self.opened_at is None and not self._counted(now) and not self._out(now)

    def tally(self, now: int) -> tuple[int, int]:
        """Returns how many auto-retries failed again, and of how many."""
        counted = self.results if self.opened_at is not None else self._counted(now)
        return sum(result.has_failed for result in counted), len(counted)

    def words(self, now: int) -> str:
        match self.stage(now):
            case BreakerStage.CLOSED:
                return self._closed_words(now)
            case BreakerStage.OPEN:
                return f"Open {self._evidence(now)} One probe job runs in {age(self.retry_at - now)}."
        if self._is_probed(now):
            probe = printable(self.probe or "")
            return f"Half-open {self._evidence(now)} Job {probe} runs as a probe; its result is awaited."
        return f"Half-open {self._evidence(now)} One job may run as a probe."

    def as_json(self) -> dict[str, Any]:
        return {
            "signature": self.signature,
            "results": [[result.at, result.has_failed] for result in self.results],
            "out": [[out.id, out.at, out.failed_at] for out in self.out],
            "opened_at": self.opened_at,
            "retry_at": self.retry_at,
            "trips": self.trips,
            "probe": self.probe,
            "error": self.error,
        }

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Parses the output of `as_json`. Raises ValueError on anything else."""
        signature, results, out, opened_at, retry_at, trips, probe, error = json_fields.fields(written, *_FIELDS)
        return cls(
            json_fields.text(signature),
            tuple(
                BreakerResult(json_fields.whole(at), json_fields.flag(failed))
                for at, failed in json_fields.rows(results, 2)
            ),
            tuple(
                PendingRetry(json_fields.text(id), json_fields.whole(at), json_fields.whole(was))
                for id, at, was in json_fields.rows(out, 3)
            ),
            json_fields.whole_or_none(opened_at),
            json_fields.whole(retry_at),
            json_fields.count(trips),
            None if probe is None else json_fields.text(probe),
            json_fields.text(error),
        )

    def _is_probed(self, now: int) -> bool:
        return self.probe is not None and any(out.id == self.probe for out in self._out(now))

    def _out(self, now: int) -> tuple[PendingRetry, ...]:
        return tuple(out for out in self.out if out.at > now - OUT_FOR)

    def _counted(self, now: int) -> tuple[BreakerResult, ...]:
        return tuple(result for result in self.results if result.at > now - COUNTED_FOR)

    def _counting(self, result: BreakerResult) -> CircuitBreaker:
        results = (*self._counted(result.at), result)[-ENOUGH:]
        failed = sum(one.has_failed for one in results)
        counting = replace(self, results=results)
        if len(results) < ENOUGH or failed * 2 <= len(results):
            return counting
        return replace(counting, opened_at=result.at)._pausing(result.at)

    def _probed(self, ended: AutoRetryOutcome, now: int) -> CircuitBreaker:
        match ended:
            case AutoRetryOutcome.SUCCEEDED:
                return self.released()
            case AutoRetryOutcome.FAILED:
                return self._pausing(now)
        return replace(self, probe=None)

    def _pausing(self, now: int) -> CircuitBreaker:
        pause = PAUSE.pause(self.trips, self.signature)
        return replace(self, retry_at=now + pause, trips=self.trips + 1, probe=None)

    def _closed_words(self, now: int) -> str:
        failed, of = self.tally(now)
        if of >= ENOUGH:
            return f"Closed: {failed} of the last {of} auto-retries failed again."
        out = len(self._out(now))
        so_far = f"{of} auto-retries have ended so far, {failed} failed again, {out} are running"
        return f"Closed: {so_far}. It decides from {ENOUGH} on."

    def _evidence(self, now: int) -> str:
        failed, of = self.tally(now)
        since = age(now - self.opened_at) if self.opened_at is not None else "unknown"
        what = f"{failed} of {of} auto-retries failed again" if of else "the stored counts cannot be read"
        said = f"for {since}: {what}"
        last = f", the last with “{printable(self.error)}”" if self.error else ""
        return f"{said}{last}.{self._probes_words()}"

    def _probes_words(self) -> str:
        probes = self.trips - 1
        if probes < 1:
            return ""
        return " A probe failed too." if probes == 1 else f" {probes:,} probes failed too."


_FIELDS = ("signature", "results", "out", "opened_at", "retry_at", "trips", "probe", "error")


def _line(error: str) -> str:
    return error.strip().partition("\n")[0][:LIMIT]
