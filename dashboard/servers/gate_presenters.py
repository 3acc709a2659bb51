"""Presents the gate of a server: its state, when it closed and opened, and which callers it admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import redis
from django.db import Error

from dashboard.base.job_rows import Cells, brief
from dashboard.live import state_cache
from dashboard.servers.chart_figure import ServerChartMark
from recovery import config
from recovery.domain.gate.state_machine import Gate, GateState, GateThresholds
from recovery.domain.identifiers import printable
from recovery.domain.servers.samples import Server
from recovery.domain.time_units import DAY
from recovery.errors import StoreError
from recovery.gate import queries as gate_queries
from recovery.gate.queries import GateDecision, GateTransition
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import SharedReads

FLIPS_TOLD = 10  # newest; the chart has the others
CALLERS_TOLD = 3  # of one mark
_lately = SharedReads(kept=64)


@dataclass(frozen=True, slots=True)
class GateDecisionMarks:
    """Requests that the gate admitted and refused, as marks of a chart."""

    let_in: Sequence[ServerChartMark] = ()
    refused: Sequence[ServerChartMark] = ()


def terms(id: str) -> GateThresholds:
    return config.current().gate.terms_of(id)


def label(id: str) -> str:
    return printable(config.current().gate.label_of(id))


def badge(server: Server, now: int) -> Cells:
    """Returns the gate's state in one word, and since when, where that is known."""
    gate = state_cache.gates().get(server.id)
    state = gate.state_at(now, terms(server.id)) if gate else GateState.UNKNOWN
    return {"state": state.value, "words": f"gate {state.value}", "since": _since(gate, state), "why": _why(gate)}


def seen_at(server: Server) -> int:
    """Returns when its newest sample was published, by our clock: the server's own may be wrong."""
    gate = state_cache.gates().get(server.id)
    sample = gate.sample if gate else None
    return sample.seen_at if sample and sample.sampled_at == server.sampled_at else server.sampled_at


def is_closed(id: str) -> bool:
    gate = state_cache.gates().get(id)
    return gate is not None and gate.state is GateState.CLOSED


def decision_marks(store: redis.Redis, id: str, since: int, step: int) -> GateDecisionMarks:
    """Returns the gate's decisions; refusals of one point of the chart are one mark. Raises StoreError."""
    found = gate_queries.decisions(store, id, since)
    let_in = tuple(ServerChartMark(one.at, _caller(one), one.cpu) for one in reversed(found) if one.ready)
    groups: dict[int, list[GateDecision]] = {}
    for one in reversed(found):
        if not one.ready:
            groups.setdefault(one.at // step, []).append(one)
    return GateDecisionMarks(let_in, tuple(map(_refusals, groups.values())))


def read_closed_periods(id: str, since: int, now: int) -> tuple[tuple[int, int], ...]:
    """Returns the periods in which the gate was closed. Raises Error of the database."""
    return closed_periods(gate_queries.flips(id, since), since, now)


def closed_periods(flips: Sequence[GateTransition], since: int, now: int) -> tuple[tuple[int, int], ...]:
    """Returns the closed periods. `flips` oldest first; before the first one nothing is known."""
    spans = ((max(since, flip.at), end) for flip, end in _ended(flips, now) if flip.state is GateState.CLOSED)
    return tuple((start, end) for start, end in spans if end > start)


def _ended(flips: Sequence[GateTransition], now: int) -> Iterator[tuple[GateTransition, int]]:
    """Pairs each state with the time at which the next one ended it."""
    return zip(flips, (*(flip.at for flip in flips[1:]), now), strict=False)


def history(id: str, now: int) -> Cells:
    """Returns the last day's changes of state, and the answers to each caller. What cannot be read is None."""
    return {"flips": _flips(id, now), "callers": _callers(id, now), "has_any": id in state_cache.gates()}


def _flips(id: str, now: int) -> list[Cells] | None:
    try:
        found = _lately.get(("flips", id), lambda: gate_queries.flips(id, now - DAY))
    except Error:
        return None
    told = [
        {"at": flip.at, "state": flip.state.value, "why": printable(flip.why), "cpu": flip.cpu, "lasted": end - flip.at}
        for flip, end in _ended(found, now)
    ]
    return told[::-1][:FLIPS_TOLD]


def _callers(id: str, now: int) -> list[Cells] | None:
    """Returns the answers by caller, the latest caller first."""
    try:
        found = _lately.get(("decisions", id), lambda: gate_queries.decisions(registry().state(), id, now - DAY))
    except StoreError:
        return None
    groups: dict[str, list[GateDecision]] = {}
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
    return printable(gate.why) if gate else "No gate exists for it yet: no scheduler has seen this server."


def _refusals(group: Iterable[GateDecision]) -> ServerChartMark:
    group = list(group)
    callers = Counter[str]()
    for one in group:
        callers[_caller(one)] += one.times
    told = [f"{name} ({count:,} ×)" if count > 1 else name for name, count in callers.most_common(CALLERS_TOLD)]
    return ServerChartMark(
        group[0].at, ", ".join(told), max((one.cpu for one in group if one.cpu is not None), default=None)
    )


def _caller(one: GateDecision) -> str:
    return brief(printable(one.caller)) or printable(one.token) or "unnamed caller"


def _reason(one: GateDecision) -> str:
    return printable(one.reason).replace("_", " ")
