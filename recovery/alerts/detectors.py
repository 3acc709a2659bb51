"""Detects the problems that become alerts: in the snapshot, the inbox, the safety limits and the gates.

A source that cannot be read is reported as unknown, so that none of its alerts is taken for over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from urllib.parse import urlencode

from django.db import Error

from recovery.domain.alerts.types import AlertCheck, AlertFinding, AlertKind, storage_key
from recovery.domain.gate.state_machine import Gate, GateState
from recovery.domain.identifiers import QueueRef, printable, slug
from recovery.domain.n8n.comparison import N8nComparison
from recovery.domain.n8n.mismatches import MismatchKind
from recovery.domain.queues.types import QueueLibrary, QueueSample, Snapshot
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import VerdictKind as Verdict
from recovery.domain.time_units import SECOND
from recovery.errors import StoreError
from recovery.gate import queries as gate_queries
from recovery.n8n import comparison_store
from recovery.reads.safety_limits import queries as safety_limits_queries
from recovery.reads.safety_limits.queries import DeploymentRedisPause, ErrorBreaker
from recovery.reads.scanners import last_runs, scheduler_status
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.stuck import inbox_store
from recovery.scanners.audit_heads import AuditHeadSender
from recovery.stores.registry import ConnectionRegistry

LIMIT = 500  # findings of one check, those with most jobs: who gets more than these reads the page
FRESH = 15 * SECOND  # or three intervals: what is older says nothing about now
_NAMED = 3  # queues of a deployment that are named

Detector = Callable[[int], Iterable[AlertFinding] | None]  # None: not known


class AlertDetectors:
    """All detectors of the leader. `newest`: the snapshot of this term. `heads`: the sender of audit heads, if any."""

    def __init__(
        self, registry: ConnectionRegistry, newest: Callable[[], Snapshot | None], heads: AuditHeadSender | None = None
    ) -> None:
        self._registry = registry
        self._config = registry.config
        self._newest = newest
        self._heads = heads

    def look(self, now: int) -> AlertCheck:
        inbox, snapshot, servers = self._inbox(now), self._snapshot(now), self._gates()
        tables = self._truths(now)
        asked: dict[AlertKind, Detector] = {
            AlertKind.ABANDONED: lambda at: _abandoned(inbox, snapshot, at) if inbox else None,
            AlertKind.QUARANTINE: lambda _: _quarantine(inbox) if inbox else None,
            AlertKind.N8N: lambda _: None if tables is None else _n8n(tables),
            AlertKind.UNREADABLE: lambda _: _unreadable(snapshot) if snapshot else None,
            AlertKind.SCANNER: lambda _: _refused(last_runs.read(self._registry.state())),
            AlertKind.CONSOLE: lambda _: _consoles(scheduler_status.fetch(self._registry.state())),
            AlertKind.AUDIT: lambda _: _unsent(self._heads) if self._heads else (),
            AlertKind.BREAKER: lambda at: _breakers(safety_limits_queries.breakers(at)),
            AlertKind.GATE: lambda at: None if servers is None else _closed(servers, at),
            AlertKind.PAUSE: lambda at: (
                _redis_pause(store)
                for store in safety_limits_queries.redis_pauses(at, self._config)
                if store.is_holding
            ),
        }
        found = {kind: self._ask(source, now) for kind, source in asked.items()}
        known = {kind: findings for kind, findings in found.items() if findings is not None}
        largest = nlargest(LIMIT, (one for findings in known.values() for one in findings), key=lambda one: one.size)
        silent = {sample.name for sample in snapshot.deployments if sample.error} if snapshot else set()
        unseen = {storage_key(gate.server) for gate in servers or () if not _is_seen(gate, now)}
        uncompared = {_n8n_key(truth) for truth in tables or () if truth.fault}
        return AlertCheck(
            now, tuple(largest), frozenset(known), frozenset(silent), frozenset(unseen), frozenset(uncompared)
        )

    def _ask(self, source: Detector, now: int) -> list[AlertFinding] | None:
        try:
            found = source(now)
            return None if found is None else list(found)
        except (StoreError, Error):
            return None

    def _inbox(self, now: int) -> StuckInbox | None:
        try:
            found = inbox_store.fetch(self._registry.state())
        except StoreError:
            return None
        return found if found and _is_fresh(found.checked_at, now, self._config.orphans_every) else None

    def _truths(self, now: int) -> tuple[N8nComparison, ...] | None:
        """Returns a comparison for each n8n with a database; None while one of them is missing or old."""
        named = {one.name for one in self._config.n8n if one.database}
        try:
            found = comparison_store.fetch(self._registry.state()) if named else ()
        except StoreError:
            return None
        fresh = tuple(one for one in found if one.name in named and not comparison_store.is_old(one, now))
        return fresh if len(fresh) == len(named) else None

    def _gates(self) -> tuple[Gate, ...] | None:
        try:
            return tuple(gate_queries.fetch(self._registry.state()).values())
        except StoreError:
            return None

    def _snapshot(self, now: int) -> Snapshot | None:
        found = self._newest()
        return found if found and _is_fresh(found.taken_at, now, self._config.collect_every) else None


def _is_fresh(at: int, now: int, every: float) -> bool:
    return now - at <= max(FRESH, 3 * round(every * SECOND))


# -- jobs


def _abandoned(inbox: StuckInbox, snapshot: Snapshot | None, now: int) -> Iterator[AlertFinding]:
    """Yields a finding per queue with abandoned jobs, also if a scanner will put them right: no worker does."""
    samples = {sample.ref: sample for sample in snapshot.queues} if snapshot else {}
    for tally in inbox.queues:
        count = tally.kinds.get(Verdict.ABANDONED, 0)
        if count:
            words = _abandoned_words(tally, count, samples.get(tally.queue), now)
            link = f"/stuck?{urlencode({'queue': _key(tally.queue), 'verdict': Verdict.ABANDONED.value})}"
            yield AlertFinding(AlertKind.ABANDONED, _key(tally.queue), words, link, count)


def _abandoned_words(tally: StuckTally, count: int, sample: QueueSample | None, now: int) -> str:
    why = "no worker runs the stalled check"
    if sample and sample.flavour.library is QueueLibrary.TABLE:
        why = "no scanner checks this table"
    elif sample and sample.workers == 0:
        why = "no worker is connected"
    be = "is" if count == 1 else "are"
    return f"{_jobs(count)} {be} abandoned in {_name(tally.queue)}: {why}, {tally.outlook.words(count, now)}."


def _quarantine(inbox: StuckInbox) -> Iterator[AlertFinding]:
    """Yields a finding per queue with quarantined jobs that are stuck now; resolved ones are no news."""
    rows = [row for row in inbox.rows if row.verdict.is_quarantined]
    for queue, count in Counter(row.job.queue for row in rows).items():
        mine = [row for row in rows if row.job.queue == queue]
        is_one = count == 1
        words = (
            f"{_jobs(count)} of {_name(queue)} {'is' if is_one else 'are'} quarantined: "
            f"stalled repeatedly, so only a person can retry {'it' if is_one else 'them'}."
        )
        link = f"/stuck?{urlencode({'queue': _key(queue), 'verdict': 'quarantined'})}"
        yield AlertFinding(AlertKind.QUARANTINE, _key(queue), words, link, count, min(row.since for row in mine))


# -- n8n


def _n8n(tables: Iterable[N8nComparison]) -> Iterator[AlertFinding]:
    """Yields a finding per kind of mismatch, and one for an n8n whose executions cannot be read."""
    for truth in tables:
        if truth.fault:
            words = f"The jobs and executions of {printable(truth.name)} cannot be compared: {truth.fault}"
            yield AlertFinding(AlertKind.N8N, _n8n_key(truth), words, "/stuck/n8n", since=truth.checked_at)
            continue
        for kind, count in truth.counts.items():
            if count and kind.needs_a_person:
                yield _mismatch(truth, kind, count)


def _mismatch(truth: N8nComparison, kind: MismatchKind, count: int) -> AlertFinding:
    since = [pair.finding.since for pair in truth.pairs if pair.finding and pair.finding.kind is kind]
    words = f"{printable(truth.name)}, {kind.value}: {count:,} execution{'' if count == 1 else 's'}. {kind.sentence}"
    link = f"/stuck/n8n?{urlencode({'mismatch': kind.value, 'n8n': truth.name})}"
    known = min((one for one in since if one is not None), default=None)
    return AlertFinding(AlertKind.N8N, f"{_n8n_key(truth)}/{slug(kind.value)}", words, link, count, known)


def _n8n_key(truth: N8nComparison) -> str:
    return f"{truth.queue.deployment}/{truth.name}"


# -- auto-recovery that is paused


def _breakers(found: Iterable[ErrorBreaker]) -> Iterator[AlertFinding]:
    queues: dict[QueueRef, list[ErrorBreaker]] = {}
    for breaker in found:
        if breaker.is_open:
            queues.setdefault(breaker.queue, []).append(breaker)
    for queue, mine in queues.items():
        since = min((breaker.opened_at for breaker in mine if breaker.opened_at is not None), default=None)
        words = (
            f"{_open_words(mine)} in {_name(queue)}: {_breaker_words(mine[0])} Only an occasional probe job is retried."
        )
        yield AlertFinding(AlertKind.BREAKER, _key(queue), words, "/scanners#safety-limits", len(mine), since)


def _open_words(breakers: Sequence[ErrorBreaker]) -> str:
    return "A breaker is open" if len(breakers) == 1 else f"{len(breakers):,} breakers are open"


def _breaker_words(breaker: ErrorBreaker) -> str:
    """Returns what failed, without ages: they would change the text, and so be news, at each check."""
    last = f", the last with “{printable(breaker.error)}”" if breaker.error else ""
    return f"{breaker.failed:,} of {breaker.of:,} auto-retries failed again{last}."


def _redis_pause(store: DeploymentRedisPause) -> AlertFinding:
    since = min(hold.since for hold in store.holds)
    evidence = " ".join(hold.evidence for hold in store.holds)
    words = f"Auto-recovery is paused on {printable(store.deployment)}: {evidence}"
    return AlertFinding(AlertKind.PAUSE, store.deployment, words, "/scanners#safety-limits", since=since)


# -- scanners


def _refused(last: Mapping[ScannerKind, LastScannerRun]) -> Iterator[AlertFinding]:
    for scan, pulse in last.items():
        if pulse.is_refused:
            words = f"{scan.value.capitalize()} is denied by its store: {pulse.trouble}"
            yield AlertFinding(AlertKind.SCANNER, scan.value, words, f"/scanners/{scan.value}", since=pulse.ended_at)


def _consoles(sign: scheduler_status.SchedulerStatus | None) -> Iterator[AlertFinding]:
    for one in sign.consoles if sign else ():
        key, words = f"{one.deployment}/{one.installation}", f"{one.words} {one.meaning}"
        yield AlertFinding(AlertKind.CONSOLE, key, words, "/scanners", since=one.since)


# -- the audit


def _unsent(heads: AuditHeadSender) -> Iterable[AlertFinding] | None:
    troubles = heads.troubles
    if troubles is None:
        return None
    return [
        AlertFinding(AlertKind.AUDIT, place.value, f"The audit heads cannot be sent: {why}", "/audit", since=since)
        for place, (why, since) in troubles.items()
    ]


# -- gates


def _is_seen(gate: Gate, now: int) -> bool:
    """Returns True if the gate's server has reported lately; else its state is unknown."""
    return gate.state is not GateState.UNKNOWN and gate.sample is not None and gate.sample.is_fresh(now)


