"""Reads fire drills that were requested on the page, and the libraries that the leader can run one with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import redis

from recovery.connections import faults, state, state_limits
from recovery.domain.acting import Actor
from recovery.domain.drills.plan import Library, Plan
from recovery.domain.drills.rounds import Round, Status, Summary, summed
from recovery.domain.stored import fields, text
from recovery.drill import programs
from recovery.errors import Missing, Unsupported
from recovery.models import DrillRun

SHOWN = 10
OFFERS_FOR = 90  # seconds that a published offer is valid


@dataclass(frozen=True, slots=True)
class Step:
    """Event of the current round; `at` in ms since the job was picked up or, after the signal, since the signal."""

    number: int
    what: str
    at: int


@dataclass(frozen=True, slots=True)
class Run:
    """Fire drill, as the page shows it."""

    id: int
    plan: Plan
    status: Status
    wants_stop: bool
    actor: Actor
    reason: str
    wanted_at: int
    started_at: int | None
    ended_at: int | None
    version: str
    rounds: tuple[Round, ...]
    under_way: tuple[Step, ...]
    cleaned: int | None
    trouble: str

    @property
    def is_open(self) -> bool:
        return self.status.is_open

    @property
    def summary(self) -> Summary:
        return summed(self.rounds)


@dataclass(frozen=True, slots=True)
class Offer:
    """Library that a drill may use. `trouble`: why no drill can be run with it, "" if one can."""

    library: Library
    version: str
    trouble: str


def newest(size: int = SHOWN) -> tuple[Run, ...]:
    """Returns the newest drills, the newest first."""
    return tuple(map(run_of, DrillRun.objects.order_by("-pk")[:size]))


def run(id: int) -> Run:
    """Loads one drill; raises Missing."""
    row = DrillRun.objects.filter(pk=id).first()
    if row is None:
        raise Missing(f"There is no fire drill {id} (any more).")
    return run_of(row)


def run_of(row: DrillRun) -> Run:
    return Run(
        id=row.pk,
        plan=Plan.of_json(json.loads(row.plan)),
        status=Status(row.status),
        wants_stop=row.wants_stop,
        actor=Actor(**json.loads(row.actor)),
        reason=row.reason,
        wanted_at=row.wanted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        version=row.version,
        rounds=tuple(map(Round.of_json, json.loads(row.rounds))),
        under_way=tuple(Step(*step) for step in json.loads(row.under_way)),
        cleaned=row.cleaned,
        trouble=row.trouble,
    )


def look() -> tuple[Offer, ...]:
    """Checks which libraries this process could run a drill with."""
    return tuple(map(_offer, Library))


def write(store: redis.Redis, offers: tuple[Offer, ...]) -> None:
    """Publishes the offers in the state store. Raises StoreError."""
    told = {one.library.value: {"version": one.version, "trouble": one.trouble} for one in offers}
    with faults.guarded(store):
        store.set(state.DRILLS, json.dumps(told), ex=OFFERS_FOR)


def read(store: redis.Redis) -> tuple[Offer, ...]:
    """Returns the offers of the leader; empty if none was published lately. Raises StoreError."""
    with faults.guarded(store):
        packed = state_limits.string_of(state_limits.ask_string(store, state.DRILLS), state_limits.SMALL_LIMIT)
    try:
        told = json.loads(packed or b"{}")
        return tuple(_told(library, told) for library in Library if library.value in told)
    except (ValueError, TypeError, RecursionError):
        return ()


def _offer(library: Library) -> Offer:
    try:
        return Offer(library, programs.find(library).version, "")
    except Unsupported as error:
        return Offer(library, "", str(error))


def _told(library: Library, told: Mapping[str, object]) -> Offer:
    version, trouble = fields(told[library.value], "version", "trouble")
    return Offer(library, text(version), text(trouble))
