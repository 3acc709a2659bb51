"""/policies: what the scanners may do to queues, where each value comes from, and editing it."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.api.actions import REASON_LIMIT, named
from dashboard.api.caller import Caller, guarded
from dashboard.api.names import NAME_LIMIT, OPTIONAL_QUEUE, QueueName
from dashboard.scopes import Scope
from recovery import config, shared_clock
from recovery.actions import policies as actions
from recovery.domain import policy_terms
from recovery.domain.chain import canonical
from recovery.domain.policies import Origin, Resolved
from recovery.domain.policy import Scanner
from recovery.domain.refs import QueueRef, shown
from recovery.errors import QueueMissing
from recovery.reads import policies as reads
from recovery.reads.policies import Book, Place

router = Router(tags=["Policies"])
_DEPLOYMENT = "All queues of this deployment."
_QUEUE = "DEPLOYMENT/ID of one queue. With neither: all queues."
_WORDS = "In the words of the TOML file, seconds for times."


class PolicyOrigin(Schema):
    """Where something is said. A deployment of null is any, a queue of null is all."""

    source: str = Field(description="file or page; what nobody said is by default.")
    deployment: str | None
    queue: QueueName | None = Field(description="Its deployment is empty where the queue is meant in any.")
    by: str | None
    at: int | None

    @classmethod
    def facts(cls, origin: Origin) -> dict[str, Any]:
        queue = QueueName.of(QueueRef(origin.deployment, origin.base)) if origin.base else None
        return {
            "source": origin.source.name.lower(),
            "deployment": shown(origin.deployment) or None,
            "queue": queue,
            "by": shown(origin.by) or None,
            "at": origin.at,
        }


class PolicyValue(PolicyOrigin):
    """One value that somebody set."""

    path: list[str]


class ScannerDuty(Schema):
    """What one scanner may do there."""

    scanner: Scanner
    acts: bool
    says: str


class EffectivePolicy(Schema):
    """What holds at one place, and what is said anywhere."""

    deployment: str | None
    queue: QueueName | None
    scanners: list[ScannerDuty]
    policy: dict[str, Any] = Field(description=f"All that holds there. {_WORDS}")
    origins: list[PolicyValue] = Field(description="Of each value that is not the default.")
    edited: dict[str, Any] = Field(description="What was edited for this very place: what PUT replaces.")
    layers: list[PolicyOrigin] = Field(description="Every place for which anything is said.")
    trouble: list[str] = Field(description="Edits that cannot be read: nothing acts where they count.")


class PolicyQuery(Schema):
    """Which place."""

    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description=_QUEUE)
    deployment: str = Field(default="", max_length=64, description=_DEPLOYMENT)


class PolicyEdit(Schema):
    """The whole of what is said for one place; what it leaves out is as the file and the wider places have it."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {
                "queue": "main/bull:mail",
                "policy": {"orphan_watch": {"mode": "act", "after": 10}},
                "reason": "its jobs may run twice",
            }
        },
    )

    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description=_QUEUE)
    deployment: str = Field(default="", max_length=64, description=_DEPLOYMENT)
    policy: dict[str, Any] = Field(description=f"{_WORDS} Empty: nothing is said any more.")
    reason: str = Field(default="", max_length=REASON_LIMIT, description="For whoever reads the audit.")
    seen: dict[str, Any] | None = Field(
        default=None, description="What `edited` was: then it is refused when somebody edited it meanwhile."
    )
    dry_run: bool = Field(default=False, description="Say what would change, and change nothing.")


class PolicyChange(Schema):
    """What an edit changed, or would change."""

    changes: list[str]
    problems: list[str] = Field(description="Of a dry run: why it would be refused.")
    notes: list[str] = Field(description="What to know of it: what stays as it is, what is lacking.")
    dry_run: bool
    audit: int | None = Field(description="Number of the entry; null when nothing was to be changed.")


@router.get(
    "/policies", **guarded(Scope.READ), response=EffectivePolicy, url_name="policies", summary="What scanners may do"
)
def policies(request: HttpRequest, query: Annotated[PolicyQuery, Query()]) -> EffectivePolicy:
    """To one queue, to those of a deployment, or to all of which nothing narrower is said."""
    place, now = _place(query.queue, query.deployment), shared_clock.now()
    book = Book.open(config.current())
    found = book.of(QueueRef(*place))
    return EffectivePolicy(
        deployment=place[0] or None,
        queue=QueueName.of(QueueRef(*place)) if place[1] else None,
        scanners=[_duty(found, scanner, now) for scanner in Scanner],
        policy=policy_terms.written(found.policy),
        origins=[
            PolicyValue(path=list(path), **PolicyOrigin.facts(origin)) for path, origin in sorted(found.origins.items())
        ],
        edited=reads.written(*place),
        layers=[PolicyOrigin(**PolicyOrigin.facts(layer.origin)) for layer in book.layers],
        trouble=[shown(trouble) for trouble in book.trouble],
    )


@router.put("/policies", **guarded(Scope.BULK), response=PolicyChange, url_name="policies", summary="Edit a policy")
def edit(request: HttpRequest, wanted: PolicyEdit) -> PolicyChange:
    """Replaces what was edited for this place. What is so already is left alone, and nothing is noted."""
    actor, place = Caller.of(request).actor, _place(wanted.queue, wanted.deployment)
    preview = actions.preview(actor, *place, wanted.policy)
    audit = None
    if not wanted.dry_run and (preview.problems or not _is_so(place, wanted.policy)):
        audit = actions.edit(actor, *place, wanted.policy, wanted.reason, seen=wanted.seen)
    return PolicyChange(
        changes=[shown(change) for change in preview.changes],
        problems=[shown(str(problem)) for problem in preview.problems],
        notes=[shown(note) for note in preview.notes],
        dry_run=wanted.dry_run,
        audit=audit,
    )


def _place(queue: str, deployment: str) -> Place:
    ref = named(queue) if queue else QueueRef(deployment, "")
    if deployment not in ("", ref.deployment):
        raise QueueMissing(f"There is no queue {queue} in the deployment {shown(deployment)}.")
    if ref.deployment:
        config.current().deployment(ref.deployment)
    return ref.deployment, ref.base


def _is_so(place: Place, wanted: dict[str, Any]) -> bool:
    """Said already, and readable."""
    row = next((row for row in reads.edited() if row.place == place), None)
    return canonical(dict(row.written) if row else {}) == canonical(wanted) and not (row and row.problems)


def _duty(found: Resolved, scanner: Scanner, now: int) -> ScannerDuty:
    says = shown(found.sentence(scanner, now))
    return ScannerDuty(scanner=scanner, acts=found.policy.may_act(scanner), says=says)
