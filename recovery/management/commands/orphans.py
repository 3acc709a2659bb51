"""Lists everything that is stuck, by a pass of its own that needs neither a server nor a scheduler.

Where a scheduler runs, what it remembers of the jobs is used too: on Bull and BullMQ up to 4 a single pass cannot prove
that a job without a lock is an orphan.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from recovery import shared_clock
from recovery.config import Config
from recovery.domain.identifiers import printable
from recovery.domain.queues.types import Snapshot
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import StuckJob
from recovery.domain.time_units import age
from recovery.management import one_off_snapshot
from recovery.management.configuration import load_configuration
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.stores.registry import ConnectionRegistry

UNREACHABLE = 4


class Command(BaseCommand):
    help = (
        "List all stuck jobs with their verdicts. Exit status: 0, 2 for a wrong call, 4 when a store does not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        config = load_configuration()
        snapshot, inbox = _look(config)
        self.stdout.write(_json(inbox) if options["json"] else _text(inbox))
        troubles = [one_off_snapshot.trouble(one) for one in snapshot.deployments if one.error]
        troubles += [
            f"{printable(str(tally.queue))} cannot be read: {tally.error}." for tally in inbox.queues if tally.error
        ]
        if troubles:
            raise CommandError("\n".join(troubles), returncode=UNREACHABLE)


def _look(config: Config) -> tuple[Snapshot, StuckInbox]:
    """Discovers everything, counts once, and judges what is active."""
    registry = ConnectionRegistry(config)
    try:
        snapshot = one_off_snapshot.take_snapshot(registry)
        return snapshot, OrphanWatch(registry, lambda: snapshot, writes=False).look(shared_clock.now())
    finally:
        registry.close()


def _json(inbox: StuckInbox) -> str:
    """Returns the inbox as JSON. `base` and `job` keep every byte: what is no UTF-8 is an escaped lone surrogate."""
    return json.dumps(
        {
            "checked_at": inbox.checked_at,
            "looked": inbox.looked,
            "stuck": inbox.stuck,
            "needing_a_person": inbox.people,
            "counts": {kind.value: count for kind, count in sorted(inbox.counts.items())},
            "orphans": [_row(stuck) for stuck in inbox.rows],
            "queues": [_queue(tally) for tally in inbox.queues],
            "faults": list(inbox.faults),
        },
        indent=2,
    )


def _row(stuck: StuckJob) -> dict[str, Any]:
    verdict, row = stuck.verdict, stuck.row
    return {
        "deployment": stuck.job.queue.deployment,
        "base": stuck.job.queue.base,
        "job": stuck.job.id or None,
        "execution": stuck.execution or None,
        "name": stuck.name,
        "verdict": verdict.kind.value,
        "since": stuck.since,
        "why": verdict.why,
        "cause": verdict.cause.value or None,
        "cause_evidence": verdict.cause_evidence or None,
        "fate": verdict.fate,
        "until": verdict.until,
        "rescuer": verdict.rescuer.value if verdict.rescuer else None,
        "needs_a_person": verdict.needs_a_person,
        "suggests": verdict.suggests.value if verdict.suggests else None,
        "quarantined": verdict.is_quarantined,
        "orphaned": verdict.orphaned,
        "holder": stuck.holder or None,
        "server": stuck.server or None,
        "started_at": row.processed_at if row else None,
        "stalls": row.stalls if row else None,
    }


def _queue(tally: StuckTally) -> dict[str, Any]:
    watchdog = tally.watchdog
    return {
        "deployment": tally.queue.deployment,
        "base": tally.queue.base,
        "looked": tally.looked,
        "left_out": tally.left_out,
        "stuck": tally.stuck,
        "counts": {kind.value: count for kind, count in sorted(tally.kinds.items())},
        "stalled_check": {
            "is_dead": watchdog.is_dead,
            "seen_at": watchdog.seen_at,
            "interval": watchdog.interval,
            "recovers_within": watchdog.recovers_within,
        },
        "error": tally.error or None,
    }


def _text(inbox: StuckInbox) -> str:
    """Returns a line for each stuck job, and below it what to know before an action."""
    lines = [_summary(inbox)]
    for stuck in inbox.rows:
        lines += ["", *_paragraph(stuck, inbox.checked_at)]
    if len(inbox.rows) < inbox.stuck:
        lines += ["", f"The {len(inbox.rows):,} most urgent of {inbox.stuck:,} are listed."]
    lines += ["", *(printable(fault) for fault in inbox.faults)] if inbox.faults else []
    return "\n".join(lines)


def _summary(inbox: StuckInbox) -> str:
    looked = f"{inbox.looked:,} active job{'s' * (inbox.looked != 1)} checked"
    if not inbox.stuck:
        return f"{looked}: nothing is stuck{' in what could be checked' if inbox.faults else ''}."
    counted = ", ".join(f"{count:,} {kind.value}" for kind, count in inbox.counts.items() if kind.urgency)
    return f"{looked}: {counted}."


def _paragraph(stuck: StuckJob, now: int) -> Sequence[str]:
    verdict = stuck.verdict
    name = f"  {printable(stuck.name)}" if stuck.name else ""
    quarantined = ", quarantined" if verdict.is_quarantined else ""
    what = stuck.job if stuck.has_job else f"{stuck.job.queue} execution {stuck.execution}"
    head = f"{verdict.kind.value}{quarantined}  {printable(str(what))}{name}  for {age(now - stuck.since)}"
    because = f" Cause: {verdict.cause or 'unknown'}, {verdict.cause_evidence}" if verdict.cause_evidence else ""
    lines = [head, f"  why      {printable(verdict.why + because)}", f"  expected {printable(verdict.fate)}"]
    return [*lines, f"  suggest  {verdict.suggests}"] if verdict.suggests else lines
