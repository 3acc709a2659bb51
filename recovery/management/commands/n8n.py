"""Compares n8n's jobs with its executions now, without a server or a scheduler.

Where a scheduler runs, what it remembers is used too: of some contradictions neither store says since when, and a
single comparison cannot report them.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from recovery import shared_clock
from recovery.config import Config
from recovery.domain.identifiers import printable
from recovery.domain.n8n.comparison import JobExecutionPair, N8nComparison
from recovery.domain.n8n.comparison_context import GRACE, REPORTED_AFTER
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.instances import InstanceHistory, concerns, summary
from recovery.domain.n8n.lost_executions import LostExecutionRecord
from recovery.domain.n8n.rescue import RescueOffer
from recovery.domain.time_units import SECOND, age
from recovery.errors import ConfigError, StoreError
from recovery.management import one_off_snapshot
from recovery.management.configuration import WRONG_CALL, load_configuration
from recovery.n8n import comparison_store, instance_store, lost_executions
from recovery.n8n.comparison import ComparisonRequest, compare
from recovery.stores.registry import ConnectionRegistry

UNREACHABLE = 4
_NONE = "No n8n is configured. Set UNSTALL_N8N_DATABASE_URL, or write [[n8n]] (docs/n8n.md)."


class Command(BaseCommand):
    help = (
        "Compare n8n's jobs with its executions, and list mismatches. "
        "Exit status: 0, 2 for a wrong call, 4 when a store does not answer or its tables are not known."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--mismatches", action="store_true", help="only mismatches")
        parser.add_argument(
            "--lost", action="store_true", help="instead the history of executions whose worker was late or lost"
        )
        parser.add_argument("--wait", action="store_true", help="check twice, 30 seconds apart: when no scheduler runs")

    def handle(self, *_: Any, **options: Any) -> None:
        config = load_configuration()
        if not config.n8n:
            raise CommandError(_NONE, returncode=WRONG_CALL)
        if options["lost"]:
            self._tell_losses(config, as_json=options["json"])
            return
        found, known = _look(ConnectionRegistry(config), GRACE / SECOND if options["wait"] else 0.0)
        matching = not options["mismatches"]
        written = [_table(truth, matching=matching) | _processes(known[truth.name]) for truth in found]
        texts = [_text(truth, matching=matching) + _processes_text(known[truth.name]) for truth in found]
        self.stdout.write(json.dumps({"n8n": written}, indent=2) if options["json"] else "\n\n".join(texts))
        faults = [f"{truth.name} cannot be compared: {printable(truth.fault)}" for truth in found if truth.fault]
        if faults:
            raise CommandError("\n".join(faults), returncode=UNREACHABLE)

    def _tell_losses(self, config: Config, *, as_json: bool) -> None:
        known, now = {one.name: one for one in config.n8n}, shared_clock.now()
        found = [
            (loss, lost_executions.offered(loss, known[loss.n8n], now))
            for loss in lost_executions.newest()
            if loss.n8n in known
        ]
        if as_json:
            written = [_loss(loss, offer) for loss, offer in found]
            self.stdout.write(json.dumps({"losses": written}, indent=2))
            return
        texts = [_loss_text(loss, offer, now) for loss, offer in found]
        self.stdout.write("\n\n".join(texts) or "No execution was seen whose worker was late or lost.")


def _loss(loss: LostExecutionRecord, offer: RescueOffer) -> dict[str, Any]:
    same = ("n8n", "execution", "workflow", "title", "noticed_at", "proven_at", "ended_at", "copied_at")
    return {
        **{name: getattr(loss, name) for name in same},
        "base": loss.job.queue.base,
        "job": loss.job.id,
        "verdict": loss.verdict.value,
        "worker": loss.worker or None,
        "cause": loss.cause or None,
        "outcome": loss.outcome.value,
        "retried_as": loss.retried_as or None,
        "copy_trouble": loss.copy_trouble or None,
        "rescue": offer.way.value or None,
        "rescue_open": offer.is_open,
        "rescue_first": offer.first,
        "rescue_last": offer.last,
        "rescue_text": offer.sentence,
    }


def _loss_text(loss: LostExecutionRecord, offer: RescueOffer, now: int) -> str:
    job = f"job {printable(loss.job.id)} {loss.verdict.value}"
    worker = f", worker {printable(loss.worker)}" if loss.worker else ""
    since = age(now - (loss.ended_at or loss.noticed_at))
    return (
        f"{loss.outcome.value}  {loss.n8n}: execution {printable(loss.execution)}  {printable(loss.title)}  "
        f"{since} ago\n"
        f"  was      {job}{worker}\n"
        f"  rescue   {offer.sentence}"
    )


def _look(registry: ConnectionRegistry, wait: float) -> tuple[list[N8nComparison], Mapping[str, InstanceHistory]]:
    """Compares each installation. With `wait` (seconds) it compares twice; the first time only finds candidates."""
    try:
        known = instance_store.read_all(registry, _processes_remembered(registry), shared_clock.now())
        found = _looked(registry, _remembered(registry), known)
        if wait:
            time.sleep(wait)
            found = _looked(registry, {truth.name: truth.young for truth in found}, known)
        return found, known
    finally:
        registry.close()


def _looked(
    registry: ConnectionRegistry, young: Mapping[str, Mapping[str, int]], known: Mapping[str, InstanceHistory]
) -> list[N8nComparison]:
    snapshot, now = one_off_snapshot.take_snapshot(registry), shared_clock.now()
    told = []
    for one in registry.config.n8n:
        version = instance_store.version_of(known.get(one.name))
        told.append(compare(registry, one, ComparisonRequest(snapshot, now, young.get(one.name, {}), version=version)))
    return told


def _remembered(registry: ConnectionRegistry) -> Mapping[str, Mapping[str, int]]:
    """Returns contradictions that the scheduler found before, and since when."""
    try:
        return {truth.name: truth.young for truth in comparison_store.fetch(registry.state())}
    except (ConfigError, StoreError):
        return {}


def _processes_remembered(registry: ConnectionRegistry) -> Mapping[str, InstanceHistory]:
    try:
        return instance_store.fetch(registry.state())
    except (ConfigError, StoreError):
        return {}


def _processes(known: InstanceHistory) -> dict[str, Any]:
    """Lists n8n's processes by its registry: those that are there, then those that ended."""
    here = [asdict(one) | {"ended_at": None, "ending": None} for one in known.instances]
    gone = [asdict(one.instance) | {"ended_at": one.at, "ending": one.ending.value or None} for one in known.gone]
    return {"instances": [*here, *gone], "concerns": list(concerns(known, known.checked_at))}


