"""Serves /sweeps: a worker that takes its jobs from a table reports that it has just started."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Field, Router, Schema
from pydantic import ConfigDict

from dashboard.accounts.token_scopes import TokenScope
from dashboard.actions.api import parse_queue
from dashboard.api.auth import requires_scope
from dashboard.api.identifiers import NAME_LIMIT, QUEUE
from recovery.domain.identifiers import printable
from recovery.scanners.registry import sweep_at_worker_start
from recovery.stores.registry import registry

router = Router(tags=["Scanners"])
OWNER_LIMIT = 300  # characters


class WorkerStart(Schema):
    """Sent by a worker before it takes its first row."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"table": "app/imports", "owner": "importer-1"}}
    )

    table: str = Field(max_length=NAME_LIMIT, pattern=QUEUE, description="DATABASE/ID of the table, like a queue.")
    owner: str = Field(
        default="",
        max_length=OWNER_LIMIT,
        description="Only rows of this owner; required if several owners share the table.",
    )


class StartupSweepResult(Schema):
    """Result for the rows left running."""

    looked: int
    acted: int
    refused: int
    holds: list[str] = Field(description="What limited the run.")
    faults: list[str]


@router.post(
    "/sweeps",
    **requires_scope(TokenScope.BULK),
    response=StartupSweepResult,
    url_name="sweeps",
    summary="Report a worker start",
)
def start(request: HttpRequest, wanted: WorkerStart) -> StartupSweepResult:
    """Requeues rows left running by a dead process, or fails them if their attempts are used up.

    It is done when the call returns, as far as the policy of the table allows.
    """
    report = sweep_at_worker_start(registry(), parse_queue(wanted.table), owner=wanted.owner)
    return StartupSweepResult(
        looked=report.looked,
        acted=report.acted,
        refused=report.refused,
        holds=[printable(hold) for hold in report.holds],
        faults=[printable(fault) for fault in report.faults],
    )
