"""Records each gate that closes or opens as a row for the charts; the audit, which keeps actions, has none of it.

The newest row of a server is its recorded state. So the next leader records what one that died has missed, and nothing
is recorded twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import Max, Q, QuerySet

from recovery.domain.gate.state_machine import Gate, GateState
from recovery.domain.scheduler.leader_token import May
from recovery.domain.time_units import DAY
from recovery.gate.queries import column
from recovery.models import GateFlip

FLIPS_FOR = 90 * DAY
GONE = "The server no longer reports."


class _Turn(NamedTuple):
    """New state of a gate, with its time and reason."""

    state: GateState
    at: int
    cpu: float | None
    why: str


class GateTransitions:
    """Records transitions of all gates during one term of the leader."""

    def __init__(self) -> None:
        self._recorded: dict[str, GateState] | None = None  # by the server's column

    def record(self, gates: Iterable[Gate], now: int, may: May) -> None:
        """Records gates whose state differs from the recorded one. `gates` are all: a server without one is gone.

        Raises Error of the database; what was not written is written by the next call.
        """
        if self._recorded is None:
            self._recorded = _newest()
        turns = {column(gate.server): _turn(gate, now) for gate in gates}
        for server in self._recorded.keys() - turns.keys():
            turns[server] = _Turn(GateState.UNKNOWN, now, None, GONE)
        for server, turn in turns.items():
            before = self._recorded.get(server, GateState.UNKNOWN)  # a first UNKNOWN is worth no row
            if turn.state is not before and may():
                _write(server, turn)
                self._recorded[server] = turn.state


def expired_transitions(now: int) -> QuerySet[GateFlip]:
    """Returns the expired rows; the current state of a gate is kept however old it is."""
    standing = GateFlip.objects.filter(pk__in=_last()).exclude(state=GateState.UNKNOWN)
    return GateFlip.objects.filter(Q(at__lt=now - FLIPS_FOR) & ~Q(pk__in=standing.values("pk")))


def _turn(gate: Gate, now: int) -> _Turn:
    return _Turn(gate.state, min(gate.since, now), gate.sample.cpu if gate.sample else None, gate.why)


def _newest() -> dict[str, GateState]:
    rows = GateFlip.objects.filter(pk__in=_last()).values_list("server", "state")
    return {server: GateState(state) for server, state in rows}


def _last() -> QuerySet[GateFlip, int]:
    return GateFlip.objects.values("server").annotate(last=Max("pk")).values_list("last", flat=True)


def _write(server: str, turn: _Turn) -> None:
    GateFlip.objects.create(server=server, at=turn.at, state=turn.state.value, cpu=turn.cpu, why=turn.why)
