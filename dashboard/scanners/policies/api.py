"""Serves /policies: what the scanners may do to queues, where each value comes from, and editing it."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.accounts.token_scopes import TokenScope
from dashboard.actions.api import REASON_LIMIT, parse_queue
from dashboard.api.auth import ApiCaller, requires_scope
from dashboard.api.identifiers import NAME_LIMIT, OPTIONAL_QUEUE, QueueName
from recovery import config, shared_clock
from recovery.actions import policy_edits as actions
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.policies import describe
from recovery.domain.policies.policy_layers import PolicyValueOrigin, ResolvedPolicy
from recovery.domain.policies.types import PolicyScanner
from recovery.errors import QueueMissing
from recovery.reads.policies import queries as reads
from recovery.reads.policies.queries import PolicyScope, PolicySnapshot

router = Router(tags=["Policies"])
_DEPLOYMENT = "All queues of this deployment."
_QUEUE = "DEPLOYMENT/ID of one queue. With neither: all queues."
_WORDS = "In the words of the TOML file, seconds for times."


class PolicyOrigin(Schema):
    """Source of a value. deployment null: any; queue null: all."""

    source: str = Field(description="file or page; values that are not set are defaults.")
    deployment: str | None
    queue: QueueName | None = Field(description="The deployment is empty if the queue name applies to any deployment.")
    by: str | None
    at: int | None

    @classmethod
    def facts(cls, origin: PolicyValueOrigin) -> dict[str, Any]:
        queue = QueueName.of(QueueRef(origin.deployment, origin.base)) if origin.base else None
        return {
            "source": origin.source.name.lower(),
            "deployment": printable(origin.deployment) or None,
            "queue": queue,
            "by": printable(origin.by) or None,
            "at": origin.at,
        }


class PolicyValue(PolicyOrigin):
    """A value that is set."""

    path: list[str]


class ScannerPolicyStatus(Schema):
    """Policy of one scanner there."""

    scanner: PolicyScanner
    enabled: bool
    says: str


class EffectivePolicy(Schema):
    """The effective policy of one place, and all edits."""

    deployment: str | None
    queue: QueueName | None
    scanners: list[ScannerPolicyStatus]
    policy: dict[str, Any] = Field(description=f"The effective policy. {_WORDS}")
    origins: list[PolicyValue] = Field(description="Source of each value that is not the default.")
    edited: dict[str, Any] = Field(description="Edited values of this place: PUT replaces them.")
    layers: list[PolicyOrigin] = Field(description="All places with settings of their own.")
    trouble: list[str] = Field(description="Edits that cannot be read: scanners change nothing where they apply.")


class PolicyQuery(Schema):
    """A queue, a deployment, or all queues."""

    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description=_QUEUE)
    deployment: str = Field(default="", max_length=64, description=_DEPLOYMENT)


class PolicyEdit(Schema):
    """All edited values of one place; omitted values are inherited from the file and from wider places."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {
                "queue": "main/bull:mail",
                "policy": {"orphan_watch": {"mode": "enabled", "after": 10}},
                "reason": "the jobs are idempotent",
            }
        },
    )

    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description=_QUEUE)
    deployment: str = Field(default="", max_length=64, description=_DEPLOYMENT)
    policy: dict[str, Any] = Field(description=f"{_WORDS} Empty: removes the edit.")
    reason: str = Field(default="", max_length=REASON_LIMIT, description="Recorded in the audit log.")
    seen: dict[str, Any] | None = Field(
        default=None,
        description="The previous value of `edited`: the edit is refused if it was edited in the meantime.",
    )
    dry_run: bool = Field(default=False, description="Dry run: report the changes and change nothing.")


class PolicyChange(Schema):
    """The changes of an edit."""

    changes: list[str]
    problems: list[str] = Field(description="In a dry run: why it would be refused.")
    notes: list[str] = Field(description="Notes: what stays unchanged, what is missing.")
    dry_run: bool
    audit: int | None = Field(description="Number of the audit entry; null if nothing changed.")


@router.get(
    "/policies",
    **requires_scope(TokenScope.READ),
    response=EffectivePolicy,
    url_name="policies",
    summary="Get policies",
)
def policies(request: HttpRequest, query: Annotated[PolicyQuery, Query()]) -> EffectivePolicy:
    """Returns the policy of one queue, of all queues of a deployment, or of all queues."""
    place, now = _place(query.queue, query.deployment), shared_clock.now()
    book = PolicySnapshot.open(config.current())
    found = book.of(QueueRef(*place))
    return EffectivePolicy(
        deployment=place[0] or None,
        queue=QueueName.of(QueueRef(*place)) if place[1] else None,
        scanners=[_duty(found, scanner, now) for scanner in PolicyScanner],
        policy=describe.policy_settings(found.policy),
        origins=[
            PolicyValue(path=list(path), **PolicyOrigin.facts(origin)) for path, origin in sorted(found.origins.items())
        ],
        edited=reads.edited_values(*place),
        layers=[PolicyOrigin(**PolicyOrigin.facts(layer.origin)) for layer in book.layers],
        trouble=[printable(trouble) for trouble in book.trouble],
    )


@router.put(
    "/policies", **requires_scope(TokenScope.BULK), response=PolicyChange, url_name="policies", summary="Edit a policy"
)
def edit(request: HttpRequest, wanted: PolicyEdit) -> PolicyChange:
    """Replaces the edit of this place. Without a difference nothing is changed or recorded."""
    actor, place = ApiCaller.of(request).actor, _place(wanted.queue, wanted.deployment)
    preview = actions.preview(actor, *place, wanted.policy)
    audit = None
    if not wanted.dry_run and (preview.problems or not _is_so(place, wanted.policy)):
        audit = actions.edit(actor, *place, wanted.policy, wanted.reason, seen=wanted.seen)
    return PolicyChange(
        changes=[printable(change) for change in preview.changes],
        problems=[printable(str(problem)) for problem in preview.problems],
        notes=[printable(note) for note in preview.notes],
        dry_run=wanted.dry_run,
        audit=audit,
    )


def _place(queue: str, deployment: str) -> PolicyScope:
    ref = parse_queue(queue) if queue else QueueRef(deployment, "")
    if deployment not in ("", ref.deployment):
        raise QueueMissing(f"Queue {queue} not found in the deployment {printable(deployment)}.")
    if ref.deployment:
        config.current().deployment(ref.deployment)
    return ref.deployment, ref.base


def _is_so(place: PolicyScope, wanted: dict[str, Any]) -> bool:
    """Returns True if this edit is stored already, and readable."""
    row = next((row for row in reads.load_edits() if row.place == place), None)
    return canonical(dict(row.written) if row else {}) == canonical(wanted) and not (row and row.problems)


def _duty(found: ResolvedPolicy, scanner: PolicyScanner, now: int) -> ScannerPolicyStatus:
    says = printable(found.sentence(scanner, now))
    return ScannerPolicyStatus(scanner=scanner, enabled=found.policy.may_act(scanner), says=says)
