"""What holds the scanners back, on a page: one line a brake, with its evidence and the way to release it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from dashboard.rows import brief
from recovery.domain.ages import age
from recovery.domain.breaker import Stage
from recovery.domain.refs import JobRef, QueueRef, shown
from recovery.domain.retry import CAP_WINDOW
from recovery.domain.surroundings import POISON_WINDOW
from recovery.reads.brakes import Brakes, Capped, ErrorBreaker, Poison, QueueGauge, StoreBrake

STORE, BREAKER, PAST, POISON = "store", "breaker", "past", "poison"
_STATES = {Stage.OPEN: "tripped", Stage.HALF_OPEN: "half-open", Stage.CLOSED: "works"}
_TITLES = {STORE: "Redis brake", BREAKER: "Breaker", PAST: "Relaunch cap", POISON: "Quarantine"}
_EFFECTS = {
    STORE: "Scanners act again in this deployment, from their next look on. What engages the brake later counts again.",
    BREAKER: "It closes and counts anew: failed jobs with this error are relaunched again, within the budget.",
    PAST: "Its relaunches are forgotten: it may be relaunched as often again as its policy allows.",
    POISON: "Its earlier orphanings count no more: scanners may touch it again.",
}
_RISKS = {
    STORE: "If the store lost the locks of jobs whose workers run on, these jobs are taken for orphans and run twice. "
    "Release it when the workers were restarted too, or when their locks are back.",
    BREAKER: "If what it calls still fails, the jobs that go use up their relaunches for nothing.",
    PAST: "If it fails for a reason of its own, it fails again as often.",
    POISON: "If it is what kills its workers, it will take up to three more of them, and the jobs that they hold.",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One brake. `state` lends its colour, `word` says it."""

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
        """For the browser, which finds the button again by it when the page has refreshed."""
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
        """What is released, in a sentence."""
        if self.job:
            return f"job {self.job_label} in {self.queue_label}"
        return self.queue_label or shown(self.deployment)

    @property
    def effect(self) -> str:
        return _EFFECTS[self.kind]

    @property
    def risk(self) -> str:
        return _RISKS[self.kind]

    @property
    def address(self) -> str:
        """Where it is released."""
        where = {"deployment": self.deployment}
        if self.queue:
            where = {"queue": f"{self.queue.deployment}/{self.queue.slug}"}
        told = {"kind": self.kind, **where, "key": self.key}
        asked = urlencode({name: value for name, value in told.items() if value}, safe="/:")
        return f"{reverse('brake-release')}?{asked}"


@dataclass(frozen=True, slots=True)
class Board:
    """All of them. `lines` hold something back now; `counting` are the breakers that are closed."""

    lines: tuple[Line, ...] = ()
    counting: tuple[Line, ...] = ()
    free: tuple[StoreBrake, ...] = ()
    gauges: tuple[QueueGauge, ...] = ()

    @property
    def summary(self) -> str:
        """In a sentence, what holds beside the stores, of which every page says so; "" for nothing."""
        return ", ".join(_counted(self.lines))

    def line(self, kind: str, key: str) -> Line | None:
        return next((one for one in (*self.lines, *self.counting) if (one.kind, one.key) == (kind, key)), None)


def board(brakes: Brakes, now: int) -> Board:
    lines = (*_stores(brakes), *_open(brakes), *_capped(brakes, now), *_poison(brakes))
    counting = tuple(_breaker(one) for one in brakes.breakers if not one.is_open)
    free = tuple(store for store in brakes.stores if not store.is_holding)
    return Board(lines, counting, free, brakes.gauges)


def _counted(lines: tuple[Line, ...]) -> Iterator[str]:
    said = {
        BREAKER: ("breaker is open", "breakers are open"),
        PAST: ("job was relaunched too often", "jobs were relaunched too often"),
        POISON: ("job is in quarantine", "jobs are in quarantine"),
    }
    for kind, (one, more) in said.items():
        if count := sum(line.kind == kind for line in lines):
            yield f"{count:,} {one if count == 1 else more}"


def _stores(brakes: Brakes) -> Iterator[Line]:
    for store in brakes.holding:
        since = min(hold.since for hold in store.holds)
        yield Line(STORE, "holds", "holds", store.words, store.deployment, since=since)


def _open(brakes: Brakes) -> Iterator[Line]:
    return (_breaker(one) for one in brakes.breakers if one.is_open)


def _breaker(one: ErrorBreaker) -> Line:
    return Line(
        BREAKER,
        _STATES[one.stage],
        one.stage.value,
        (shown(one.words),),
        one.queue.deployment,
        one.queue,
        key=one.key,
        signature=shown(one.signature) or "any error",
        since=one.opened_at,
    )


def _capped(brakes: Brakes, now: int) -> Iterator[Line]:
    return (_cap(one, now) for one in brakes.capped)


def _cap(one: Capped, now: int) -> Line:
    queue = one.job.queue
    more = f", {one.made:,} times in all" if one.made > one.count else ""
    said = (
        f"Relaunched {one.count:,} times within {age(CAP_WINDOW)}{more}. The next may go in {age(one.free_at - now)}."
    )
    return Line(PAST, "capped", "at its cap", (said,), queue.deployment, queue, one.job, one.key, since=one.last_at)


def _poison(brakes: Brakes) -> Iterator[Line]:
    return (_quarantined(one) for one in brakes.poison)


def _quarantined(one: Poison) -> Line:
    queue = one.job.queue
    said = f"Orphaned {one.count:,} times within {age(POISON_WINDOW)}: it may be what kills its workers."
    told = (said, "It waits for a person.")
    return Line(POISON, "poison", "poison", told, queue.deployment, queue, one.job, one.key)
