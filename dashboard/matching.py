"""Previews an action on all listed stuck jobs, or executions of n8n's table, that match a filter; each is read afresh,
by queue.

A queue that cannot be read, or not be changed in this way, is reported; the action on the others is still possible.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from dashboard import confirmation, n8n_buttons
from dashboard.inbox import Filter
from dashboard.live import mirror
from dashboard.n8n_cells import PairFilter
from recovery.actions import runner
from recovery.actions.catalog import ENTRIES
from recovery.actions.runner import Preview
from recovery.connections.registry import registry
from recovery.domain.acting import Order, Seen
from recovery.domain.inbox import Inbox
from recovery.domain.jobs import State
from recovery.domain.refs import JobRef, QueueRef
from recovery.domain.verdicts import Kind, Stuck
from recovery.errors import Missing, StoreError, Unsupported
from recovery.reads import lists, stuck
from recovery.reads.n8n import truths
from recovery.reads.stuck import InboxUnavailable


@dataclass(frozen=True, slots=True)
class Part:
    """Share of one queue: how many jobs of it match, and its preview, or `why` there is none."""

    queue: QueueRef
    count: int
    preview: Preview | None = None
    missing: tuple[JobRef, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """Shares of all queues. `note` says which jobs are meant, and which are not."""

    parts: tuple[Part, ...]
    note: str


def look(wanted: Order, chosen: Filter | PairFilter, among: Collection[str] | None) -> Look:
    """Previews the action of `wanted` on all that match. `among`: the jobs that were shown; later ones are not meant.

    Raises Forbidden.
    """
    entry = ENTRIES[wanted.act]
    runner.require(wanted.actor, f"{entry.label} of all that match", entry.right(many=True))
    if isinstance(chosen, PairFilter):
        return _executions(wanted, chosen, among)
    looked = stuck.looked()
    inbox = looked if isinstance(looked, Inbox) else None
    found: dict[QueueRef, list[Stuck]] = {}
    for line in inbox.rows if inbox else ():
        is_meant = line.verdict.kind is not Kind.N8N and chosen.holds(line)
        if is_meant and (among is None or confirmation.name(line.job) in among):
            found.setdefault(line.job.queue, []).append(line)
    return Look(tuple(_part(wanted, ref, lines) for ref, lines in found.items()), _note(looked, chosen))


def _executions(wanted: Order, chosen: PairFilter, among: Collection[str] | None) -> Look:
    """Previews the action on the listed mismatches of n8n's tables that it fits."""
    found: dict[QueueRef, list[str]] = {}
    unlisted, known = 0, {one.name: one for one in registry().config.n8n}
    for truth in truths.newest():
        n8n = known.get(truth.name)
        if n8n is None or truth.fault or truths.is_old(truth):
            continue
        unlisted += truth.mismatches - len(truth.pairs)
        for pair in truth.pairs:
            is_meant = chosen.holds(truth, pair) and wanted.act in n8n_buttons.of_executions(pair, n8n)
            if is_meant and (among is None or confirmation.name(n8n.executions.job(pair.id)) in among):
                found.setdefault(n8n.executions, []).append(pair.id)
    words = f"All executions listed as mismatches{f', {chosen.words}' if chosen else ''}, to which this can be done."
    words += f" {unlisted:,} more are not listed and not selected." if unlisted else ""
    return Look(tuple(_executions_part(wanted, ref, ids) for ref, ids in found.items()), words)


def _executions_part(wanted: Order, ref: QueueRef, ids: list[str]) -> Part:
    try:
        seen = runner.seen(ref, tuple(ids))
        there = tuple(one for one in seen if one.state is not State.UNKNOWN)
        preview = runner.preview(replace(wanted, queue=ref, jobs=there)) if there else None
    except (Unsupported, Missing, StoreError) as error:
        return Part(ref, len(ids), why=str(error))
    return Part(ref, len(ids), preview, tuple(ref.job(one.id) for one in seen if one not in there))


def _part(wanted: Order, ref: QueueRef, lines: list[Stuck]) -> Part:
    try:
        seen, missing = _seen(ref, lines)
        preview = runner.preview(replace(wanted, queue=ref, jobs=seen)) if seen else None
    except (Unsupported, Missing, StoreError) as error:
        return Part(ref, len(lines), why=str(error))
    return Part(ref, len(lines), preview, missing)


def _seen(ref: QueueRef, lines: list[Stuck]) -> tuple[tuple[Seen, ...], tuple[JobRef, ...]]:
    queue = lists.locate(ref, mirror.newest())
    places = [(line.job.id, line.row.state if line.row else State.ACTIVE) for line in lines]
    rows = queue.reader.rows(queue.wire, ref, places)
    gone = tuple(line.job for line, row in zip(lines, rows, strict=True) if row is None)
    return tuple(Seen.of(row) for row in rows if row is not None), gone


def _note(inbox: Inbox | InboxUnavailable, chosen: Filter) -> str:
    if isinstance(inbox, InboxUnavailable):
        return f"{inbox.text} So no job is selected."
    words = f"All jobs listed as stuck{f', {chosen.words}' if chosen else ''}."
    if unlisted := inbox.stuck - len(inbox.rows):
        words += (
            f" The list has the {len(inbox.rows):,} most urgent; {unlisted:,} more are not listed and not selected."
        )
    return words