def _processes_text(known: InstanceHistory) -> str:
    told = [f"Processes: {printable(summary(known.instances))}."] if known.here else []
    lines = [*told, *map(printable, concerns(known, known.checked_at))]
    return "".join(f"\n{line}" for line in lines)


def _table(truth: N8nComparison, *, matching: bool) -> dict[str, Any]:
    numbers = ("checked_at", "took", "jobs", "executions", "parked", "elsewhere", "unsure_parents", "left_out")
    return {
        "name": truth.name,
        "deployment": truth.queue.deployment,
        "base": truth.queue.base,
        "fault": truth.fault or None,
        "release": truth.release.value,
        **{name: getattr(truth, name) for name in numbers},
        "fresh": truth.fresh(REPORTED_AFTER),
        "counts": {kind.value: count for kind, count in sorted(truth.counts.items())},
        "notes": list(truth.notes),
        "error_rates": None if truth.error_rates is None else [asdict(rate) for rate in truth.error_rates],
        "mismatches": [_row(pair) for pair in truth.pairs],
        **({"matching": [_row(pair) for pair in truth.matching]} if matching else {}),
    }


def _row(pair: JobExecutionPair) -> dict[str, Any]:
    claim, execution, finding = pair.claim, pair.execution, pair.finding
    return {
        "execution": pair.id,
        "workflow": pair.workflow,
        "title": pair.title,
        "status": execution.status.value if execution else None,
        "mode": execution.mode if execution else None,
        "began_at": execution.began_at if execution else None,
        "stopped_at": execution.stopped_at if execution else None,
        "base": claim.job.queue.base if claim else None,
        "job": claim.job.id if claim else None,
        "state": claim.state.value if claim else None,
        "locked": claim.is_locked if claim and claim.is_active and claim.lock_known else None,
        "holder": (claim.holder if claim else "") or None,
        "mismatch": finding.kind.value if finding else None,
        "since": finding.since if finding else None,
        "why": finding.why if finding else None,
        "fate": finding.fate if finding else None,
        "parent": (finding.parent if finding else "") or None,
        "repair": (finding.repair.value if finding else "") or None,
    }


def _text(truth: N8nComparison, *, matching: bool) -> str:
    if truth.fault:
        return f"{truth.name}: not compared."
    lines = [_summary(truth), *truth.notes]
    for pair in truth.pairs:
        lines += ["", *_paragraph(pair, truth.checked_at)]
    if truth.mismatches > len(truth.pairs):
        lines += ["", f"The {len(truth.pairs):,} worst of {truth.mismatches:,} are listed."]
    if truth.error_rates:
        lines += ["", "Failed in the last hour:", *(f"  {_failed(rate)}" for rate in truth.error_rates)]
    if matching and truth.matching:
        lines += ["", "Consistent:", *(f"  {_stands(pair)}" for pair in truth.matching)]
    return "\n".join(lines)


def _failed(rate: ErrorRate) -> str:
    title = printable(rate.title) or printable(rate.workflow) or "unknown workflow"
    return f"{rate.failed:,} of {rate.ended:,} ({rate.percent:.0f} %)  {title}"


def _summary(truth: N8nComparison) -> str:
    seen = f"{truth.jobs:,} jobs, {truth.executions:,} unfinished executions"
    counted = ", ".join(f"{count:,} {kind.value}" for kind, count in truth.counts.items()) or "no mismatch"
    fresh = truth.fresh(REPORTED_AFTER)
    young = f"; {fresh:,} new, to be confirmed in 30 seconds" if fresh else ""
    return f"{truth.name} ({truth.release.value}), {printable(truth.queue.base)}: {seen}: {counted}{young}."


def _paragraph(pair: JobExecutionPair, now: int) -> Sequence[str]:
    finding = pair.finding
    if finding is None:
        return ()
    since = f"  for {age(now - finding.since)}" if finding.since is not None else ""
    lines = [f"{finding.kind.value}  {_stands(pair)}{since}", f"  why      {printable(finding.why)}"]
    repair = [f"  repair   {finding.repair.value}"] if finding.repair else []
    return [*lines, f"  expected {printable(finding.fate)}", *repair]


def _stands(pair: JobExecutionPair) -> str:
    status = pair.execution.status.value if pair.execution else "not in the database"
    job = f"job {printable(pair.claim.job.id)} {pair.claim.state.value}" if pair.claim else "no job"
    return f"execution {printable(pair.id)} {status}, {job}  {printable(pair.title)}".rstrip()
