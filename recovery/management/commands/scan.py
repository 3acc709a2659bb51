"""Runs a scanner once by hand, with the same policies, safety limits and audit as a scheduled run.

It takes no lease: the leader goes on leading. The run acts in the leader's term, and so changes nothing once another
scheduler leads. With --dry-run it changes nothing, and no leader is needed.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from recovery import shared_clock
from recovery.actions import scanner_control
from recovery.config import Config
from recovery.domain.actions.types import Outcome
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.scanners.types import ScannerFinding, ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.errors import BadOrder, ConfigError, Missing, NotRecorded, StoreError, UnstallError
from recovery.management import arguments, one_off_snapshot
from recovery.management.arguments import REFUSED, UNREACHABLE, WRONG_CALL
from recovery.management.configuration import load_configuration
from recovery.models import ScanRun
from recovery.scanners import other_consoles
from recovery.scanners.registry import ScannerRegistry, sweep_at_worker_start
from recovery.scanners.runtime.run_recorder import ScannerRunRecorder
from recovery.scanners.runtime.scanner_runner import ScannerFunction, ScannerRunner, ScannerRunRequest
from recovery.scheduler.lease_row import LeaseRecord, LeaseRow
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.registry import registry as shared

NOBODY_KNOWS = "The leader cannot be read from the database ({error}), so nothing is changed. --dry-run does a dry run."
SURE_FOR = 1.0  # seconds until the leader is read again
SHOWN = 200  # finds printed as text; --json has all
_HARMLESS = (None, Outcome.DONE, Outcome.UNCHANGED)


class Command(BaseCommand):
    help = (
        "Run a scanner once. Exit status: 0, 2 for a wrong call, 3 when something was refused or held back, "
        "4 when a store does not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = [scan.value for scan in ScannerKind if scan.can_be_ordered]
        parser.add_argument("scanner", choices=names, metavar="NAME", help=", ".join(names))
        parser.add_argument("--queue", default="", metavar="[DEPLOYMENT/]BASE", help="only this one")
        parser.add_argument(
            "--table", default="", metavar="[DATABASE/]NAME", help="startup-sweep: the table whose worker starts"
        )
        parser.add_argument("--owner", default="", metavar="NAME", help="with --table: only rows of this owner")
        parser.add_argument("--dry-run", action="store_true", help="dry run, regardless of the policies")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **given: Any) -> None:
        asked, config = Namespace(**given), load_configuration()
        try:
            scan, queue = ScannerKind(asked.scanner), _place(asked, config)
            leader_token = None if asked.dry_run or asked.table else _leader_token()
            chosen = _chosen(asked, scan, leader_token)
            report, run = _run(scan, chosen.run, ScannerRunRequest(asked.dry_run, queue), leader_token)
        except UnstallError as error:
            raise CommandError(str(error), returncode=_status(error)) from error
        except Error as error:
            raise CommandError(f"The database answered {type(error).__name__}.", returncode=UNREACHABLE) from error
        self.stdout.write(_json(scan, asked, report, run) if asked.json else _text(scan, report))
        faults = [*chosen.troubles, *(report.faults if not report.looked else ())]
        if faults:
            raise CommandError("\n".join(map(printable, dict.fromkeys(faults))), returncode=UNREACHABLE)
        if report.holds or any(find.outcome not in _HARMLESS for find in report.finds):
            sys.exit(REFUSED)


def _place(asked: Namespace, config: Config) -> QueueRef | None:
    if asked.queue and asked.table:
        raise BadOrder("Write --queue or --table, not both.")
    if asked.table:
        if asked.scanner != ScannerKind.STARTUP_SWEEP:
            raise BadOrder("--table is for startup-sweep.")
        return arguments.job_table(asked.table, config)
    return arguments.queue(asked.queue, config) if asked.queue else None


def _leader_token() -> LeaderToken:
    try:
        leader = _Leader()
    except Error as error:
        raise NotRecorded(NOBODY_KNOWS.format(error=type(error).__name__)) from error
    rival = partial(other_consoles.rival_console, shared(), leader.installation)
    return LeaderToken(leader.epoch, leader.is_the_same, leader.installation, rival)


class _Leader:
    """Reads the leader, or the last one, from the database. A run by hand acts in its term until another scheduler
    leads.
    """

    def __init__(self) -> None:
        """Reads the present term. Raises Error of the database."""
        tenure = self._ask()
        self.epoch, self.installation = tenure.epoch, tenure.installation
        self._sure_until = time.monotonic() + SURE_FOR

    def is_the_same(self) -> bool:
        if time.monotonic() < self._sure_until:
            return True
        try:
            same = self._ask().epoch == self.epoch
        except Error:
            return False
        self._sure_until = time.monotonic() + (SURE_FOR if same else 0)
        return same

    @staticmethod
    def _ask() -> LeaseRecord:
        row = LeaseRow()
        try:
            return row.read()
        finally:
            row.close()


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The run to start, and what could not be read before it."""

    run: ScannerFunction
    troubles: tuple[str, ...] = ()


