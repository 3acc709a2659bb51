"""Previews an action on all listed stuck jobs, or executions of n8n's table, that match a filter; each is read afresh,
by queue.

A queue that cannot be read, or not be changed in this way, is reported; the action on the others is still possible.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from dashboard.actions import confirmation
from dashboard.live import state_cache
from dashboard.n8n import execution_buttons
from dashboard.n8n.presenters import PairFilter
from dashboard.stuck.filters import StuckFilter
from recovery.actions import runner
from recovery.actions.catalog import ENTRIES
from recovery.actions.runner import ActionDryRun
from recovery.domain.actions.types import ActionCommand, ExpectedJob
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.stuck.inbox import StuckInbox
from recovery.domain.stuck.types import StuckJob, VerdictKind
from recovery.errors import Missing, StoreError, Unsupported
from recovery.n8n import comparison_store
from recovery.reads.queues import job_lists
from recovery.reads.stuck import queries as stuck_queries
from recovery.reads.stuck.queries import InboxUnavailable
from recovery.stores.registry import registry


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """Share of one queue: how many jobs of it match, and its preview, or `why` there is none."""

    queue: QueueRef
    count: int
    preview: ActionDryRun | None = None
    missing: tuple[JobRef, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class FilterSelection:
    """Shares of all queues. `note` says which jobs are meant, and which are not."""

    parts: tuple[QueueSelection, ...]
    note: str


def select_matching(
    wanted: ActionCommand, chosen: StuckFilter | PairFilter, among: Collection[str] | None
) -> FilterSelection:
    """Previews the action of `wanted` on all that match. `among`: the jobs that were shown; later ones are not meant.

    Raises Forbidden.
    """
    entry = ENTRIES[wanted.act]
    runner.require(wanted.actor, f"{entry.label} of all that match", entry.right(many=True))
    if isinstance(chosen, PairFilter):
        return _executions(wanted, chosen, among)
    looked = stuck_queries.inbox_or_reason()
    inbox = looked if isinstance(looked, StuckInbox) else None
    found: dict[QueueRef, list[StuckJob]] = {}
    for line in inbox.rows if inbox else ():
        is_meant = line.verdict.kind is not VerdictKind.N8N and chosen.holds(line)
        if is_meant and (among is None or confirmation.short_job_name(line.job) in among):
            found.setdefault(line.job.queue, []).append(line)
    return FilterSelection(tuple(_part(wanted, ref, lines) for ref, lines in found.items()), _note(looked, chosen))


def _executions(wanted: ActionCommand, chosen: PairFilter, among: Collection[str] | None) -> FilterSelection:
    """Previews the action on the listed mismatches of n8n's tables that it fits."""
    found: dict[QueueRef, list[str]] = {}
    unlisted, known = 0, {one.name: one for one in registry().config.n8n}
    for truth in comparison_store.newest():
        n8n = known.get(truth.name)
        if n8n is None or truth.fault or comparison_store.is_old(truth):
            continue
        unlisted += truth.mismatches - len(truth.pairs)
        for pair in truth.pairs:
            is_meant = chosen.holds(truth, pair) and wanted.act in execution_buttons.execution_actions(pair, n8n)
            if is_meant and (among is None or confirmation.short_job_name(n8n.executions.job(pair.id)) in among):
                found.setdefault(n8n.executions, []).append(pair.id)
    words = f"All executions listed as mismatches{f', {chosen.words}' if chosen else ''}, to which this can be done."
    words += f" {unlisted:,} more are not listed and not selected." if unlisted else ""
    return FilterSelection(tuple(_executions_part(wanted, ref, ids) for ref, ids in found.items()), words)


def _executions_part(wanted: ActionCommand, ref: QueueRef, ids: list[str]) -> QueueSelection:
    try:
        seen = runner.current_jobs(ref, tuple(ids))
        there = tuple(one for one in seen if one.state is not JobState.UNKNOWN)
        preview = runner.preview(replace(wanted, queue=ref, jobs=there)) if there else None
    except (Unsupported, Missing, StoreError) as error:
        return QueueSelection(ref, len(ids), why=str(error))
    return QueueSelection(ref, len(ids), preview, tuple(ref.job(one.id) for one in seen if one not in there))


def _part(wanted: ActionCommand, ref: QueueRef, lines: list[StuckJob]) -> QueueSelection:
    try:
        seen, missing = _seen(ref, lines)
        preview = runner.preview(replace(wanted, queue=ref, jobs=seen)) if seen else None
    except (Unsupported, Missing, StoreError) as error:
        return QueueSelection(ref, len(lines), why=str(error))
    return QueueSelection(ref, len(lines), preview, missing)


def _seen(ref: QueueRef, lines: list[StuckJob]) -> tuple[tuple[ExpectedJob, ...], tuple[JobRef, ...]]:
    queue = job_lists.locate(ref, state_cache.newest_snapshot())
    places = [(line.job.id, line.row.state if line.row else JobState.ACTIVE) for line in lines]
    rows = queue.reader.rows(queue.wire, ref, places)
    gone = tuple(line.job for line, row in zip(lines, rows, strict=True) if row is None)
    return tuple(ExpectedJob.of(row) for row in rows if row is not None), gone


def _note(inbox: StuckInbox | InboxUnavailable, chosen: StuckFilter) -> str:
    if isinstance(inbox, InboxUnavailable):
        return f"{inbox.text} So no job is selected."
    words = f"All jobs listed as stuck{f', {chosen.words}' if chosen else ''}."
    if unlisted := inbox.stuck - len(inbox.rows):
        words += (
            f" The list has the {len(inbox.rows):,} most urgent; {unlisted:,} more are not listed and not selected."
        )
    return words
