"""Fire drills that operators start: requested here, executed by the scheduler, each with its notes in the audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

from django.db import Error, transaction

from recovery import shared_clock
from recovery.actions.action_reason import require_reason
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Actor
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.drills.plan import DrillPlan, problems
from recovery.domain.drills.results import OPEN, DrillRound, summarize
from recovery.errors import BadOrder, Forbidden, Missing, NotRecorded
from recovery.models import DrillRun

NOTE = "fire drill"  # the act of the notes that say who ordered a drill, and its result
KEPT = 50  # drills: more than anyone compares
LONGEST = 4 * 60 * 60 * 1000  # ms of rounds that an order may ask for

T = TypeVar("T")


def order(actor: Actor, plan: DrillPlan, reason: str) -> DrillRun:
    """Requests a drill; the scheduler starts it in seconds, one at a time. Raises Forbidden, BadOrder, NotRecorded."""
    _allowed(actor)
    said = require_reason(reason)
    if wrong := problems(plan):
        raise BadOrder(" ".join(f"{name.replace('_', ' ').capitalize()}: {words}" for name, words in wrong.items()))
    if plan.rounds * plan.patience > LONGEST:
        raise BadOrder("It could take more than four hours. Reduce the number of rounds.")
    return _recorded(lambda: _ordered(actor, plan, said))


def stop(actor: Actor, id: int) -> bool:
    """Requests the end of a drill; returns False if it has ended already. Raises Forbidden, Missing and NotRecorded."""
    _allowed(actor)
    if not DrillRun.objects.filter(pk=id).exists():
        raise Missing(f"There is no fire drill {id} (any more).")
    return _recorded(lambda: _stopped(actor, id))


def record_end(run: DrillRun, actor: Actor, rounds: Sequence[DrillRound]) -> None:
    """Records the result of a drill in the audit, in the caller's transaction. Raises NotRecorded."""
    summary = summarize(rounds)
    told = {"drill": run.pk, "outcome": run.status, "rounds": summary.rounds, "recovered": summary.recovered}
    audit_log.note(actor, NOTE, run.reason, told | {"p50": summary.p50, "worst": summary.worst})


def _ordered(actor: Actor, plan: DrillPlan, reason: str) -> DrillRun:
    """Creates the drill, then looks for another one: appends to the audit are serialized, so one of two sees both."""
    run = DrillRun.objects.create(
        plan=canonical(plan.as_json()), actor=canonical(asdict(actor)), reason=reason, wanted_at=_now()
    )
    audit_log.note(actor, NOTE, reason, {"drill": run.pk, "plan": plan.as_json()})
    if DrillRun.objects.filter(status__in=OPEN).count() > 1:
        raise BadOrder(
            "Another fire drill is running. Only one can run at a time: they would distort each other's times."
        )
    _forget()
    return run


def _stopped(actor: Actor, id: int) -> bool:
    asked: int = DrillRun.objects.filter(pk=id, status__in=OPEN, wants_stop=False).update(wants_stop=True)
    if asked:
        audit_log.note(actor, NOTE, f"Stop fire drill {id}.", {"drill": id})
    return bool(asked)


def _forget() -> None:
    old = list(DrillRun.objects.order_by("-pk").values_list("pk", flat=True)[KEPT : 2 * KEPT])
    DrillRun.objects.filter(pk__in=old).exclude(status__in=OPEN).delete()


def _recorded(change: Callable[[], T]) -> T:
    """Commits a change together with its note in the audit, or neither."""
    try:
        with transaction.atomic():
            return change()
    except Error as error:
        raise NotRecorded(
            f"The database could not store it, so nothing was changed: {type(error).__name__}."
        ) from error


def _allowed(actor: Actor) -> None:
    if not actor.may_bulk:
        raise Forbidden("This needs the permission to act in bulk.")


def _now() -> int:
    return shared_clock.now()
