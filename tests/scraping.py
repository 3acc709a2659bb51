"""A picture of the house for /metrics, made by hand, and what a scrape of it reads."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from dashboard.live.image import Image, Packed
from dashboard.metrics.page import page
from dashboard.metrics.picture import Picture
from dashboard.metrics.text import Dialect
from recovery.config import Config
from recovery.domain.counts import Snapshot
from recovery.domain.gate import Gate, GateState, Sample
from recovery.domain.inbox import Inbox, Tally, Watchdog
from recovery.domain.refs import QueueRef
from recovery.domain.scans import Scan
from recovery.domain.servers import Process, Server
from recovery.domain.tallies import Breakers, Durations, Spending, Tallies
from recovery.domain.totals import Total
from recovery.domain.verdicts import Kind
from recovery.reads import inboxes, snapshots, tallies, totals
from recovery.reads.leading import Sign
from recovery.reads.pulses import Pulse
from tests import samples
from tests.samples import NOW

MAIL = QueueRef("main", "bull:mail")
Labels = frozenset[tuple[str, str]]
Series = dict[tuple[str, Labels], float]


def picture_of(snapshot: Snapshot | None, config: Config | None = None, *, now: int = NOW, **facts: object) -> Picture:
    """`facts`: attributes of the image that shall be set, `inbox`, `tallies`, `totals` and `idempotency` as values."""
    image = Image(2.0)
    image.take(snapshots.encode(snapshot) if snapshot else None, Sign("eu-1", 7, 3, NOW, NOW, "a").encode())
    inbox, counted, sums, claims = (facts.pop(name, None) for name in ("inbox", "tallies", "totals", "idempotency"))
    image.packed = Packed(
        inboxes.encode(inbox) if isinstance(inbox, Inbox) else None,
        tallies.encode(counted) if isinstance(counted, Tallies) else None,
        {totals.field(ref): total.encode().encode() for ref, total in sums.items()} if isinstance(sums, dict) else {},
        claims if isinstance(claims, dict) else {},
        3,
    )
    for name, value in facts.items():
        getattr(image, name)
        setattr(image, name, value)
    return Picture.of(image, config or Config(), now)


def full() -> Picture:
    """One of everything."""
    queue = samples.queue(
        counts=samples.counts(waiting=7, active=3, failed=2),
        oldest_waiting_at=NOW - 90_000,
        oldest_active_at=NOW - 4_500,
    )
    watchdog = Watchdog(NOW - 5_000, 30_000)
    tally = Tally(MAIL, {Kind.ABANDONED: 2, Kind.UNLOCKED: 1}, people=2, looked=3, checked_at=NOW, watchdog=watchdog)
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
        processes=(Process(1, "node", "node worker.js", 1),),
    )
    return picture_of(
        samples.snapshot(queue),
        inbox=Inbox(NOW, (), (tally,)),
        totals={MAIL: Total(1, 1_200, 30, 1_230)},
        tallies=counted(),
        idempotency={b"won": b"7", b"late": b"1", b"replaced": b"2", b"bytes": b"640", b"token": b"1800000000000000"},
        servers=(server,),
        gates={"eu-1": Gate("eu-1", GateState.CLOSED, NOW, sample=Sample(NOW - 1_000, NOW - 1_000, 5_000, 91.5, 84.0))},
        pulses={Scan.COLLECT: Pulse(NOW - 2_000, NOW - 1_900, NOW - 1_900)},
    )


def counted(at: int = NOW) -> Tallies:
    took = Durations((0, 1, 0, 2, *(0,) * 8, 1), 90_061_000)
    return Tallies(
        at=at,
        until=0,
        audited=9,
        durations={"stalled-check": took},
        acts={("requeue", "done", "shell"): 4},
        open={"main": 2},
        held=("main",),
        spending=(Spending(MAIL, 3, 10),),
        breakers=(Breakers(MAIL, 1, 2, 0),),
        quarantined={MAIL: 1},
    )


def read(picture: Picture, dialect: Dialect = Dialect.TEXT, streams: int = 0) -> Series:
    """What a scraper makes of it."""
    return of_text(page(picture, dialect, streams), dialect)


def of_text(text: str, dialect: Dialect = Dialect.TEXT) -> Series:
    families = open_families(text) if dialect is Dialect.OPEN else text_families(text)
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
