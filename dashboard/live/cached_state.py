"""Holds the state that this process has read from the state store: the newest snapshot, and how current it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from recovery import shared_clock
from recovery.config.gate import GateConfig
from recovery.domain import identifiers
from recovery.domain.gate.state_machine import Gate, GateSample, fold, resume_gate
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.servers import node_exporter, samples
from recovery.domain.servers.node_exporter import NodeProblem
from recovery.domain.servers.samples import Server
from recovery.errors import StoreError
from recovery.gate import queries as gate_queries
from recovery.reads.queues import snapshot_store
from recovery.reads.safety_limits import paused_deployments
from recovery.reads.scanners import last_runs, scheduler_status
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.stores.redis import redis_errors
from recovery.stores.state import server_hashes, size_limits, state_keys

# -- gate states
# Computes the gate states in this process from the same samples as the leader, so that no leader is needed.


@dataclass(frozen=True, slots=True)
class StoredServerSample:
    """Server as the state store returned it; the TTLs are in ms, negative if the key does not exist."""

    server: Server
    ttl: int  # of its sample
    settling: int  # of the key that records an admission

    def sample(self, now: int) -> GateSample:
        return GateSample.of(self.server, gate_queries.seen_at(self.server.sampled_at, self.server.poll, self.ttl, now))


def fold_gates(
    before: Mapping[str, Gate],
    stored: Mapping[str, Gate],
    seen: Iterable[StoredServerSample],
    gating: GateConfig,
    now: int,
) -> dict[str, Gate]:
    """Returns the gates after this read, without those of servers that are gone."""
    return {one.server.id: _gate(before.get(one.server.id), stored, one, gating, now) for one in seen}


def _gate(
    before: Gate | None, stored: Mapping[str, Gate], seen: StoredServerSample, gating: GateConfig, now: int
) -> Gate:
    id, sample, terms = seen.server.id, seen.sample(now), gating.terms_of(seen.server.id)
    gate = fold(resume_gate(before, stored.get(id), sample), id, sample, terms, now)
    admitted = now - max(0, terms.settling(sample.poll) - seen.settling) if seen.settling >= 0 else None
    known = [at for at in (admitted, before.admitted_at if before else None) if at is not None and at <= now]
    return gate.admitting(max(known, default=None))


# -- cached state


MISSED_COLLECTS = 3  # one late snapshot is no news, three are
LEAST_STALE_MS = 6000  # a shorter limit would flicker when a collect takes a second
PROBE_MS = 10_000
SERVERS_LIMIT = 500  # on one page; further ones reported longer ago
UNLED = "No scheduler leads, because it cannot reach the database. Numbers are live; nothing is recorded or recovered."


@dataclass(frozen=True, slots=True)
class SnapshotHealth:
    """Health of the newest snapshot; None means not known."""

    snapshot_age_ms: int | None = None
    error: str = ""  # sentence why no newer one can be read; empty: the state store answers
    failing_since_ms: int | None = None
    scheduler_alive: bool | None = None
    stale: bool = True
    is_unled: bool = False  # a scheduler runs, but none leads
    refuses: str = ""  # sentence why the state store takes no writes; empty: it does

    @property
    def reason(self) -> str:
        """Sentence that says why the numbers are old; empty if they are not."""
        if not self.stale:
            return ""
        if self.error or self.refuses:
            return self.error or self.refuses
        if self.scheduler_alive is False:
            return "The scheduler is not running."
        return (
            "No snapshot has been taken yet."
            if self.snapshot_age_ms is None
            else "The scheduler has stopped taking snapshots."
        )

    @property
    def lack(self) -> str:
        """Sentence that says what does not work although the numbers are current; empty if all works."""
        return "" if self.stale else self.refuses or (UNLED if self.is_unled else "")


@dataclass(frozen=True, slots=True)
class PackedMetrics:
    """Values as the state store returned them, undecoded: only /metrics needs them."""

    inbox: bytes | None = None
    tallies: bytes | None = None
    totals: Mapping[bytes, bytes] = field(default_factory=dict)
    idempotency: Mapping[bytes, bytes] = field(default_factory=dict)  # what the ledger counted
    idempotency_keys: int = 0


class CachedState:
    """Newest snapshot, servers, gates and last failure. One task or thread writes it, any may read it."""

    def __init__(self, collect_every: float, gating: GateConfig | None = None) -> None:
        self._gating = gating or GateConfig()
        self.snapshot: Snapshot | None = None
        self.leader: SchedulerStatus | None = None  # scheduler that takes the snapshots; None: none, or not known
        self.held: tuple[str, ...] = ()  # deployments with paused auto-recovery
        self.pulses: Mapping[ScannerKind, LastScannerRun] = {}  # the last runs of the scanners
        self.servers: tuple[Server, ...] = ()  # newest samples of their monitors, sorted by id
        self.unread: tuple[NodeProblem, ...] = ()  # servers of Prometheus or node_exporter that cannot be read
        self.known: frozenset[str] = frozenset()  # servers that reported within the last days
        self.gates: Mapping[str, Gate] = {}
        self.mirrors: int | None = None  # web processes that subscribe as this one does
        self.looked_at: int | None = None  # when the state store last answered
        self.packed = PackedMetrics()
        self._asked: tuple[str, ...] = ()  # servers named in the current pipeline
        self._raw: bytes | None = None
        self._came_at = 0.0  # when this snapshot was first seen here
        self._stale_after_ms = max(LEAST_STALE_MS, int(collect_every * 1000 * MISSED_COLLECTS))
        self._error = ""
        self._failing_since_ms: int | None = None
        self._scheduler_alive: bool | None = None
        self._is_unled = False
        self._refuses = ""

    def question(self, pipeline: Any) -> None:
        """Adds all reads of one pass to a pipeline: one round trip; `answer` takes the replies, errors among them.

        It also writes one small key, to notice a full store: that answers every read, but gets no new snapshots.

        A new server is known after this pass, and read with the next one.
        """
        pipeline.set(state_keys.PROBE, b"1", px=PROBE_MS)
        scheduler_status.ask_time(pipeline)
        size_limits.ask_string(pipeline, state_keys.SNAPSHOT)
        size_limits.ask_string(pipeline, state_keys.SCHEDULER, size_limits.SMALL_LIMIT)
        size_limits.ask_string(pipeline, state_keys.SCANNER_HOLDS, size_limits.SMALL_LIMIT)
        size_limits.ask_hash(pipeline, state_keys.SCANNERS)
        pipeline.zrange(state_keys.SERVERS, 0, SERVERS_LIMIT - 1, desc=True)
        size_limits.ask_string(pipeline, state_keys.INBOX)
        size_limits.ask_string(pipeline, state_keys.TALLIES, size_limits.TALLIES_LIMIT)
        pipeline.hgetall(state_keys.TOTALS)
        for name in (state_keys.GATES, state_keys.NODES, state_keys.IDEMPOTENCY_COUNTS):
            size_limits.ask_hash(pipeline, name)
        pipeline.hlen(state_keys.IDEMPOTENCY_RECORDS)
        pipeline.execute_command("PUBSUB", "NUMSUB", state_keys.SNAPSHOT_CHANNEL)  # each web process subscribes to it
        server_hashes.prepare(pipeline)
        for server in self._asked:
            server_hashes.ask(pipeline, server)
            pipeline.pttl(state_keys.server_metrics(server))
            pipeline.pttl(state_keys.gate_settling(server))

    def answer(self, answers: Sequence[Any], now_ms: int) -> None:
        probe, *answers = answers
        if failed := next((one for one in answers if isinstance(one, Exception)), None):
            raise failed
        self._refuses = _refusal(probe)
        clock, ahead, snapshot, scheduler, paused, scanners, names, *rest = answers
        shared_clock.ours.follow(scheduler_status.time_of(clock, ahead))
        inbox, tallies, totals, stored, unread, idempotency, idempotency_keys, mirrors, _, *told = rest
        scheduler, paused = (size_limits.string_of(one, size_limits.SMALL_LIMIT) for one in (scheduler, paused))
        self.take(size_limits.string_of(snapshot), scheduler, paused, size_limits.hash_of(scanners))
        tallies = size_limits.string_of(tallies, size_limits.TALLIES_LIMIT)
        self.packed = PackedMetrics(
            size_limits.string_of(inbox), tallies, totals, size_limits.hash_of(idempotency), int(idempotency_keys)
        )
        self.unread = tuple(
            one for packed in size_limits.hash_of(unread).values() for one in node_exporter.decode(packed)
        )
        self._follow(told, gate_queries.decode_gates(size_limits.hash_of(stored)), now_ms)
        self._asked = tuple(identifiers.decode_name(name) for name in names)
        self.known = frozenset(self._asked)
        self.mirrors, self.looked_at = int(mirrors[1]), now_ms

    def _follow(self, told: Sequence[Any], stored: Mapping[str, Gate], now_ms: int) -> None:
        """Takes the servers of this pass, three replies each, and computes their gates."""
        rows = zip(self._asked, told[::3], told[1::3], told[2::3], strict=True)
        decoded = ((samples.decode_server(id, server_hashes.fields_of(row)), ttls) for id, row, *ttls in rows)
        found = [StoredServerSample(server, *ttls) for server, ttls in decoded if server]
        self.servers = tuple(sorted((one.server for one in found), key=lambda server: server.id))
        self.gates = fold_gates(self.gates, stored, found, self._gating, now_ms)

    def take(
        self,
        raw: bytes | None,
        scheduler: bytes | None,
        paused: bytes | None = None,
        scanners: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """Takes a complete answer: a snapshot (None keeps the last one), the scheduler that takes them, the paused
        deployments, and the last run of each scanner.
        """
        if raw is not None and raw != self._raw:
            self.snapshot = snapshot_store.decode(raw)
            self._raw, self._came_at = raw, shared_clock.steady()
        self.leader = sign = SchedulerStatus.decode(scheduler)
        self.held = paused_deployments.decode(paused)
        self.pulses = last_runs.decode_runs(scanners or {})
        # The scheduler cannot write its heartbeat while the store takes no writes.
        self._scheduler_alive = True if scheduler is not None else None if self._refuses else False
        self._is_unled = sign is not None and not sign.leads
        self._error, self._failing_since_ms = "", None

    def fail(self, failure: Exception, now_ms: int) -> None:
        """Records that no newer snapshot can be read; the last one stays."""
        self._error, self._refuses = _sentence(failure), ""
        self._failing_since_ms = self._failing_since_ms or now_ms
        self._scheduler_alive, self._is_unled, self.leader = None, False, None

    def health(self, now_ms: int) -> SnapshotHealth:
        age = None
        if self.snapshot is not None:  # at least as old as it has been here, whatever any clock says
            here = round((shared_clock.steady() - self._came_at) * 1000)
            age = max(here, now_ms - self.snapshot.taken_at)
        return SnapshotHealth(
            snapshot_age_ms=age,
            error=self._error,
            failing_since_ms=self._failing_since_ms,
            scheduler_alive=self._scheduler_alive,
            stale=age is None or age > self._stale_after_ms,
            is_unled=self._is_unled,
            refuses=self._refuses,
        )


def _refusal(probe: object) -> str:
    if not isinstance(probe, redis.RedisError):
        return ""
    reason = redis_errors.from_redis(probe, "").reason
    return f"The state store refuses writes: {reason}. Pages show no newer data. Orphaned jobs are still recovered."


def _sentence(failure: Exception) -> str:
    if isinstance(failure, StoreError):
        return f"The state store does not answer: {failure}"
    if isinstance(failure, snapshot_store.SnapshotOfOtherVersion):
        return "The scheduler and this web process have different versions. Update and restart both."
    return f"The newest snapshot cannot be read: {failure}"
