"""Reads what decides whether an execution may be rescued, so that no second run begins beside a first one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from django.db import Error

from recovery.connections.registry import Registry
from recovery.domain.counts import Snapshot
from recovery.domain.n8n.losses import PROVEN, Loss
from recovery.domain.n8n.rescue import UNCLAIMED_AFTER, RescueStanding
from recovery.domain.n8n.standing import Standing
from recovery.domain.refs import QueueRef
from recovery.errors import NotRecorded
from recovery.n8n import executions, run_data
from recovery.reads.n8n import losses, standing, targets


def added(
    registry: Registry, ref: QueueRef, found: Mapping[str, Standing], snapshot: Snapshot | None, now: int
) -> dict[str, Standing]:
    """Adds to each execution what a rescue is decided by. Raises QueueMissing, Unsupported, StoreError, and NotRecorded
    when the history cannot be read.
    """
    n8n = targets.installation(registry, ref)
    wire, known = targets.database(registry, n8n)
    try:
        noticed = losses.of_executions(n8n.name, found)
    except Error as error:
        raise NotRecorded(f"The history of lost executions cannot be read, so nothing was changed: {error}") from error
    workflows = {id: one.execution.workflow for id, one in found.items() if one.execution}
    retries = executions.retries_of(wire, known, workflows)
    no_write = run_data.refusal(wire, known, n8n)
    return {
        id: replace(
            one,
            rescue=RescueStanding(
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


def _is_claimed(loss: Loss | None, now: int) -> bool:
    return loss is not None and loss.claimed_at is not None and now - loss.claimed_at < UNCLAIMED_AFTER


def _is_lost(one: Standing, snapshot: Snapshot | None, now: int) -> bool:
    return bool(one.claims) and all(
        verdict is not None and verdict.of_lock in PROVEN
        for verdict in standing.verdicts(one.claims or (), snapshot, now)
    )
