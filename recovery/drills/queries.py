"""Reads fire drills that were requested on the page, and the libraries that the leader can run one with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import redis

from recovery.domain.actions.types import Actor
from recovery.domain.drills.plan import DrillLibrary, DrillPlan
from recovery.domain.drills.results import DrillRound, DrillStatus, DrillSummary, summarize
from recovery.domain.json_fields import fields, text
from recovery.drills import runtimes
from recovery.errors import Missing, Unsupported
from recovery.models import DrillRun
from recovery.stores.redis import redis_errors
from recovery.stores.state import size_limits, state_keys

SHOWN = 10
OFFERS_FOR = 90  # seconds that a published offer is valid


@dataclass(frozen=True, slots=True)
class DrillStep:
    """Event of the current round; `at` in ms since the job was picked up or, after the signal, since the signal."""

    number: int
    what: str
    at: int


@dataclass(frozen=True, slots=True)
class FireDrill:
    """Fire drill, as the page shows it."""

    id: int
    plan: DrillPlan
    status: DrillStatus
    wants_stop: bool
    actor: Actor
    reason: str
    wanted_at: int
    started_at: int | None
    ended_at: int | None
    version: str
    rounds: tuple[DrillRound, ...]
    under_way: tuple[DrillStep, ...]
    cleaned: int | None
    trouble: str

    @property
    def is_open(self) -> bool:
        return self.status.is_open

    @property
    def summary(self) -> DrillSummary:
        return summarize(self.rounds)


@dataclass(frozen=True, slots=True)
class DrillOffer:
    """Library that a drill may use. `trouble`: why no drill can be run with it, "" if one can."""

    library: DrillLibrary
    version: str
    trouble: str


def newest(size: int = SHOWN) -> tuple[FireDrill, ...]:
    """Returns the newest drills, the newest first."""
    return tuple(map(run_of, DrillRun.objects.order_by("-pk")[:size]))


def run(id: int) -> FireDrill:
    """Loads one drill; raises Missing."""
    row = DrillRun.objects.filter(pk=id).first()
    if row is None:
        raise Missing(f"There is no fire drill {id} (any more).")
    return run_of(row)


def run_of(row: DrillRun) -> FireDrill:
    return FireDrill(
        id=row.pk,
        plan=DrillPlan.of_json(json.loads(row.plan)),
        status=DrillStatus(row.status),
        wants_stop=row.wants_stop,
        actor=Actor(**json.loads(row.actor)),
        reason=row.reason,
        wanted_at=row.wanted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        version=row.version,
        rounds=tuple(map(DrillRound.of_json, json.loads(row.rounds))),
        under_way=tuple(DrillStep(*step) for step in json.loads(row.under_way)),
        cleaned=row.cleaned,
        trouble=row.trouble,
    )


def offers_of_this_process() -> tuple[DrillOffer, ...]:
    """Checks which libraries this process could run a drill with."""
    return tuple(map(_offer, DrillLibrary))


def write(store: redis.Redis, offers: tuple[DrillOffer, ...]) -> None:
    """Publishes the offers in the state store. Raises StoreError."""
    told = {one.library.value: {"version": one.version, "trouble": one.trouble} for one in offers}
    with redis_errors.guarded(store):
        store.set(state_keys.DRILLS, json.dumps(told), ex=OFFERS_FOR)


def read(store: redis.Redis) -> tuple[DrillOffer, ...]:
    """Returns the offers of the leader; empty if none was published lately. Raises StoreError."""
    with redis_errors.guarded(store):
        packed = size_limits.string_of(size_limits.ask_string(store, state_keys.DRILLS), size_limits.SMALL_LIMIT)
    try:
        told = json.loads(packed or b"{}")
        return tuple(_told(library, told) for library in DrillLibrary if library.value in told)
    except (ValueError, TypeError, RecursionError):
        return ()


def _offer(library: DrillLibrary) -> DrillOffer:
    try:
        return DrillOffer(library, runtimes.find(library).version, "")
    except Unsupported as error:
        return DrillOffer(library, "", str(error))


def _told(library: DrillLibrary, told: Mapping[str, object]) -> DrillOffer:
    version, trouble = fields(told[library.value], "version", "trouble")
    return DrillOffer(library, text(version), text(trouble))
