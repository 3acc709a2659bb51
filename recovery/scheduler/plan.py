"""Plans what the scheduler runs, as leader and as reader: which scanners and tasks, how often, and when first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recovery.actions.bulk import bulk_runs
from recovery.alerts import scanner as alerting
from recovery.config import Config
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.leader_token import LeaderToken, May, always_leader
from recovery.drills import executor
from recovery.gate import evaluator
from recovery.hooks import dispatcher
from recovery.metrics import aggregator
from recovery.reads.scanners.queries import every
from recovery.scanners import audit_heads, other_consoles
from recovery.scanners.audit_heads import AuditHeadSender
from recovery.scanners.auto_retry import scanner
from recovery.scanners.collect.collector import Collector
from recovery.scanners.collect.recorder import HistoryRecorder
from recovery.scanners.collect.run_adapters import collect_run, discover_run
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.n8n import comparison as truths
from recovery.scanners.n8n.execution_copies import AFTER as COPY_AFTER
from recovery.scanners.n8n.execution_copies import EVERY as COPY_EVERY
from recovery.scanners.n8n.execution_copies import ExecutionCopyWatch
from recovery.scanners.n8n.execution_rescue import EVERY as RESCUE_EVERY
from recovery.scanners.n8n.execution_rescue import ExecutionRescue
from recovery.scanners.orphan_watch.worker_turnover import WorkerTurnover
from recovery.scanners.other_consoles import OtherConsoles
from recovery.scanners.registry import ScannerRegistry
from recovery.scanners.runtime import store_rights
from recovery.scanners.runtime.run_recorder import ScannerRunRecorder
from recovery.scanners.runtime.scanner_runner import ScannerFunction, ScannerRunner
from recovery.scheduler import run_requests, scanner_timer
from recovery.scheduler.run_requests import RunRequests
from recovery.scheduler.scanner_timer import RunInterval, ScannerTimer
from recovery.servers.nodes import exporter_scraper, prometheus_poller
from recovery.stores.registry import ConnectionRegistry

DISCOVER_LOOK = 2.0  # seconds: discovery decides itself what is due, this only bounds how late it notices
COLLECT_AFTER = 0.5  # seconds: discovery is through a small Redis by then, and the first snapshot is not empty
TALLY_AFTER = 3.0  # seconds: the first runs of the scanners are done
RECORD_AFTER = 4  # seconds after a minute ended: the snapshot is newer than the minute by then
WATCH_LOOK = 0.25  # seconds: a worker that was killed is to be noticed, proven gone and answered within five
FIRST = {
    # Seconds after the start of a term. The first snapshot is there by then, and the lists of queues after a while.
    ScannerKind.ORPHAN_WATCH: 2.0,
    ScannerKind.STALE_CHECK: 20.0,
    ScannerKind.AUTO_RETRY: 30.0,
    ScannerKind.STARTUP_SWEEP: 1.0,
    ScannerKind.PRUNE: 60.0,
}
# These run at the start of each term, whenever they ran last: they are cheap, and something may have been missed.
AT_TERM_START = frozenset({ScannerKind.ORPHAN_WATCH, ScannerKind.STARTUP_SWEEP})


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A scanner or task of a plan. `run` takes the time in milliseconds."""

    name: str
    every: float  # seconds
    run: Callable[[int], object]
    jitter: float = 0.0
    first: float = 0.0  # seconds after the start
    second: int | None = None  # each minute at this second, instead of `every` since the start


@dataclass(frozen=True, slots=True)
class SchedulerPlan:
    """All entries of a role; each run begins only while `may` returns True.

    `stop` asks long runs to end, `close` releases resources when none is left.
    """

    entries: tuple[PlanEntry, ...]
    stop: Callable[[], None]
    close: Callable[[], None]
    may: May = always_leader


