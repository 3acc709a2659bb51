"""Detects the problems that become alerts: in the snapshot, the inbox, the safety limits and the gates.

A source that cannot be read is reported as unknown, so that none of its alerts is taken for over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from urllib.parse import urlencode

from django.db import Error

from recovery.connections.registry import Registry
from recovery.domain.ages import SECOND
from recovery.domain.alerts import AlertKind, Finding, Look, short
from recovery.domain.counts import Library, QueueSample, Snapshot
from recovery.domain.gate import Gate, GateState
from recovery.domain.inbox import Inbox, Tally
from recovery.domain.n8n.mismatches import Mismatch
from recovery.domain.n8n.pairs import Truth
from recovery.domain.refs import QueueRef, shown, slug
from recovery.domain.scans import Scan
from recovery.domain.verdicts import Kind as Verdict
from recovery.errors import StoreError
from recovery.reads import brakes, gates, inboxes, leading, pulses
from recovery.reads.brakes import ErrorBreaker, StoreBrake
from recovery.reads.n8n import truths
from recovery.reads.pulses import Pulse
from recovery.scanners.audit_heads import AuditHeadSender

LIMIT = 500  # findings of one check, those with most jobs: who gets more than these reads the page
FRESH = 15 * SECOND  # or three intervals: what is older says nothing about now
_NAMED = 3  # queues of a deployment that are named

Source = Callable[[int], Iterable[Finding] | None]  # None: not known


class Sources:
    """All detectors of the leader. `newest`: the snapshot of this term. `heads`: the sender of audit heads, if any."""

    def __init__(
        self, registry: Registry, newest: Callable[[], Snapshot | None], heads: AuditHeadSender | None = None
    ) -> None:
        self._registry = registry
        self._config = registry.config
        self._newest = newest
        self._heads = heads

    def look(self, now: int) -> Look:
        inbox, snapshot, servers = self._inbox(now), self._snapshot(now), self._gates()
        tables = self._truths(now)
        asked: dict[AlertKind, Source] = {
            AlertKind.ABANDONED: lambda at: _abandoned(inbox, snapshot, at) if inbox else None,
            AlertKind.QUARANTINE: lambda _: _quarantine(inbox) if inbox else None,
            AlertKind.N8N: lambda _: None if tables is None else _n8n(tables),
            AlertKind.UNREADABLE: lambda _: _unreadable(snapshot) if snapshot else None,
            AlertKind.SCANNER: lambda _: _refused(pulses.read(self._registry.state())),
            AlertKind.CONSOLE: lambda _: _consoles(leading.fetch(self._registry.state())),
            AlertKind.AUDIT: lambda _: _unsent(self._heads) if self._heads else (),
            AlertKind.BREAKER: lambda at: _breakers(brakes.breakers(at)),
            AlertKind.GATE: lambda at: None if servers is None else _closed(servers, at),
            AlertKind.PAUSE: lambda at: (
                _brake(store) for store in brakes.stores(at, self._config) if store.is_holding
            ),
        }
        found = {kind: self._ask(source, now) for kind, source in asked.items()}
        known = {kind: findings for kind, findings in found.items() if findings is not None}
        largest = nlargest(LIMIT, (one for findings in known.values() for one in findings), key=lambda one: one.size)
        silent = {sample.name for sample in snapshot.deployments if sample.error} if snapshot else set()
        unseen = {short(gate.server) for gate in servers or () if not _is_seen(gate, now)}
        uncompared = {_n8n_key(truth) for truth in tables or () if truth.fault}
        return Look(now, tuple(largest), frozenset(known), frozenset(silent), frozenset(unseen), frozenset(uncompared))

    def _ask(self, source: Source, now: int) -> list[Finding] | None:
        try:
            found = source(now)
            return None if found is None else list(found)
        except (StoreError, Error):
            return None

    def _inbox(self, now: int) -> Inbox | None:
        try:
            found = inboxes.fetch(self._registry.state())
        except StoreError:
            return None
        return found if found and _is_fresh(found.checked_at, now, self._config.orphans_every) else None

    def _truths(self, now: int) -> tuple[Truth, ...] | None:
        """Returns a comparison for each n8n with a database; None while one of them is missing or old."""
        named = {one.name for one in self._config.n8n if one.database}
        try:
            found = truths.fetch(self._registry.state()) if named else ()
        except StoreError:
            return None
        fresh = tuple(one for one in found if one.name in named and not truths.is_old(one, now))
        return fresh if len(fresh) == len(named) else None

    def _gates(self) -> tuple[Gate, ...] | None:
        try:
            return tuple(gates.fetch(self._registry.state()).values())
        except StoreError:
            return None

    def _snapshot(self, now: int) -> Snapshot | None:
        found = self._newest()
        return found if found and _is_fresh(found.taken_at, now, self._config.collect_every) else None


def _is_fresh(at: int, now: int, every: float) -> bool:
    return now - at <= max(FRESH, 3 * round(every * SECOND))


# -- jobs


def _abandoned(inbox: Inbox, snapshot: Snapshot | None, now: int) -> Iterator[Finding]:
    """Yields a finding per queue with abandoned jobs, also if a scanner will put them right: no worker does."""
    samples = {sample.ref: sample for sample in snapshot.queues} if snapshot else {}
    for tally in inbox.queues:
        count = tally.kinds.get(Verdict.ABANDONED, 0)
        if count:
            words = _abandoned_words(tally, count, samples.get(tally.queue), now)
            link = f"/stuck?{urlencode({'queue': _key(tally.queue), 'verdict': Verdict.ABANDONED.value})}"
            yield Finding(AlertKind.ABANDONED, _key(tally.queue), words, link, count)


def _abandoned_words(tally: Tally, count: int, sample: QueueSample | None, now: int) -> str:
    why = "no worker runs the stalled check"
    if sample and sample.flavour.library is Library.TABLE:
        why = "no scanner checks this table"
    elif sample and sample.workers == 0:
        why = "no worker is connected"
    be = "is" if count == 1 else "are"
    return f"{_jobs(count)} {be} abandoned in {_name(tally.queue)}: {why}, {tally.outlook.words(count, now)}."


def _quarantine(inbox: Inbox) -> Iterator[Finding]:
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
        yield Finding(AlertKind.QUARANTINE, _key(queue), words, link, count, min(row.since for row in mine))


# -- n8n


def _n8n(tables: Iterable[Truth]) -> Iterator[Finding]:
    """Yields a finding per kind of mismatch, and one for an n8n whose executions cannot be read."""
    for truth in tables:
        if truth.fault:
            words = f"The jobs and executions of {shown(truth.name)} cannot be compared: {truth.fault}"
            yield Finding(AlertKind.N8N, _n8n_key(truth), words, "/stuck/n8n", since=truth.checked_at)
            continue
        for kind, count in truth.counts.items():
            if count and kind.needs_a_person:
                yield _mismatch(truth, kind, count)


def _mismatch(truth: Truth, kind: Mismatch, count: int) -> Finding:
    since = [pair.finding.since for pair in truth.pairs if pair.finding and pair.finding.kind is kind]
    words = f"{shown(truth.name)}, {kind.value}: {count:,} execution{'' if count == 1 else 's'}. {kind.sentence}"
    link = f"/stuck/n8n?{urlencode({'mismatch': kind.value, 'n8n': truth.name})}"
    known = min((one for one in since if one is not None), default=None)
    return Finding(AlertKind.N8N, f"{_n8n_key(truth)}/{slug(kind.value)}", words, link, count, known)


def _n8n_key(truth: Truth) -> str:
    return f"{truth.queue.deployment}/{truth.name}"


# -- brakes


def _breakers(found: Iterable[ErrorBreaker]) -> Iterator[Finding]:
    queues: dict[QueueRef, list[ErrorBreaker]] = {}
    for breaker in found:
        if breaker.is_open:
            queues.setdefault(breaker.queue, []).append(breaker)
    for queue, mine in queues.items():
        since = min((breaker.opened_at for breaker in mine if breaker.opened_at is not None), default=None)
        words = (
            f"{_open_words(mine)} in {_name(queue)}: {_breaker_words(mine[0])} Only an occasional probe job is retried."
        )
        yield Finding(AlertKind.BREAKER, _key(queue), words, "/scanners#safety-limits", len(mine), since)


def _open_words(breakers: Sequence[ErrorBreaker]) -> str:
    return "A breaker is open" if len(breakers) == 1 else f"{len(breakers):,} breakers are open"


def _breaker_words(breaker: ErrorBreaker) -> str:
    """Returns what failed, without ages: they would change the text, and so be news, at each check."""
    last = f", the last with “{shown(breaker.error)}”" if breaker.error else ""
    return f"{breaker.failed:,} of {breaker.of:,} auto-retries failed again{last}."


def _brake(store: StoreBrake) -> Finding:
    since = min(hold.since for hold in store.holds)
    evidence = " ".join(hold.evidence for hold in store.holds)
    words = f"Auto-recovery is paused on {shown(store.deployment)}: {evidence}"
    return Finding(AlertKind.PAUSE, store.deployment, words, "/scanners#safety-limits", since=since)


# -- scanners


def _refused(last: Mapping[Scan, Pulse]) -> Iterator[Finding]:
    for scan, pulse in last.items():
        if pulse.is_refused:
            words = f"{scan.value.capitalize()} is denied by its store: {pulse.trouble}"
            yield Finding(AlertKind.SCANNER, scan.value, words, f"/scanners/{scan.value}", since=pulse.ended_at)


def _consoles(sign: leading.Sign | None) -> Iterator[Finding]:
    for one in sign.consoles if sign else ():
        key, words = f"{one.deployment}/{one.installation}", f"{one.words} {one.meaning}"
        yield Finding(AlertKind.CONSOLE, key, words, "/scanners", since=one.since)


# -- the audit


def _unsent(heads: AuditHeadSender) -> Iterable[Finding] | None:
    troubles = heads.troubles
    if troubles is None:
        return None
    return [
        Finding(AlertKind.AUDIT, place.value, f"The audit heads cannot be sent: {why}", "/audit", since=since)
        for place, (why, since) in troubles.items()
    ]


# -- gates


def _is_seen(gate: Gate, now: int) -> bool:
    """Returns True if the gate's server has reported lately; else its state is unknown."""
    return gate.state is not GateState.UNKNOWN and gate.sample is not None and gate.sample.is_fresh(now)


