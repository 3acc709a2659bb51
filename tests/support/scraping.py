"""A picture of the house for /metrics, made by hand, and what a scrape of it reads."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from dashboard.live.cached_state import CachedState, PackedMetrics
from dashboard.metrics.exposition import MetricsFormat
from dashboard.metrics.render import render_page
from dashboard.metrics.scrape_input import ScrapeInput
from recovery.config import Config
from recovery.domain.gate.state_machine import Gate, GateSample, GateState
from recovery.domain.identifiers import QueueRef
from recovery.domain.metrics.counters import BreakerCounts, BudgetSpending, DurationHistogram, MetricCounters
from recovery.domain.metrics.queue_totals import QueueTotal
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.servers.samples import Server, ServerProcess
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.types import VerdictKind
from recovery.metrics import queue_totals_store, tally_store
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.reads.stuck import inbox_store
from tests.support.stuck import samples
from tests.support.stuck.samples import NOW

MAIL = QueueRef("main", "bull:mail")
Labels = frozenset[tuple[str, str]]
Series = dict[tuple[str, Labels], float]


def picture_of(
    snapshot: Snapshot | None, config: Config | None = None, *, now: int = NOW, **facts: object
) -> ScrapeInput:
    """`facts`: attributes of the image that shall be set, `inbox`, `tallies`, `totals` and `idempotency` as values."""
    image = CachedState(2.0)
    image.take(
        snapshot_store.encode(snapshot) if snapshot else None, SchedulerStatus("eu-1", 7, 3, NOW, NOW, "a").encode()
    )
    inbox, counted, sums, claims = (facts.pop(name, None) for name in ("inbox", "tallies", "totals", "idempotency"))
    image.packed = PackedMetrics(
        inbox_store.encode(inbox) if isinstance(inbox, StuckInbox) else None,
        tally_store.encode(counted) if isinstance(counted, MetricCounters) else None,
        {queue_totals_store.field(ref): total.encode().encode() for ref, total in sums.items()}
        if isinstance(sums, dict)
        else {},
        claims if isinstance(claims, dict) else {},
        3,
    )
    for name, value in facts.items():
        getattr(image, name)
        setattr(image, name, value)
    return ScrapeInput.of(image, config or Config(), now)


def full() -> ScrapeInput:
    """One of everything."""
    queue = samples.queue(
        counts=samples.counts(waiting=7, active=3, failed=2),
        oldest_waiting_at=NOW - 90_000,
        oldest_active_at=NOW - 4_500,
    )
    watchdog = StalledCheckState(NOW - 5_000, 30_000)
    tally = StuckTally(
        MAIL, {VerdictKind.ABANDONED: 2, VerdictKind.UNLOCKED: 1}, people=2, looked=3, checked_at=NOW, watchdog=watchdog
    )
    server = Server(
        id="eu-1",
        host="eu-1.internal",
        sampled_at=NOW - 1_000,
        poll=5_000,
        cpu_raw=91.5,
        cpu_ema=84.0,
        cores=4.0,
        load1=3.5,
        mem_used=1 << 30,
        mem_total=4 << 30,
        disk_used=1,
        disk_total=2,
        processes=(ServerProcess(1, "node", "node worker.js", 1),),
    )
    return picture_of(
        samples.snapshot(queue),
        inbox=StuckInbox(NOW, (), (tally,)),
        totals={MAIL: QueueTotal(1, 1_200, 30, 1_230)},
        tallies=counted(),
        idempotency={b"won": b"7", b"late": b"1", b"replaced": b"2", b"bytes": b"640", b"token": b"1800000000000000"},
        servers=(server,),
        gates={
            "eu-1": Gate("eu-1", GateState.CLOSED, NOW, sample=GateSample(NOW - 1_000, NOW - 1_000, 5_000, 91.5, 84.0))
        },
        pulses={ScannerKind.COLLECT: LastScannerRun(NOW - 2_000, NOW - 1_900, NOW - 1_900)},
    )


def counted(at: int = NOW) -> MetricCounters:
    took = DurationHistogram((0, 1, 0, 2, *(0,) * 8, 1), 90_061_000)
    return MetricCounters(
        at=at,
        until=0,
        audited=9,
        durations={"stalled-check": took},
        acts={("requeue", "done", "shell"): 4},
        open={"main": 2},
        held=("main",),
        spending=(BudgetSpending(MAIL, 3, 10),),
        breakers=(BreakerCounts(MAIL, 1, 2, 0),),
        quarantined={MAIL: 1},
    )


def read(picture: ScrapeInput, dialect: MetricsFormat = MetricsFormat.TEXT, streams: int = 0) -> Series:
    """What a scraper makes of it."""
    return of_text(render_page(picture, dialect, streams), dialect)


def of_text(text: str, dialect: MetricsFormat = MetricsFormat.TEXT) -> Series:
    families = open_families(text) if dialect is MetricsFormat.OPEN else text_families(text)
    found: Series = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def value(series: Series, name: str, **labels: str) -> float | None:
    """Of the one series with exactly these labels."""
    return series.get((name, frozenset(labels.items())))


def named(series: Iterable[tuple[str, Labels]], name: str) -> list[dict[str, str]]:
    """The labels of all series of this name."""
    return [dict(labels) for found, labels in series if found == name]