def reader_plan(config: Config, registry: ConnectionRegistry, may: May) -> SchedulerPlan:
    """Returns the plan of a reader, while the leader is unknown: it only collects what pages show."""
    roster = KnownQueues()
    discoverer = Discoverer(registry, roster)
    collector = Collector(registry, roster, may)
    ledger = ScannerRunRecorder(registry, None)
    entries = (
        PlanEntry("discover", DISCOVER_LOOK, _direct(config, ScannerKind.DISCOVER, discover_run(discoverer), ledger)),
        PlanEntry(
            "collect",
            config.collect_every,
            _direct(config, ScannerKind.COLLECT, collect_run(collector), ledger),
            first=COLLECT_AFTER,
        ),
        *_measuring(config, registry, may),
        *_comparing(config, registry, lambda: collector.newest, may),
    )
    return SchedulerPlan(entries, discoverer.stop, collector.close, may)


def leader_plan(
    config: Config, registry: ConnectionRegistry, leader_token: LeaderToken, consoles: OtherConsoles
) -> SchedulerPlan:
    """Returns the plan for one term of the leader. Each term begins anew: another leader may have changed all."""
    term = _Term(config, registry, leader_token, consoles)
    return SchedulerPlan(term.entries(), term.stop, term.close, leader_token.holds)


class _Term:
    """All parts of one term of the leader."""

    def __init__(
        self, config: Config, registry: ConnectionRegistry, leader_token: LeaderToken, consoles: OtherConsoles
    ) -> None:
        self._config = config
        self._registry = registry
        self._leader_token = leader_token
        self._may = leader_token.holds
        roster = KnownQueues()
        self._discoverer = Discoverer(registry, roster)
        self._collector = Collector(registry, roster, self._may)
        self._recorder = HistoryRecorder(registry, lambda: self._collector.newest)
        self._crew = ScannerRegistry(registry, lambda: self._collector.newest, leader_token)
        self._bulk = bulk_runs.BulkRunner(registry, leader_token)
        self._calls = dispatcher.HookDispatcher(registry, self._may)
        self._heads = AuditHeadSender(config.audit, config.environment, self._may)
        self._alerts = alerting.AlertScanner(registry, lambda: self._collector.newest, self._may, self._heads)
        self._gates = evaluator.GateEvaluator(registry, self._may)
        self._rights = store_rights.StoreRightsCheck(registry, lambda: self._collector.newest)
        self._tallier = aggregator.MetricsAggregator(registry, self._may)
        self._ledger = ScannerRunRecorder(registry, leader_token.epoch)
        self._orders = RunRequests(self._ledger)
        self._drills = executor.DrillExecutor(registry, leader_token)
        self._timed = {scan: self._timing(scan) for scan in self._crew.scans}
        self._turnover = WorkerTurnover()
        self._consoles = consoles

    def entries(self) -> tuple[PlanEntry, ...]:
        return (
            PlanEntry(
                "discover",
                DISCOVER_LOOK,
                _direct(self._config, ScannerKind.DISCOVER, discover_run(self._discoverer), self._ledger),
            ),
            PlanEntry("collect", self._config.collect_every, self._collecting(), first=COLLECT_AFTER),
            *(PlanEntry(scan.value, _look(scan), self._timed[scan].tick) for scan in self._crew.scans),
            PlanEntry("rights", store_rights.EVERY, self._rights.run, first=COLLECT_AFTER + 0.5),
            PlanEntry("consoles", other_consoles.EVERY, lambda now: self._consoles.run(now, self._crew.watch.lost_at)),
            PlanEntry("orders", run_requests.EVERY, self._orders.look),
            # Auto-retried jobs are followed between two runs too.
            PlanEntry("follow auto-retries", scanner.FOLLOW_EVERY, self._crew.auto_retry.follow),
            # Once soon after the start, so that history in Redis is shown before the first minute is over.
            PlanEntry("record at start", 0, self._recorder.run, first=3 * self._config.collect_every),
            PlanEntry("record", 60, self._recorder.run, second=RECORD_AFTER),
            PlanEntry("bulk runs", bulk_runs.EVERY, self._bulk.run),
            PlanEntry("hooks", dispatcher.EVERY, self._calls.run),
            PlanEntry("gates", evaluator.EVERY, self._gates.run),
            PlanEntry("audit heads", audit_heads.EVERY, self._heads.run),
            PlanEntry("alerts", alerting.EVERY, self._alerts.run, first=alerting.AFTER),
            *_measuring(self._config, self._registry, self._may),
            *_comparing(self._config, self._registry, lambda: self._collector.newest, self._may),
            *self._copying(),
            PlanEntry("drills", executor.EVERY, self._drills.look),
            PlanEntry("tallies", aggregator.EVERY, self._tallier.run, first=TALLY_AFTER),
        )

    def stop(self) -> None:
        self._discoverer.stop()
        self._bulk.stop()
        self._drills.stop()
        self._crew.stop()

    def close(self) -> None:
        self._collector.close()
        self._bulk.close()
        self._consoles.close()

    def _timing(self, scan: ScannerKind) -> ScannerTimer:
        rhythm = RunInterval(every(self._config, scan), FIRST[scan], anew=scan in AT_TERM_START)
        turn = ScannerRunner(scan, self._crew.run_of(scan), self._ledger)
        return ScannerTimer(turn, rhythm, self._ledger, self._orders, may=self._may)

    def _copying(self) -> Iterator[PlanEntry]:
        """Yields the entries for copies of n8n's executions at risk, and for their rescue, where configured."""
        if any(n8n.database for n8n in self._config.n8n):
            watch = ExecutionCopyWatch(self._registry, lambda: self._collector.newest, self._may)
            yield PlanEntry("execution copies", COPY_EVERY, watch.run, first=COPY_AFTER)
        if any(n8n.automatic for n8n in self._config.n8n):
            yield PlanEntry("execution rescue", RESCUE_EVERY, ExecutionRescue(self._registry, self._leader_token).run)

    def _collecting(self) -> Callable[[int], object]:
        """Returns the collect run, which starts the orphan watch at once after a worker has left or come."""
        collect = _direct(self._config, ScannerKind.COLLECT, collect_run(self._collector), self._ledger)

        def run(now: int) -> None:
            collect(now)
            snapshot = self._collector.newest
            turnover = snapshot is not None and self._turnover.has_any(snapshot)
            if turnover or self._crew.watch.is_pending:
                self._timed[ScannerKind.ORPHAN_WATCH].call()

        return run


