"""Reads the gates of the servers: their state as the leader computes it, their transitions, and their decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import redis

from recovery.domain.gate.state_machine import Gate, GateSample, GateState, finite_percent
from recovery.domain.identifiers import decode_name, slug
from recovery.domain.servers.samples import FORMAT, SampleOrigin
from recovery.domain.time_units import HOUR
from recovery.models import GateFlip
from recovery.servers import queries as servers_queries
from recovery.servers.sample_store import POLLS_KEPT
from recovery.stores.redis import redis_errors
from recovery.stores.state import server_hashes, size_limits, state_keys

FLIPS = 500  # in one answer, the newest: a chart of a week has 720 points
DECISIONS = 500
LONGEST_POLL = HOUR  # ms between two samples: rarer ones are no base for a gate
_LARGEST = 1 << 63
KEPT = 5_000  # decisions of one server: some hundred KB, and a day of a caller that asks every ten seconds
KEPT_S = 8 * 86_400  # a week, and a day for the oldest point of the chart
_COLUMN = 384  # characters of a name, as the table holds it
_FIELDS = ("format", "id", "sampled_at", "poll", "cpu_raw", "cpu_ema", "origin")
_PAGE = 500  # entries that one command reads


@dataclass(frozen=True, slots=True)
class GateTransition:
    """Transition of one gate: it closed, opened, or became unknown."""

    server: str
    at: int
    state: GateState
    cpu: float | None
    why: str


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Answer to one caller. `times`: how often it was given within one second, for refusals."""

    at: int
    server: str
    caller: str  # as it named itself, else its token
    token: str  # name of the token, "" on loopback
    ready: bool
    reason: str  # one word, as the gate gives it
    cpu: float | None
    times: int = 1


def fetch(store: redis.Redis) -> dict[str, Gate]:
    """Returns the gate of every reporting server, as the leader computed it last. Raises StoreError."""
    with redis_errors.guarded(store):
        return decode_gates(size_limits.hash_of(size_limits.ask_hash(store, state_keys.GATES)))


def decode_gates(fields: Mapping[bytes, bytes]) -> dict[str, Gate]:
    """Decodes the hash of all gates, as the state store returned it."""
    found = ((decode_name(name), Gate.decode(packed)) for name, packed in fields.items())
    return {name: gate for name, gate in found if gate}


def samples(store: redis.Redis, now: int) -> dict[str, GateSample]:
    """Returns the sample that a gate is computed from, for every live server. Raises StoreError."""
    names = list(servers_queries.last_seen(store))
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        server_hashes.prepare(pipeline)
        for name in names:
            server_hashes.ask(pipeline, name, _FIELDS)
            pipeline.pttl(state_keys.server_metrics(name))
        _, *answers = pipeline.execute()
    found = zip(names, answers[::2], answers[1::2], strict=True)
    rows = ((name, server_hashes.row_of(reply, len(_FIELDS)), ttl) for name, reply, ttl in found)
    return {name: sample for name, row, ttl in rows if (sample := _sample(name, row, ttl, now))}


def seen_at(sampled_at: int, poll: int, ttl: int, now: int) -> int:
    """Returns when a sample was published, by its remaining TTL, so that clocks of other machines do not matter."""
    return now - max(0, poll * POLLS_KEPT - ttl) if ttl >= 0 else min(now, sampled_at)


def _sample(server: str, row: list[bytes | None], ttl: int, now: int) -> GateSample | None:
    """Decodes a sample; None for a server that is gone, for another version's, and for one under another's name."""
    written, id, sampled, every, raw, ema, origin = row
    if written != FORMAT.encode() or decode_name(id or b"") != slug(server):
        return None
    try:
        at, poll, told = int(sampled or b""), int(every or b""), SampleOrigin(decode_name(origin or b"")).value
        if not (0 <= at < _LARGEST and 0 < poll <= LONGEST_POLL):
            return None  # it would enter the hash of all gates, which is only read while none of its values is long
        return GateSample(at, seen_at(at, poll, ttl, now), poll, finite_percent(raw), finite_percent(ema), told)
    except ValueError:
        return None


def flips(server: str, since: int) -> tuple[GateTransition, ...]:
    """Returns transitions, oldest first, after the one in effect at `since`. Raises Error of the database."""
    rows = GateFlip.objects.filter(server=column(server))
    later = list(rows.filter(at__gt=since).order_by("-at", "-pk")[:FLIPS])
    first = rows.filter(at__lte=since).order_by("-at", "-pk")[:1] if len(later) < FLIPS else ()
    return tuple(
        GateTransition(server, row.at, GateState(row.state), row.cpu, row.why) for row in (*first, *reversed(later))
    )


def column(server: str) -> str:
    """Returns a server's name as the table holds it."""
    return slug(server)[:_COLUMN]


def decisions(store: redis.Redis, server: str, since: int, limit: int = DECISIONS) -> tuple[GateDecision, ...]:
    """Returns the gate's decisions, newest first. Raises StoreError."""
    found: list[GateDecision] = []
    for fields in _entries(store, state_keys.gate_decisions(server), since):
        if decision := _decision(server, fields):
            found.append(decision)
        if len(found) == limit:
            break
    return tuple(found)


def _entries(store: redis.Redis, stream: bytes, since: int) -> Iterator[Mapping[bytes, bytes]]:
    """Yields stream entries, newest first, a page at a time; each was added within a second of its decision."""
    last: bytes = b"+"
    while True:
        with redis_errors.guarded(store):
            page = cast("list[Any]", store.xrevrange(stream, last, max(0, since), _PAGE))
        yield from (fields for _, fields in page)
        if len(page) < _PAGE:
            return
        last = b"(" + page[-1][0]


def _decision(server: str, fields: Mapping[bytes, bytes]) -> GateDecision | None:
    """Decodes a decision; None for what another version wrote."""
    try:
        cpu = fields[b"cpu"]
        return GateDecision(
            at=int(fields[b"at"]),
            server=server,
            caller=decode_name(fields[b"caller"]),
            token=decode_name(fields[b"token"]),
            ready=fields[b"ready"] == b"1",
            reason=decode_name(fields[b"reason"]),
            cpu=float(cpu) if cpu else None,
            times=int(fields[b"times"]),
        )
    except (KeyError, ValueError):
        return None