def _chosen(asked: Namespace, scan: ScannerKind, leader_token: LeaderToken | None) -> _Chosen:
    """Prepares the run with a snapshot and the scanners. A startup sweep needs its table only."""
    registry = shared()
    if asked.table:
        return _Chosen(_started(registry, asked.owner))
    snapshot = one_off_snapshot.take_snapshot(registry)
    crew = ScannerRegistry(registry, lambda: snapshot, leader_token, writes=not asked.dry_run)
    if scan not in crew.scans:
        raise BadOrder(f"{scan.value} has nothing to check: no table is configured.")
    silent = [one for one in snapshot.deployments if one.error] if scan.may_act else []
    return _Chosen(
        crew.run_of(scan), tuple(f"{one.name} ({one.target}) does not answer: {one.error}." for one in silent)
    )


def _started(registry: ConnectionRegistry, owner: str) -> ScannerFunction:
    def run(now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport:
        return sweep_at_worker_start(registry, queue, owner=owner, dry_run=dry_run) if queue else ScannerReport()

    return run


def _run(
    scan: ScannerKind, run: ScannerFunction, asked: ScannerRunRequest, leader_token: LeaderToken | None
) -> tuple[ScannerReport, int | None]:
    row = _row(scan, asked, leader_token)
    epoch = leader_token.epoch if leader_token else None
    turn = ScannerRunner(scan, run, ScannerRunRecorder(shared(), epoch))
    report = turn.run(_now(), row, asked)
    if turn.failure:
        raise turn.failure
    return report or ScannerReport(), row.pk if row else None


def _row(scan: ScannerKind, asked: ScannerRunRequest, leader_token: LeaderToken | None) -> ScanRun | None:
    """Records the run in the database and returns its row; None for a dry run that cannot be recorded."""
    try:
        epoch = leader_token.epoch if leader_token else None
        return scanner_control.start_from_shell(arguments.actor(), scan, asked.dry_run, asked.queue, epoch)
    except NotRecorded:
        if asked.dry_run:
            return None
        raise


def _status(error: UnstallError) -> int:
    if isinstance(error, StoreError):
        return UNREACHABLE
    return WRONG_CALL if isinstance(error, ConfigError | BadOrder | Missing) else REFUSED


def _json(scan: ScannerKind, asked: Namespace, report: ScannerReport, run: int | None) -> str:
    return json.dumps(
        {
            "scanner": scan.value,
            "dry_run": asked.dry_run,
            "run": run,
            "looked": report.looked,
            "found": report.found,
            "acted": report.acted,
            "refused": report.refused,
            "holds": list(report.holds),
            "faults": list(report.faults),
            "finds": [_find(find) for find in report.finds],
        },
        indent=2,
    )


def _find(find: ScannerFinding) -> dict[str, Any]:
    """Returns a find for JSON. `base` and `job` keep every byte: what is no UTF-8 is the escape of a lone surrogate."""
    return {
        "deployment": find.job.queue.deployment,
        "base": find.job.queue.base,
        "job": find.job.id,
        "what": find.what,
        "policy": find.policy,
        "act": find.act.value if find.act else None,
        "outcome": find.outcome.value if find.outcome else None,
        "why": find.why,
        "audit": find.audit,
    }


def _text(scan: ScannerKind, report: ScannerReport) -> str:
    lines = [f"{scan.value}: {report.looked:,} checked, {report.found:,} matched, {report.acted:,} changed."]
    lines += [f"held: {hold}" for hold in report.holds] + [f"fault: {fault}" for fault in report.faults]
    lines += [_line(find) for find in report.finds[:SHOWN]]
    if len(report.finds) > SHOWN:
        lines.append(f"{len(report.finds) - SHOWN:,} more; --json has all.")
    return shown_lines(lines)


def _line(find: ScannerFinding) -> str:
    name = str(find.job) if find.job.id else str(find.job.queue)
    did = f"{find.act.value}: {find.outcome.value}" if find.act and find.outcome else "not changed"
    entry = f" (#{find.audit})" if find.audit else ""
    return " ".join(part for part in (f"{name}: {find.what} {did}{entry}.", find.why, find.policy) if part)


def shown_lines(lines: Sequence[str]) -> str:
    return "\n".join(map(printable, lines))


def _now() -> int:
    return shared_clock.now()
