"""/actions: what can be done, and doing it to a handful of jobs at once, through the one door of the engine."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.api.caller import Caller, guarded
from dashboard.api.faults import Refusal
from dashboard.api.jobs import Seen
from dashboard.api.names import NAME_LIMIT, OPTIONAL_QUEUE, QUEUE, SLUG, QueueName, job_id, queue_ref
from dashboard.live import mirror
from dashboard.scopes import Scope
from recovery.actions import operators, runner
from recovery.actions.catalog import ENTRIES, Entry
from recovery.domain import acting
from recovery.domain.acting import Act, JobResult, Judgement, Order, Outcome, Right
from recovery.domain.jobs import State
from recovery.domain.refs import QueueRef, shown, slug
from recovery.reads import lists

router = Router(tags=["Actions"])
MESSAGE_LIMIT = 300  # characters of the reason that `fail` writes into a job
REASON_LIMIT = 2_000  # what is read of a reason; the engine's own limit is told by the engine
LONGEST_AGE = 3650 * 86_400_000  # ms


class Options(Schema):
    """How to do it. What an action does not know it ignores."""

    model_config = ConfigDict(extra="forbid", strict=True)

    force: bool = Field(default=False, description="In spite of poison, or of a holder that is still connected.")
    consent: bool = Field(default=False, description="n8n: the workflow may run a second time from its start.")
    reset_stalls: bool = Field(default=False, description="requeue, retry: forget that it stalled.")
    counts_as_stall: bool = Field(default=True, description="requeue: count as the library's own recovery does.")
    requeue: bool = Field(default=False, description="release: and back to wait at once.")
    reset_attempts: bool = Field(default=False, description="retry: from the first attempt.")
    rerun_completed: bool = Field(
        default=False, description="retry: a job that has completed, too. It does its work a second time."
    )
    children: bool = Field(default=True, description="remove: with the job's own children.")
    directly: bool = Field(default=False, description="fail: do not leave it to a live worker.")
    state: State | None = Field(default=None, strict=False, description="clean: which list.")
    older_than: int = Field(
        default=0, ge=0, le=LONGEST_AGE, description="clean: milliseconds since it finished or was added."
    )
    limit: int = Field(default=0, ge=0, le=10_000_000, description="clean: at most so many; 0 is all.")
    delayed: bool = Field(default=False, description="drain: delayed jobs too.")
    latest: bool = Field(default=False, description="relaunch: with the workflow as it is saved now.")
    message: str = Field(default="", max_length=MESSAGE_LIMIT, description="fail: written into the job.")

    def chosen(self) -> acting.Options:
        return acting.Options(**self.dict())


class JobWish(Schema):
    """A job, and how it was when it was decided. Without `seen` the server looks now, and goes by that."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(max_length=NAME_LIMIT, pattern=SLUG)
    seen: Seen | None = None


