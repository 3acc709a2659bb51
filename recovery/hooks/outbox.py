"""Outbox of recovery hooks: calls are recorded when something happens to a job; the scheduler makes them in a second.

Nothing here raises: a call that is lost is less harm than an action or a check that fails because of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import Error

from recovery import shared_clock
from recovery.config import Config
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.audit.hash_chain import canonical, job_key
from recovery.domain.hooks.types import Hook, HookEvent, row_id
from recovery.domain.identifiers import QueueRef, slug
from recovery.errors import UnstallError
from recovery.models import HookCall
from recovery.reads.queues import payloads
from recovery.reads.queues.job_lists import Queue

log = logging.getLogger(__name__)

_BATCH = 500
_HEARD = (Action.REQUEUE, Action.FAIL, Action.RELEASE)


@dataclass(frozen=True, slots=True)
class PendingHookCalls:
    """Hook calls to be made after an action; `rows`: the application's own rows, as the jobs named them before it."""

    event: HookEvent
    hooks: tuple[Hook, ...]
    rows: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)  # job → hook → row


def prepare_calls(
    config: Config, order: ActionCommand, queue: Queue, jobs: Sequence[ExpectedJob]
) -> PendingHookCalls | None:
    """Reads what the action can take away: a job that fails may be removed at once. Returns None if no hook listens."""
    if order.act not in _HEARD:
        return None
    event = _event(order.act, order.options)
    hooks = _listening(config.hooks, event, order.queue)
    return PendingHookCalls(event, hooks, _rows(hooks, queue, [seen.id for seen in jobs])) if hooks else None


def enqueue_calls(heard: PendingHookCalls | None, order: ActionCommand, done: Sequence[ScriptOutcome]) -> None:
    if heard is not None:
        ids = [one.id for one in done if one.outcome is Outcome.DONE]
        _write(heard.hooks, heard.event, order.queue, ids, act=order.act, rows=heard.rows)


def enqueue_event(config: Config, event: HookEvent, queue: QueueRef, ids: Sequence[str]) -> None:
    """Records hook calls for jobs that were found lost, or put right by their library."""
    hooks = _listening(config.hooks, event, queue) if ids else ()
    if hooks:
        _write(hooks, event, queue, ids)


def _event(act: Action, options: ActionOptions) -> HookEvent:
    """Returns LOST for a lock that is deleted, which leaves a job without a worker; RECOVERED for other actions."""
    return HookEvent.LOST if act is Action.RELEASE and not options.requeue else HookEvent.RECOVERED


def _listening(hooks: Iterable[Hook], event: HookEvent, queue: QueueRef) -> tuple[Hook, ...]:
    return tuple(hook for hook in hooks if hook.hears(event, queue))


def _rows(hooks: Iterable[Hook], queue: Queue, ids: Sequence[str]) -> dict[str, dict[str, str | int]]:
    asking = [hook for hook in hooks if hook.follow and hook.follow.path]
    if not asking:
        return {}
    try:
        found = payloads.data_of(queue, ids)
    except UnstallError as error:
        log.info("the jobs that hooks follow cannot be read: %s", error)
        return {}
    return {
        id: {hook.name: row for hook in asking if hook.follow and (row := row_id(hook.follow, id, data)) is not None}
        for id, data in found.items()
    }


def _write(
    hooks: Iterable[Hook],
    event: HookEvent,
    queue: QueueRef,
    ids: Iterable[str],
    *,
    act: str = "",
    rows: Mapping[str, Mapping[str, str | int]] | None = None,
) -> None:
    now = shared_clock.now()
    calls = [
        HookCall(
            hook=hook.name,
            event=event,
            deployment=queue.deployment,
            base=queue.slug,
            job=job_key(id),
            told=canonical(_told(act, (rows or {}).get(id, {}).get(hook.name))),
            at=now,
            due_at=now,
        )
        for id in ids
        for hook in hooks
        if job_key(id) == slug(id)  # a very long id is stored truncated, and could not be looked up again
    ]
    try:
        HookCall.objects.bulk_create(calls, batch_size=_BATCH)
    except Error as error:
        log.error("%d hook calls are lost: the database answered %s", len(calls), type(error).__name__)  # noqa: TRY400 -- told, not traced


def _told(act: str, row: str | int | None) -> dict[str, Any]:
    told: dict[str, Any] = {"act": act} if act else {}
    return told if row is None else told | {"row": row}
