"""Plans what the scheduler runs, as leader and as reader: which scanners and tasks, how often, and when first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recovery.actions import bulk
from recovery.config import Config
from recovery.connections.registry import Registry
from recovery.domain.counts import Snapshot
from recovery.domain.mandate import Mandate, May, always
from recovery.domain.scans import Scan
from recovery.reads.scans import every
from recovery.scanners import audit_heads, consoles
from recovery.scanners.acting import rights
from recovery.scanners.acting.ledger import Ledger
from recovery.scanners.acting.seeing import collecting, discovering
from recovery.scanners.acting.turn import Run, Turn
from recovery.scanners.alerting import watch as alerting
from recovery.scanners.audit_heads import AuditHeadSender
from recovery.scanners.consoles import Consoles
from recovery.scanners.crew import Crew
from recovery.scanners.deep import auto_retry
from recovery.scanners.execution_copies import AFTER as COPY_AFTER
from recovery.scanners.execution_copies import EVERY as COPY_EVERY
from recovery.scanners.execution_copies import ExecutionCopyWatch
from recovery.scanners.execution_rescue import EVERY as RESCUE_EVERY
from recovery.scanners.execution_rescue import ExecutionRescue
from recovery.scanners.following import hooks
from recovery.scanners.gating import gates
from recovery.scanners.nodes import exporters, prometheus
from recovery.scanners.snapshot.collect import Collector
from recovery.scanners.snapshot.discover import Discoverer
from recovery.scanners.snapshot.record import Recorder
from recovery.scanners.snapshot.roster import Roster
from recovery.scanners.tallying import tally
from recovery.scanners.truths import watch as truths
from recovery.scanners.watching.turnover import Turnover
from recovery.scheduler import drills, orders, timed
from recovery.scheduler.orders import Orders
from recovery.scheduler.timed import Rhythm, Timed

DISCOVER_LOOK = 2.0  # seconds: discovery decides itself what is due, this only bounds how late it notices
COLLECT_AFTER = 0.5  # seconds: discovery is through a small Redis by then, and the first snapshot is not empty
TALLY_AFTER = 3.0  # seconds: the first runs of the scanners are done
RECORD_AFTER = 4  # seconds after a minute ended: the snapshot is newer than the minute by then
WATCH_LOOK = 0.25  # seconds: a worker that was killed is to be noticed, proven gone and answered within five
FIRST = {
    # Seconds after the start of a term. The first snapshot is there by then, and the lists of queues after a while.
    Scan.ORPHAN_WATCH: 2.0,
    Scan.STALE_CHECK: 20.0,
    Scan.AUTO_RETRY: 30.0,
    Scan.STARTUP_SWEEP: 1.0,
    Scan.PRUNE: 60.0,
}
# These run at the start of each term, whenever they ran last: they are cheap, and something may have been missed.
ANEW = frozenset({Scan.ORPHAN_WATCH, Scan.STARTUP_SWEEP})


@dataclass(frozen=True, slots=True)
class Entry:
    """One scanner or task of a plan. `run` takes the time in milliseconds."""

    name: str
    every: float  # seconds
    run: Callable[[int], object]
    jitter: float = 0.0
    first: float = 0.0  # seconds after the start
    second: int | None = None  # each minute at this second, instead of `every` since the start


@dataclass(frozen=True, slots=True)
class Plan:
    """All entries of a role; each run begins only while `may` returns True.

    `stop` asks long runs to end, `close` releases resources when none is left.
    """

    entries: tuple[Entry, ...]
    stop: Callable[[], None]
    close: Callable[[], None]
    may: May = always


def reading(config: Config, registry: Registry, may: May) -> Plan:
    """Returns the plan of a reader, while the leader is unknown: it only collects what pages show."""
    roster = Roster()
    discoverer = Discoverer(registry, roster)
    collector = Collector(registry, roster, may)
    ledger = Ledger(registry, None)
    entries = (
        Entry("discover", DISCOVER_LOOK, _direct(config, Scan.DISCOVER, discovering(discoverer), ledger)),
        Entry(
            "collect",
            config.collect_every,
            _direct(config, Scan.COLLECT, collecting(collector), ledger),
            first=COLLECT_AFTER,
        ),
        *_measuring(config, registry, may),
        *_comparing(config, registry, lambda: collector.newest, may),
    )
    return Plan(entries, discoverer.stop, collector.close, may)


def plan(config: Config, registry: Registry, mandate: Mandate, consoles: Consoles) -> Plan:
    """Returns the plan for one term of the leader. Each term begins anew: another leader may have changed all."""
    term = _Term(config, registry, mandate, consoles)
    return Plan(term.entries(), term.stop, term.close, mandate.holds)


class _Term:
    """All parts of one term of the leader."""

    def __init__(self, config: Config, registry: Registry, mandate: Mandate, consoles: Consoles) -> None:
        self._config = config
        self._registry = registry
        self._mandate = mandate
        self._may = mandate.holds
        roster = Roster()
        self._discoverer = Discoverer(registry, roster)
        self._collector = Collector(registry, roster, self._may)
        self._recorder = Recorder(registry, lambda: self._collector.newest)
        self._crew = Crew(registry, lambda: self._collector.newest, mandate)
        self._bulk = bulk.Runner(registry, mandate)
        self._calls = hooks.Hooks(registry, self._may)
        self._heads = AuditHeadSender(config.audit, config.environment, self._may)
        self._alerts = alerting.Watch(registry, lambda: self._collector.newest, self._may, self._heads)
        self._gates = gates.Gates(registry, self._may)
        self._rights = rights.Rights(registry, lambda: self._collector.newest)
        self._tallier = tally.Tallier(registry, self._may)
        self._ledger = Ledger(registry, mandate.epoch)
        self._orders = Orders(self._ledger)
        self._drills = drills.Drills(registry, mandate)
        self._timed = {scan: self._timing(scan) for scan in self._crew.scans}
        self._turnover = Turnover()
        self._consoles = consoles

    def entries(self) -> tuple[Entry, ...]:
        return (
            Entry(
                "discover",
                DISCOVER_LOOK,
                _direct(self._config, Scan.DISCOVER, discovering(self._discoverer), self._ledger),
            ),
            Entry("collect", self._config.collect_every, self._collecting(), first=COLLECT_AFTER),
            *(Entry(scan.value, _look(scan), self._timed[scan].tick) for scan in self._crew.scans),
            Entry("rights", rights.EVERY, self._rights.run, first=COLLECT_AFTER + 0.5),
            Entry("consoles", consoles.EVERY, lambda now: self._consoles.run(now, self._crew.watch.lost_at)),
            Entry("orders", orders.EVERY, self._orders.look),
            # Auto-retried jobs are followed between two runs too.
            Entry("follow relaunched", auto_retry.FOLLOW_EVERY, self._crew.relaunch.follow),
            # Once soon after the start, so that history in Redis is shown before the first minute is over.
            Entry("record at start", 0, self._recorder.run, first=3 * self._config.collect_every),
            Entry("record", 60, self._recorder.run, second=RECORD_AFTER),
            Entry("bulk runs", bulk.EVERY, self._bulk.run),
            Entry("hooks", hooks.EVERY, self._calls.run),
            Entry("gates", gates.EVERY, self._gates.run),
            Entry("audit heads", audit_heads.EVERY, self._heads.run),
            Entry("alerts", alerting.EVERY, self._alerts.run, first=alerting.AFTER),
            *_measuring(self._config, self._registry, self._may),
            *_comparing(self._config, self._registry, lambda: self._collector.newest, self._may),
            *self._copying(),
            Entry("drills", drills.EVERY, self._drills.look),
            Entry("tallies", tally.EVERY, self._tallier.run, first=TALLY_AFTER),
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

    def _timing(self, scan: Scan) -> Timed:
        rhythm = Rhythm(every(self._config, scan), FIRST[scan], anew=scan in ANEW)
        turn = Turn(scan, self._crew.run_of(scan), self._ledger)
        return Timed(turn, rhythm, self._ledger, self._orders, may=self._may)

    def _copying(self) -> Iterator[Entry]:
        """Yields the entries for copies of n8n's executions at risk, and for their rescue, where configured."""
        if any(n8n.database for n8n in self._config.n8n):
            watch = ExecutionCopyWatch(self._registry, lambda: self._collector.newest, self._may)
            yield Entry("execution copies", COPY_EVERY, watch.run, first=COPY_AFTER)
        if any(n8n.automatic for n8n in self._config.n8n):
            yield Entry("execution rescue", RESCUE_EVERY, ExecutionRescue(self._registry, self._mandate).run)

    def _collecting(self) -> Callable[[int], object]:
        """Returns the collect run, which starts the orphan watch at once after a worker has left or come."""
        collect = _direct(self._config, Scan.COLLECT, collecting(self._collector), self._ledger)

        def run(now: int) -> None:
            collect(now)
            snapshot = self._collector.newest
            turnover = snapshot is not None and self._turnover.has_any(snapshot)
            if turnover or self._crew.watch.is_pending:
                self._timed[Scan.ORPHAN_WATCH].call()

        return run