def _closed(found: Iterable[Gate], now: int) -> Iterator[AlertFinding]:
    for gate in found:
        if gate.state is GateState.CLOSED and _is_seen(gate, now):
            known = gate.sample.cpu if gate.sample else None
            cpu = f": its CPU is at {known:.0f} %" if known is not None else ""
            words = f"The gate of {printable(gate.server)} is closed{cpu}. No heavy job starts on it."
            yield AlertFinding(AlertKind.GATE, gate.server, words, f"/servers/{slug(gate.server)}", since=gate.since)


# -- what cannot be read


def _unreadable(snapshot: Snapshot) -> Iterator[AlertFinding]:
    """Yields one finding per deployment: a user that may not read one queue often may not read the others."""
    for sample in snapshot.deployments:
        mine = [queue for queue in snapshot.queues if queue.ref.deployment == sample.name and queue.error]
        link = f"/queues?{urlencode({'deployment': sample.name})}"
        if sample.error:
            words = f"{printable(sample.name)} does not answer ({sample.target}): {sample.error}."
            yield AlertFinding(AlertKind.UNREADABLE, sample.name, words, link, len(mine) or 1)
        elif mine:
            named = ", ".join(queue.ref.label for queue in mine[:_NAMED])
            more = f" and {len(mine) - _NAMED:,} more" if len(mine) > _NAMED else ""
            is_one = len(mine) == 1
            words = (
                f"{len(mine):,} queue{'' if is_one else 's'} of {printable(sample.name)} cannot be read: "
                f"{named}{more}. "
                f"{mine[0].error}"
            )
            yield AlertFinding(AlertKind.UNREADABLE, sample.name, words, link, len(mine))


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _key(queue: QueueRef) -> str:
    return f"{queue.deployment}/{slug(queue.base)}"


def _name(queue: QueueRef) -> str:
    return f"{printable(queue.deployment)}/{queue.label}"
