"""Presents the safety limits that hold scanners back: a line each, with its evidence and the link to release it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from dashboard.base.job_rows import brief
from recovery.domain.auto_retry.rules import CAP_WINDOW
from recovery.domain.identifiers import JobRef, QueueRef, printable
from recovery.domain.safety_limits.circuit_breaker import BreakerStage
from recovery.domain.stuck.context import QUARANTINE_WINDOW
from recovery.domain.time_units import age
from recovery.reads.safety_limits.queries import (
    DeploymentRedisPause,
    ErrorBreaker,
    QuarantinedJob,
    QueueBudget,
    RetryLimitedJob,
    SafetyLimits,
)

STORE, BREAKER, PAST, QUARANTINE = "store", "breaker", "past", "quarantine"
_STATES = {BreakerStage.OPEN: "tripped", BreakerStage.HALF_OPEN: "half-open", BreakerStage.CLOSED: "works"}
_TITLES = {STORE: "Redis pause", BREAKER: "Breaker", PAST: "Auto-retry limit", QUARANTINE: "Quarantine"}
_EFFECTS = {
    STORE: "Scanners change jobs in this deployment from their next run on. A new Redis problem pauses them.",
    BREAKER: "The breaker closes and its counter restarts: failed jobs with this error are auto-retried in the budget.",
    PAST: "Its auto-retry counter is reset: it may be auto-retried again as often as its policy allows.",
    QUARANTINE: "Its stalled history is reset: scanners may change the job again.",
}
_RISKS = {
    STORE: "If Redis lost the locks of jobs whose workers still run, these jobs are treated as orphaned and run twice. "
    "Release it once the workers were restarted too or their locks are back.",
    BREAKER: "If the service that the jobs call still fails, they use up their auto-retries for nothing.",
    PAST: "If the job itself is the cause, it fails just as often again.",
    QUARANTINE: "If the job crashes its workers, it can crash three more of them and interrupt the jobs they run.",
}


@dataclass(frozen=True, slots=True)
class SafetyLimitLine:
    """A safety limit. `state` chooses its colour, `word` is its text."""

    kind: str
    state: str
    word: str
    words: tuple[str, ...]
    deployment: str
    queue: QueueRef | None = None
    job: JobRef | None = None
    key: str = ""
    signature: str = ""
    since: int | None = None

    @property
    def id(self) -> str:
        """Element id, by which the browser finds the button again when the page has refreshed."""
        return f"release-{self.kind}-{self.deployment}-{self.queue.slug if self.queue else ''}-{self.key[:24]}"

    @property
    def title(self) -> str:
        return _TITLES[self.kind]

    @property
    def queue_label(self) -> str:
        return self.queue.label if self.queue else ""

    @property
    def queue_url(self) -> str:
        return reverse("queue", args=[self.queue.deployment, self.queue.base]) if self.queue else ""

    @property
    def job_label(self) -> str:
        return brief(self.job.label) if self.job else ""

    @property
    def job_url(self) -> str:
        ref = self.job
        return reverse("job", args=[ref.queue.deployment, ref.queue.base, ref.id]) if ref else ""

    @property
    def about(self) -> str:
        """Name of the job, queue or deployment that is released, for use in a sentence."""
        if self.job:
            return f"job {self.job_label} in {self.queue_label}"
        return self.queue_label or printable(self.deployment)

    @property
    def effect(self) -> str:
        return _EFFECTS[self.kind]

    @property
    def risk(self) -> str:
        return _RISKS[self.kind]

    @property
    def address(self) -> str:
        """URL of the dialog that releases it."""
        where = {"deployment": self.deployment}
        if self.queue:
            where = {"queue": f"{self.queue.deployment}/{self.queue.slug}"}
        told = {"kind": self.kind, **where, "key": self.key}
        asked = urlencode({name: value for name, value in told.items() if value}, safe="/:")
        return f"{reverse('safety-limit-release')}?{asked}"


@dataclass(frozen=True, slots=True)
class SafetyLimitBoard:
    """All safety limits. `lines` hold something back now; `counting` are the breakers that are closed."""

    lines: tuple[SafetyLimitLine, ...] = ()
    counting: tuple[SafetyLimitLine, ...] = ()
    free: tuple[DeploymentRedisPause, ...] = ()
    gauges: tuple[QueueBudget, ...] = ()

    @property
    def summary(self) -> str:
        """Active limits in one sentence, without the Redis pauses, which every page shows; "" for none."""
        return ", ".join(_counted(self.lines))

    def line(self, kind: str, key: str) -> SafetyLimitLine | None:
        return next((one for one in (*self.lines, *self.counting) if (one.kind, one.key) == (kind, key)), None)


def board(limits: SafetyLimits, now: int) -> SafetyLimitBoard:
    lines = (*_stores(limits), *_open(limits), *_capped(limits, now), *_quarantine(limits))
    counting = tuple(_breaker(one) for one in limits.breakers if not one.is_open)
    free = tuple(store for store in limits.stores if not store.is_holding)
    return SafetyLimitBoard(lines, counting, free, limits.gauges)


def _counted(lines: tuple[SafetyLimitLine, ...]) -> Iterator[str]:
    said = {
        BREAKER: ("breaker is open", "breakers are open"),
        PAST: ("job reached its auto-retry limit", "jobs reached their auto-retry limit"),
        QUARANTINE: ("job is in quarantine", "jobs are in quarantine"),
    }
    for kind, (one, more) in said.items():
        if count := sum(line.kind == kind for line in lines):
            yield f"{count:,} {one if count == 1 else more}"


def _stores(limits: SafetyLimits) -> Iterator[SafetyLimitLine]:
    for store in limits.holding:
        since = min(hold.since for hold in store.holds)
        yield SafetyLimitLine(STORE, "holds", "paused", store.words, store.deployment, since=since)


def _open(limits: SafetyLimits) -> Iterator[SafetyLimitLine]:
    return (_breaker(one) for one in limits.breakers if one.is_open)


def _breaker(one: ErrorBreaker) -> SafetyLimitLine:
    return SafetyLimitLine(
        BREAKER,
        _STATES[one.stage],
        one.stage.value,
        (printable(one.words),),
        one.queue.deployment,
        one.queue,
        key=one.key,
        signature=printable(one.signature) or "any error",
        since=one.opened_at,
    )


def _capped(limits: SafetyLimits, now: int) -> Iterator[SafetyLimitLine]:
    return (_cap(one, now) for one in limits.capped)


def _cap(one: RetryLimitedJob, now: int) -> SafetyLimitLine:
    queue = one.job.queue
    more = f", {one.made:,} times in total" if one.made > one.count else ""
    said = (
        f"Auto-retried {one.count:,} times within {age(CAP_WINDOW)}{more}. Next auto-retry in {age(one.free_at - now)}."
    )
    return SafetyLimitLine(
        PAST, "capped", "at its limit", (said,), queue.deployment, queue, one.job, one.key, since=one.last_at
    )


def _quarantine(limits: SafetyLimits) -> Iterator[SafetyLimitLine]:
    return (_quarantined(one) for one in limits.quarantined)


def _quarantined(one: QuarantinedJob) -> SafetyLimitLine:
    queue = one.job.queue
    said = (
        f"Repeatedly stalled: orphaned {one.count:,} times within {age(QUARANTINE_WINDOW)}. It may crash its workers."
    )
    told = (said, "Scanners do not change it until a user releases it.")
    return SafetyLimitLine(QUARANTINE, "quarantined", "quarantined", told, queue.deployment, queue, one.job, one.key)
