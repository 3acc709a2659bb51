"""Presents the gate of a server: its state, when it closed and opened, and which callers it admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import redis
from django.db import Error

from dashboard.charts.machine import Mark
from dashboard.live import mirror
from dashboard.rows import Cells, brief
from recovery import config
from recovery.connections.registry import registry
from recovery.domain.ages import DAY
from recovery.domain.gate import Gate, GateState, Terms
from recovery.domain.refs import shown
from recovery.domain.servers import Server
from recovery.errors import StoreError
from recovery.reads import gates
from recovery.reads.gates import Decision, Flip
from recovery.reads.shared import Shared

FLIPS_TOLD = 10  # newest; the chart has the others
CALLERS_TOLD = 3  # of one mark
_lately = Shared(kept=64)


@dataclass(frozen=True, slots=True)
class Decided:
    """Requests that the gate admitted and refused, as marks of a chart."""

    let_in: Sequence[Mark] = ()
    refused: Sequence[Mark] = ()


def terms(id: str) -> Terms:
    return config.current().gate.terms_of(id)


def label(id: str) -> str:
    return shown(config.current().gate.label_of(id))


def badge(server: Server, now: int) -> Cells:
    """Returns the gate's state in one word, and since when, where that is known."""
    gate = mirror.gates().get(server.id)
    state = gate.state_at(now, terms(server.id)) if gate else GateState.UNKNOWN
    return {"state": state.value, "words": f"gate {state.value}", "since": _since(gate, state), "why": _why(gate)}


def seen_at(server: Server) -> int:
    """Returns when its newest sample was published, by our clock: the server's own may be wrong."""
    gate = mirror.gates().get(server.id)
    sample = gate.sample if gate else None
    return sample.seen_at if sample and sample.sampled_at == server.sampled_at else server.sampled_at


def is_closed(id: str) -> bool:
    gate = mirror.gates().get(id)
    return gate is not None and gate.state is GateState.CLOSED


def decided(store: redis.Redis, id: str, since: int, step: int) -> Decided:
    """Returns the gate's decisions; refusals of one point of the chart are one mark. Raises StoreError."""
    found = gates.decisions(store, id, since)
    let_in = tuple(Mark(one.at, _caller(one), one.cpu) for one in reversed(found) if one.ready)
    groups: dict[int, list[Decision]] = {}
    for one in reversed(found):
        if not one.ready:
            groups.setdefault(one.at // step, []).append(one)
    return Decided(let_in, tuple(map(_refusals, groups.values())))


def shut(id: str, since: int, now: int) -> tuple[tuple[int, int], ...]:
    """Returns the periods in which the gate was closed. Raises Error of the database."""
    return closed(gates.flips(id, since), since, now)


def closed(flips: Sequence[Flip], since: int, now: int) -> tuple[tuple[int, int], ...]:
    """Returns the closed periods. `flips` oldest first; before the first one nothing is known."""
    spans = ((max(since, flip.at), end) for flip, end in _ended(flips, now) if flip.state is GateState.CLOSED)
    return tuple((start, end) for start, end in spans if end > start)


def _ended(flips: Sequence[Flip], now: int) -> Iterator[tuple[Flip, int]]:
    """Pairs each state with the time at which the next one ended it."""
    return zip(flips, (*(flip.at for flip in flips[1:]), now), strict=False)


def history(id: str, now: int) -> Cells:
    """Returns the last day's changes of state, and the answers to each caller. What cannot be read is None."""
    return {"flips": _flips(id, now), "callers": _callers(id, now), "has_any": id in mirror.gates()}


def _flips(id: str, now: int) -> list[Cells] | None:
    try:
        found = _lately.get(("flips", id), lambda: gates.flips(id, now - DAY))
    except Error:
        return None
    told = [
        {"at": flip.at, "state": flip.state.value, "why": shown(flip.why), "cpu": flip.cpu, "lasted": end - flip.at}
        for flip, end in _ended(found, now)
    ]
    return told[::-1][:FLIPS_TOLD]


def _callers(id: str, now: int) -> list[Cells] | None:
    """Returns the answers by caller, the latest caller first."""
    try:
        found = _lately.get(("decisions", id), lambda: gates.decisions(registry().state(), id, now - DAY))
    except StoreError:
        return None
    groups: dict[str, list[Decision]] = {}
    for one in found:
        groups.setdefault(_caller(one), []).append(one)
    return [
        {
            "caller": caller,
            "let_in": sum(one.times for one in mine if one.ready),
            "refused": sum(one.times for one in mine if not one.ready),
            "last_at": mine[0].at,
            "last": "admitted" if mine[0].ready else _reason(mine[0]),
        }
        for caller, mine in groups.items()
    ]


def _since(gate: Gate | None, state: GateState) -> int | None:
    if gate is None:
        return None
    if state is GateState.SETTLING:
        return gate.admitted_at
    return gate.since if gate.state is state else None


def _why(gate: Gate | None) -> str:
    return shown(gate.why) if gate else "No gate exists for it yet: no scheduler has seen this server."


def _refusals(group: Iterable[Decision]) -> Mark:
    group = list(group)
    callers = Counter[str]()
    for one in group:
        callers[_caller(one)] += one.times
    told = [f"{name} ({count:,} ×)" if count > 1 else name for name, count in callers.most_common(CALLERS_TOLD)]
    return Mark(group[0].at, ", ".join(told), max((one.cpu for one in group if one.cpu is not None), default=None))


def _caller(one: Decision) -> str:
    return brief(shown(one.caller)) or shown(one.token) or "unnamed caller"


def _reason(one: Decision) -> str:
    return shown(one.reason).replace("_", " ")
