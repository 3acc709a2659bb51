"""Serves /sweeps: a worker that takes its jobs from a table reports that it has just started."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Field, Router, Schema
from pydantic import ConfigDict

from dashboard.api.actions import named
from dashboard.api.caller import guarded
from dashboard.api.names import NAME_LIMIT, QUEUE
from dashboard.scopes import Scope
from recovery.connections.registry import registry
from recovery.domain.refs import shown
from recovery.scanners.crew import starting

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


class Swept(Schema):
    """Result for the rows left running."""

    looked: int
    acted: int
    refused: int
    holds: list[str] = Field(description="What limited the run.")
    faults: list[str]


@router.post("/sweeps", **guarded(Scope.BULK), response=Swept, url_name="sweeps", summary="Report a worker start")
def start(request: HttpRequest, wanted: WorkerStart) -> Swept:
    """Requeues rows left running by a dead process, or fails them if their attempts are used up.

    It is done when the call returns, as far as the policy of the table allows.
    """
    report = starting(registry(), named(wanted.table), owner=wanted.owner)
    return Swept(
        looked=report.looked,
        acted=report.acted,
        refused=report.refused,
        holds=[shown(hold) for hold in report.holds],
        faults=[shown(fault) for fault in report.faults],
    )
