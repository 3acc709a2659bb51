"""Reads what decides whether an execution may be rescued, so that no second run begins beside a first one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from django.db import Error

from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.action_context import ExecutionActionContext
from recovery.domain.n8n.lost_executions import PROVEN, LostExecutionRecord
from recovery.domain.n8n.rescue import UNCLAIMED_AFTER, RescueContext
from recovery.domain.queues.types import Snapshot
from recovery.errors import NotRecorded
from recovery.n8n import action_context, action_targets, lost_executions
from recovery.n8n.database import executions, run_data
from recovery.stores.registry import ConnectionRegistry


def add_rescue_contexts(
    registry: ConnectionRegistry,
    ref: QueueRef,
    found: Mapping[str, ExecutionActionContext],
    snapshot: Snapshot | None,
    now: int,
) -> dict[str, ExecutionActionContext]:
    """Adds to each execution what a rescue is decided by. Raises QueueMissing, Unsupported, StoreError, and NotRecorded
    when the history cannot be read.
    """
    n8n = action_targets.installation(registry, ref)
    wire, known = action_targets.database(registry, n8n)
    try:
        noticed = lost_executions.newest_by_execution(n8n.name, found)
    except Error as error:
        raise NotRecorded(f"The history of lost executions cannot be read, so nothing was changed: {error}") from error
    workflows = {id: one.execution.workflow for id, one in found.items() if one.execution}
    retries = executions.first_retries(wire, known, workflows)
    no_write = run_data.refusal(wire, known, n8n)
    return {
        id: replace(
            one,
            rescue=RescueContext(
                loss=noticed.get(id),
                is_claimed=_is_claimed(noticed.get(id), now),
                release=known.release,
                is_lost=_is_lost(one, snapshot, now),
                is_overwritten=run_data.is_overwritten(wire, n8n, id),
                retried_as=retries.get(id, ""),
                no_write=no_write,
                note=n8n.idempotent.get(one.execution.workflow, "") if one.execution else "",
            ),
        )
        for id, one in found.items()
    }


def _is_claimed(loss: LostExecutionRecord | None, now: int) -> bool:
    return loss is not None and loss.claimed_at is not None and now - loss.claimed_at < UNCLAIMED_AFTER


def _is_lost(one: ExecutionActionContext, snapshot: Snapshot | None, now: int) -> bool:
    return bool(one.claims) and all(
        verdict is not None and verdict.of_lock in PROVEN
        for verdict in action_context.verdicts(one.claims or (), snapshot, now)
    )
