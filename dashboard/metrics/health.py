"""Writes the families about Unstall itself: snapshot, deployments, scheduler, scanners, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from dashboard.metrics.exposition import Lines, MetricFamily
from dashboard.metrics.labels import format_labels
from dashboard.metrics.scrape_input import ScrapeInput
from recovery.domain.queues.types import DeploymentSample
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.consoles import Console
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.queries import every
from recovery.version import VERSION

BUILD = MetricFamily("unstall_build_info", "Always 1; the label has the version of this process.")
STATE_STORE = MetricFamily("unstall_state_store_up", "1 while the state store answers this process.")
WRITABLE = MetricFamily("unstall_state_store_writable", "1 while the state store takes writes.")
TAKEN = MetricFamily(
    "unstall_snapshot_timestamp_seconds",
    "Time of the newest snapshot. If it gets old, the collector is not running.",
    unit="seconds",
)
STALE = MetricFamily("unstall_snapshot_stale", "1 if the newest snapshot is stale.")
SCHEDULER = MetricFamily("unstall_scheduler_up", "1 while a scheduler sends its heartbeat.")
LEADS = MetricFamily("unstall_scheduler_leads", "1 if a scheduler is the leader, 0 if it only reads.")
TERM = MetricFamily("unstall_leader_term", "Term of the leader; it changes with each leader.")
CONSOLES = MetricFamily(
    "unstall_other_consoles", "Other Unstall installations whose scheduler leads on the Redis of this deployment."
)
HELD = MetricFamily(
    "unstall_held_by_other_console",
    "1 while another Unstall installation acts on this deployment and this one is paused.",
)
QUEUES = MetricFamily("unstall_queues", "Queues in the newest snapshot.")
LEFT_OUT = MetricFamily(
    "unstall_queues_left_out", "Queues without metrics because there are more than the configured limit."
)
UP = MetricFamily("unstall_deployment_up", "1 when the deployment answered the last snapshot.")
DURATION = MetricFamily(
    "unstall_snapshot_duration_seconds", "How long the last snapshot of a deployment took.", unit="seconds"
)
COMMANDS = MetricFamily(
    "unstall_snapshot_commands", "Commands that the last snapshot of a deployment sent to its store."
)
SUCCEEDED = MetricFamily(
    "unstall_scanner_last_success_timestamp_seconds", "Time of the last successful run of a scanner.", unit="seconds"
)
INTERVAL = MetricFamily("unstall_scanner_interval_seconds", "Configured interval of a scanner.", unit="seconds")
TOOK = MetricFamily("unstall_scanner_last_duration_seconds", "How long a scanner's last run took.", unit="seconds")
FAILING = MetricFamily(
    "unstall_scanner_failing",
    "1 if the last run of a scanner failed or its store refused the changes.",
)
STREAMS = MetricFamily("unstall_streams", "Open pages with live updates, in this process.")


def families(picture: ScrapeInput, streams: int) -> Iterator[Lines]:
    yield BUILD, (BUILD.of(format_labels(version=VERSION), 1),)
    yield from _snapshot(picture)
    yield from _deployments(picture)
    if not picture.health.error:
        yield from _scheduler(picture)
        yield from _scanners(picture.image.pulses, picture)
    yield STREAMS, (STREAMS.of("", streams),)


def _snapshot(picture: ScrapeInput) -> Iterator[Lines]:
    health, snapshot = picture.health, picture.image.snapshot
    yield STATE_STORE, (STATE_STORE.of("", int(not health.error)),)
    if not health.error:
        yield WRITABLE, (WRITABLE.of("", int(not health.refuses)),)
    yield STALE, (STALE.of("", int(health.stale)),)
    if snapshot:
        yield TAKEN, (TAKEN.of("", snapshot.taken_at / 1000),)
        yield LEFT_OUT, (LEFT_OUT.of("", picture.found - len(picture.queues)),)


def _deployments(picture: ScrapeInput) -> Iterator[Lines]:
    snapshot = picture.image.snapshot
    if snapshot is None or picture.health.stale:
        return
    found = Counter(sample.ref.deployment for sample in snapshot.queues)
    rows = [(format_labels(deployment=one.name), one) for one in snapshot.deployments]
    yield UP, (UP.of(labels, int(not one.error)) for labels, one in rows)
    yield QUEUES, (QUEUES.of(labels, found[one.name]) for labels, one in rows if not one.error)
    for family, value in _OF_DEPLOYMENTS.items():
        yield family, [family.of(labels, value(one)) for labels, one in rows if not one.error]


def _scheduler(picture: ScrapeInput) -> Iterator[Lines]:
    alive, sign = picture.health.scheduler_alive, picture.image.leader
    if alive is not None:
        yield SCHEDULER, (SCHEDULER.of("", int(alive)),)
    if sign:
        yield LEADS, (LEADS.of("", int(sign.leads)),)
        if sign.epoch is not None:
            yield TERM, (TERM.of("", sign.epoch),)
            yield from _consoles(sign.consoles, picture)


def _consoles(others: Sequence[Console], picture: ScrapeInput) -> Iterator[Lines]:
    count = Counter(one.deployment for one in others)
    acting = {one.deployment for one in others if one.acts}
    snapshot = picture.image.snapshot
    names = [(format_labels(deployment=one.name), one.name) for one in snapshot.deployments] if snapshot else []
    yield CONSOLES, [CONSOLES.of(labels, count[name]) for labels, name in names]
    yield HELD, [HELD.of(labels, int(name in acting)) for labels, name in names]


def _scanners(pulses: Mapping[ScannerKind, LastScannerRun], picture: ScrapeInput) -> Iterator[Lines]:
    rows = [(format_labels(scanner=scan.value), scan, pulse) for scan, pulse in pulses.items()]
    known = [(labels, pulse.succeeded_at) for labels, _, pulse in rows]
    yield SUCCEEDED, (SUCCEEDED.of(labels, at / 1000) for labels, at in known if at is not None)
    yield INTERVAL, (INTERVAL.of(labels, every(picture.config, scan)) for labels, scan, _ in rows)
    yield TOOK, (TOOK.of(labels, pulse.took / 1000) for labels, _, pulse in rows)
    yield FAILING, (FAILING.of(labels, int(pulse.has_failed)) for labels, _, pulse in rows)


_OF_DEPLOYMENTS: Mapping[MetricFamily, Callable[[DeploymentSample], float]] = {
    DURATION: lambda one: one.took_ms / 1000,
    COMMANDS: lambda one: one.commands,
}