def _closed(found: Iterable[Gate], now: int) -> Iterator[Finding]:
    for gate in found:
        if gate.state is GateState.CLOSED and _is_seen(gate, now):
            known = gate.sample.cpu if gate.sample else None
            cpu = f": its CPU is at {known:.0f} %" if known is not None else ""
            words = f"The gate of {shown(gate.server)} is closed{cpu}. No heavy job starts on it."
            yield Finding(AlertKind.GATE, gate.server, words, f"/servers/{slug(gate.server)}", since=gate.since)


# -- what cannot be read


def _unreadable(snapshot: Snapshot) -> Iterator[Finding]:
    """Yields one finding per deployment: a user that may not read one queue often may not read the others."""
    for sample in snapshot.deployments:
        mine = [queue for queue in snapshot.queues if queue.ref.deployment == sample.name and queue.error]
        link = f"/queues?{urlencode({'deployment': sample.name})}"
        if sample.error:
            words = f"{shown(sample.name)} does not answer ({sample.target}): {sample.error}."
            yield Finding(AlertKind.UNREADABLE, sample.name, words, link, len(mine) or 1)
        elif mine:
            named = ", ".join(queue.ref.label for queue in mine[:_NAMED])
            more = f" and {len(mine) - _NAMED:,} more" if len(mine) > _NAMED else ""
            is_one = len(mine) == 1
            words = (
                f"{len(mine):,} queue{'' if is_one else 's'} of {shown(sample.name)} cannot be read: {named}{more}. "
                f"{mine[0].error}"
            )
            yield Finding(AlertKind.UNREADABLE, sample.name, words, link, len(mine))


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _key(queue: QueueRef) -> str:
    return f"{queue.deployment}/{slug(queue.base)}"


def _name(queue: QueueRef) -> str:
    return f"{shown(queue.deployment)}/{queue.label}"