class ActionOrder(Schema):
    """One action on jobs of one queue, or on the queue itself when it names none."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {
                "act": "retry",
                "queue": "main/bull:mail",
                "jobs": [{"id": "42"}],
                "reason": "the mail host is back",
            }
        },
    )

    act: Annotated[Act, Field(strict=False)]
    queue: str = Field(max_length=NAME_LIMIT, pattern=QUEUE, description="DEPLOYMENT/ID of the queue.")
    jobs: list[JobWish] = Field(default=[], max_length=runner.AT_ONCE)
    reason: str = Field(default="", max_length=REASON_LIMIT, description="For whoever reads the audit.")
    options: Options = Field(default_factory=Options)
    dry_run: bool = Field(default=False, description="Judge, and change nothing.")


class Result(Schema):
    """What came of one job; of the queue itself when `job` is empty."""

    job: str
    label: str
    outcome: Outcome
    why: str = Field(description="Why not; of a dry run also the risk.")
    audit: int | None = Field(description="Number of the entry that holds the outcome.")

    @classmethod
    def of(cls, result: JobResult) -> Result:
        return cls(**{**result.as_json(), **_name(result.job), "why": shown(result.why)})

    @classmethod
    def judged(cls, one: Judgement) -> Result:
        """What would come of it, as the shell foretells it; of what may be done `why` is the risk."""
        outcome, why = (Outcome.DONE, one.risk) if one.is_allowed else (one.outcome, one.why)
        return cls(**_name(one.id), outcome=outcome, why=shown(why), audit=None)


class ActionResults(Schema):
    """One result a job, in their order."""

    action: Act
    queue: QueueName | None
    dry_run: bool = Field(description="The results are foretold; nothing was changed.")
    results: list[Result]


class ActionEntry(Schema):
    """One action."""

    act: Act
    label: str
    effect: str
    states: list[State] = Field(description="Of the jobs it is for; empty: any.")
    is_for_queue: bool
    scopes: list[Scope] = Field(description="What it takes. More than one job at once takes bulk as well.")
    irreversible: bool
    restorable: bool = Field(description="For 24 hours.")
    refused: str | None = Field(description="Why it cannot be done to the queue that was asked about.")

    @classmethod
    def of(cls, entry: Entry, refused: str | None) -> ActionEntry:
        return cls(
            act=entry.act,
            label=entry.label,
            effect=entry.effect,
            states=sorted(entry.states),
            is_for_queue=entry.is_for_queue,
            scopes=[Scope.ACT, Scope.BULK] if entry.one is not Right.ACT else [Scope.ACT],
            irreversible=entry.irreversible,
            restorable=entry.restorable,
            refused=refused,
        )


class Catalog(Schema):
    """Every action there is."""

    actions: list[ActionEntry]


class CatalogQuery(Schema):
    """Perhaps for one queue."""

    queue: str = Field(
        default="",
        max_length=NAME_LIMIT,
        pattern=OPTIONAL_QUEUE,
        description="DEPLOYMENT/ID: with what cannot be done to this one.",
    )


@router.get("/actions", **guarded(Scope.READ), response=Catalog, url_name="actions", summary="What can be done")
def catalog(request: HttpRequest, query: Annotated[CatalogQuery, Query()]) -> Catalog:
    """What each action does, to what, and what it takes."""
    refusals = _refusals(named(query.queue)) if query.queue else {}
    return Catalog(actions=[ActionEntry.of(entry, refusals.get(act)) for act, entry in ENTRIES.items()])


@router.post(
    "/actions", **guarded(Scope.ACT), response=ActionResults, url_name="actions", summary="Act on jobs, or on a queue"
)
def act(request: HttpRequest, order: ActionOrder) -> ActionResults:
    """With the rules and the audit of every button. A job that moved since it was seen is refused; the others go on."""
    whole = _order(order, Caller.of(request).actor)
    if order.dry_run:
        results = [Result.judged(one) for one in runner.preview(whole).judgements]
    else:
        runner.insist_on_undo(whole)
        results = [Result.of(one) for one in runner.perform(whole)]
    if not whole.jobs and results[0].outcome == Outcome.REFUSED:
        raise Refusal(409, "refused", results[0].why, "GET /actions says what can be done.")
    return ActionResults(action=order.act, queue=QueueName.of(whole.queue), dry_run=order.dry_run, results=results)


def named(written: str) -> QueueRef:
    """`DEPLOYMENT/ID`, as a queue is written in bodies and queries. Raises QueueMissing."""
    deployment, _, base = written.partition("/")
    return queue_ref(deployment, base)


def fresh(queue: QueueRef, jobs: list[JobWish]) -> tuple[acting.Seen, ...]:
    """As they were seen; those that nobody saw, as they are now. In the order in which they were named."""
    found = {id: wish.seen for id, wish in ((job_id(wish.id), wish) for wish in jobs)}
    looked = {seen.id: seen for seen in _look(queue, tuple(id for id, seen in found.items() if seen is None))}
    return tuple(looked.get(id) or _whole(id, seen) for id, seen in found.items())


def _order(order: ActionOrder, actor: acting.Actor) -> Order:
    if order.act is Act.RESTORE:
        raise Refusal(422, "invalid", "act: restore goes by an entry of the audit.", "POST /audit/{number}/restore")
    queue = named(order.queue)
    jobs = fresh(queue, order.jobs)
    return Order(order.act, queue, actor, order.reason, jobs, order.options.chosen())


def _look(queue: QueueRef, ids: tuple[str, ...]) -> tuple[acting.Seen, ...]:
    return runner.seen(queue, ids) if ids else ()


def _whole(id: str, seen: Seen | None) -> acting.Seen:
    try:
        return seen.whole(id) if seen else acting.Seen(id, State.UNKNOWN)
    except ValueError:
        raise Refusal(422, "invalid", "jobs: a lock's token that no lock can have.") from None


def _name(job: str) -> dict[str, Any]:
    return {"job": slug(job) if job else "", "label": shown(job)}


def _refusals(ref: QueueRef) -> dict[Act, str]:
    flavour = lists.locate(ref, mirror.newest()).flavour
    return {act: shown(why) for act, why in operators.refusals(flavour).items()}