def _measuring(config: Config, registry: Registry, may: May) -> Iterator[Entry]:
    """Yields the entries for servers without a monitor. They change no queue, so a reader runs them too."""
    if any(node.exporter for node in config.nodes):
        yield Entry("nodes", exporters.EVERY, exporters.Exporters(registry, may).run)
    if config.prometheus:
        known = prometheus.FromPrometheus(registry, config.prometheus, may)
        yield Entry("prometheus", prometheus.EVERY, known.run)


def _comparing(config: Config, registry: Registry, newest: Callable[[], Snapshot | None], may: May) -> Iterator[Entry]:
    """Yields the entry that compares n8n's jobs with its executions. It only reads, so a reader runs it too."""
    if config.n8n:
        yield Entry("n8n", config.n8n_every, truths.Watch(registry, newest, may).run, first=truths.AFTER)


def _look(scan: Scan) -> float:
    return WATCH_LOOK if scan is Scan.ORPHAN_WATCH else timed.LOOK


def _direct(config: Config, scan: Scan, run: Run, ledger: Ledger) -> Callable[[int], object]:
    """Returns the function of a scanner that runs at each tick."""
    turn, often = Turn(scan, run, ledger), round(every(config, scan) * 1000)
    return lambda now: turn.due(now, now + often)
