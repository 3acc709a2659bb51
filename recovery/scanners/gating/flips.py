"""Every gate that closed or opened, once: a row for the charts, and with it a note in the audit.

What is on record is the newest row of a server. So a leader that died between storing and recording is made good by
the next one, and nothing is recorded twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db import transaction
from django.db.models import Max, Q, QuerySet

from recovery.actions import audit
from recovery.domain.acting import Actor
from recovery.domain.ages import DAY
from recovery.domain.gate import Gate, State
from recovery.domain.mandate import May
from recovery.domain.refs import shown, unslug
from recovery.models import GateFlip
from recovery.reads.gates import column

NOTE = "gate"  # the act of the audit's notes
ACTOR = Actor("scanner", "gate")
FLIPS_FOR = 90 * DAY
GONE = "The server tells of itself no more."


class _Turn(NamedTuple):
    """What a gate came to, and when."""

    state: State
    at: int
    cpu: float | None
    why: str


class Flips:
    """Of one term of the leader."""

    def __init__(self) -> None:
        self._recorded: dict[str, State] | None = None  # by the server's column

    def record(self, gates: Iterable[Gate], now: int, may: May) -> None:
        """What differs from what is on record. `gates` are all there are: a server without one is gone.

        Raises NotRecorded and Error of the database; what was not written then is written by the next call.
        """
        if self._recorded is None:
            self._recorded = _newest()
        turns = {column(gate.server): _turn(gate, now) for gate in gates}
        for server in self._recorded.keys() - turns.keys():
            turns[server] = _Turn(State.UNKNOWN, now, None, GONE)
        for server, turn in turns.items():
            before = self._recorded.get(server, State.UNKNOWN)  # that nothing was ever known is worth no row
            if turn.state is not before and may():
                _write(server, before, turn)
                self._recorded[server] = turn.state


def old(now: int) -> QuerySet[GateFlip]:
    """What nobody will ask for again. How a gate stands is on record for as long as it stands so."""
    standing = GateFlip.objects.filter(pk__in=_last()).exclude(state=State.UNKNOWN)
    return GateFlip.objects.filter(Q(at__lt=now - FLIPS_FOR) & ~Q(pk__in=standing.values("pk")))


def _turn(gate: Gate, now: int) -> _Turn:
    return _Turn(gate.state, min(gate.since, now), gate.sample.cpu if gate.sample else None, gate.why)


def _newest() -> dict[str, State]:
    rows = GateFlip.objects.filter(pk__in=_last()).values_list("server", "state")
    return {server: State(state) for server, state in rows}


def _last() -> QuerySet[GateFlip, int]:
    return GateFlip.objects.values("server").annotate(last=Max("pk")).values_list("last", flat=True)


def _write(server: str, before: State, turn: _Turn) -> None:
    name = _name(server)
    body = {"server": name, "before": before.value, "after": turn.state.value, "cpu": turn.cpu, "at": turn.at}
    with transaction.atomic():
        GateFlip.objects.create(server=server, at=turn.at, state=turn.state.value, cpu=turn.cpu, why=turn.why)
        audit.note(ACTOR, NOTE, f"The gate of {name} is {turn.state.value}. {turn.why}", body)


def _name(server: str) -> str:
    try:
        return shown(unslug(server))
    except ValueError:  # of a name so long that it was cut
        return server