def _measuring(config: Config, registry: ConnectionRegistry, may: May) -> Iterator[PlanEntry]:
    """Yields the entries for servers without a monitor. They change no queue, so a reader runs them too."""
    if any(node.exporter for node in config.nodes):
        yield PlanEntry("nodes", exporter_scraper.EVERY, exporter_scraper.ExporterScraper(registry, may).run)
    if config.prometheus:
        known = prometheus_poller.PrometheusPoller(registry, config.prometheus, may)
        yield PlanEntry("prometheus", prometheus_poller.EVERY, known.run)


def _comparing(
    config: Config, registry: ConnectionRegistry, newest: Callable[[], Snapshot | None], may: May
) -> Iterator[PlanEntry]:
    """Yields the entry that compares n8n's jobs with its executions. It only reads, so a reader runs it too."""
    if config.n8n:
        yield PlanEntry(
            "n8n", config.n8n_every, truths.ComparisonScanner(registry, newest, may).run, first=truths.AFTER
        )


def _look(scan: ScannerKind) -> float:
    return WATCH_LOOK if scan is ScannerKind.ORPHAN_WATCH else scanner_timer.LOOK


def _direct(
    config: Config, scan: ScannerKind, run: ScannerFunction, ledger: ScannerRunRecorder
) -> Callable[[int], object]:
    """Returns the function of a scanner that runs at each tick."""
    turn, often = ScannerRunner(scan, run, ledger), round(every(config, scan) * 1000)
    return lambda now: turn.due(now, now + often)
