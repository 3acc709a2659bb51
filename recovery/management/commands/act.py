"""Runs an action from the shell as a button does: the same rules, the same scripts, the same audit."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from recovery.actions import precheck, runner
from recovery.actions.bulk import job_selection
from recovery.actions.bulk.job_selection import BulkSelection
from recovery.actions.catalog import ENTRIES
from recovery.actions.runner import ActionDryRun
from recovery.config import current
from recovery.domain.actions.types import (
    AFFECTED_LISTED,
    Action,
    ActionCommand,
    ActionOptions,
    ActionPrecheck,
    ExpectedJob,
    JobResult,
    JobSideEffect,
    Outcome,
)
from recovery.domain.identifiers import printable, visible
from recovery.domain.jobs import JobState
from recovery.errors import (
    BadOrder,
    ConfigError,
    Forbidden,
    Missing,
    NotRecorded,
    StoreError,
    UnstallError,
    Unsupported,
)
from recovery.management import arguments
from recovery.management.arguments import REFUSED, UNREACHABLE, WRONG_CALL
from recovery.management.configuration import load_configuration

SHOWN = 20  # refusals printed before the question: a screen
_STATUSES: Sequence[tuple[type[UnstallError] | tuple[type[UnstallError], ...], int]] = (
    (StoreError, UNREACHABLE),
    ((ConfigError, BadOrder, Missing), WRONG_CALL),
    ((Unsupported, Forbidden, NotRecorded), REFUSED),
)


class Command(BaseCommand):
    help = (
        "Run an action on jobs or on a queue, like the buttons of the pages. Exit status: 0 all done, 2 for a wrong "
        "call, "
        "3 when something was refused, 4 when a store does not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        acts = [act.value for act in Action if act is not Action.RESTORE]
        parser.add_argument("action", choices=acts, metavar="ACTION", help=", ".join(acts))
        parser.add_argument("--queue", required=True, metavar="[DEPLOYMENT/]BASE")
        parser.add_argument("--job", action="append", default=[], metavar="ID", help="can be repeated")
        parser.add_argument("--all", metavar="STATE", help="every job of a state, or of a verdict (orphan, …)")
        parser.add_argument("--reason", required=True, metavar="TEXT", help="reason, recorded in the audit log")
        parser.add_argument("--name", default="", help="with --all: only jobs of this name")
        parser.add_argument("--error", default="", help="with --all: only failures of this signature")
        parser.add_argument(
            "--dry-run", action="store_true", help="dry run: print what would happen and change nothing"
        )
        parser.add_argument(
            "--force", action="store_true", help="also when the job is quarantined or its worker is still connected"
        )
        parser.add_argument("--consent", action="store_true", help="n8n: the workflow may run twice")
        parser.add_argument("--mark", action="store_true", help="retry-execution: mark it as crashed first")
        parser.add_argument(
            "--latest", action="store_true", help="retry-execution, rescue: with the currently saved workflow"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--requeue", action="store_true", help="release: and back to wait at once")
        parser.add_argument("--children", action="store_true", help="remove: with the children that name it as parent")
        parser.add_argument("--other-queues", action="store_true", help="also change jobs of other queues")
        parser.add_argument(
            "--reset", action="store_true", help="requeue, retry: reset the stalled counter and the attempts"
        )
        parser.add_argument("--rerun-completed", action="store_true", help="retry: jobs that have completed, too")
        parser.add_argument(
            "--directly", action="store_true", help="fail: even if a live worker's stalled check would do it"
        )
        parser.add_argument("--older-than", type=_natural, default=0, metavar="SECONDS", help="clean")
        parser.add_argument("--limit", type=_natural, default=0, metavar="N", help="clean: limit (0 = none)")
        parser.add_argument("--delayed", action="store_true", help="drain: delayed jobs too")

    def handle(self, *_: Any, **given: Any) -> None:
        asked = Namespace(**given)
        load_configuration()
        try:
            self._run(asked)
        except UnstallError as error:
            raise CommandError(visible(str(error)), returncode=_status(error)) from error

    def _run(self, asked: Namespace) -> None:
        order = _order(asked)
        parts = list(_parts(*_chosen(asked, order)))
        is_asked = not asked.yes and sys.stdin.isatty()
        previews = [runner.preview(part) for part in parts] if asked.dry_run or is_asked else []
        if asked.dry_run:
            self._tell(asked, order, [_foretold(one) for preview in previews for one in preview.judgements])
            return
        if previews and not self._confirmed(order, previews):
            raise CommandError("Nothing was done.", returncode=REFUSED)
        self._tell(asked, order, list(_results(order, parts)))

    def _confirmed(self, order: ActionCommand, previews: Sequence[ActionDryRun]) -> bool:
        """Shows on a terminal what would happen and the risk, and asks; for many jobs, or where the action is
        dangerous, the queue's name has to be typed.
        """
        can = sum(preview.can for preview in previews)
        refused = [one for preview in previews for one in preview.judgements if not one.is_allowed]
        for one in refused[:SHOWN]:
            self.stderr.write(visible(f"refused: {printable(one.id)}: {one.why}"))
        if len(refused) > SHOWN:
            self.stderr.write(f"refused: {len(refused) - SHOWN:,} more")
        for one in [one for preview in previews for one in preview.judgements if one.is_allowed]:
            for line in _along(one.effects.affected):
                self.stderr.write(f"with {printable(one.id)}: {line}")
        for risk in dict.fromkeys(preview.risk for preview in previews if preview.risk):
            self.stderr.write(visible(f"risk: {risk}"))
        if not can:
            return True
        self.stderr.write(_question(order, previews, can))
        many = can + sum(preview.relatives for preview in previews) >= runner.NAMED_FROM
        if many or any(preview.needs_name for preview in previews):
            return _answer(f"Type {order.queue.label} to continue: ") == order.queue.label
        return _answer("Continue? [y/N] ").lower() in ("y", "yes")

    def _tell(self, asked: Namespace, order: ActionCommand, results: Sequence[JobResult]) -> None:
        if asked.json:
            document: dict[str, Any] = {"action": order.act.value, "queue": str(order.queue)}
            document |= {"dry_run": True} if asked.dry_run else {}
            self.stdout.write(json.dumps(document | {"results": [one.as_json() for one in results]}, indent=2))
        else:
            for one in results:
                self.stdout.write(visible(_line(order, one, dry=asked.dry_run)))
                for line in _along(one.affected):
                    self.stdout.write(f"  with it: {line}")
        came_to = {one.outcome for one in results}
        if Outcome.UNKNOWN in came_to:
            sys.exit(UNREACHABLE)
        if came_to - {Outcome.DONE, Outcome.UNCHANGED}:
            sys.exit(REFUSED)


def _order(asked: Namespace) -> ActionCommand:
    act = Action(asked.action)
    _fits(act, asked)
    options = ActionOptions(
        force=asked.force,
        consent=asked.consent,
        reset_stalls=asked.reset,
        reset_attempts=asked.reset,
        rerun_completed=asked.rerun_completed,
        requeue=asked.requeue,
        directly=asked.directly,
        mark=asked.mark,
        latest=asked.latest,
        state=_state(asked.all) if act is Action.CLEAN else None,
        older_than=asked.older_than * 1000,
        limit=asked.limit,
        delayed=asked.delayed,
        children=asked.children,
        other_queues=asked.other_queues,
    )
    return ActionCommand(act, arguments.queue(asked.queue, current()), arguments.actor(), asked.reason, options=options)


def _fits(act: Action, asked: Namespace) -> None:
    """Refuses jobs given twice or not at all, and jobs given for an action on the whole queue."""
    if act is Action.CLEAN:
        if asked.job or not asked.all:
            raise BadOrder("Give the state to clean with --all.")
    elif ENTRIES[act].is_for_queue:
        if asked.job or asked.all:
            raise BadOrder(f"{act} applies to the whole queue and takes neither --job nor --all.")
    elif bool(asked.job) == bool(asked.all):
        raise BadOrder("Give jobs with --job, or all jobs of a state with --all.")


def _state(written: str) -> JobState:
    if written not in set(JobState) - {JobState.UNKNOWN}:
        raise BadOrder(f"{written!r} is not a job state.")
    return JobState(written)


def _natural(written: str) -> int:
    value = int(written)
    if value < 0:
        raise ValueError(written)
    return value


def _chosen(asked: Namespace, order: ActionCommand) -> tuple[ActionCommand, Iterable[ExpectedJob]]:
    """Returns the selected jobs, and the order with the options that the selection implies."""
    if ENTRIES[order.act].is_for_queue:
        return order, []
    if asked.job:
        return order, runner.current_jobs(order.queue, tuple(asked.job))
    chosen = BulkSelection.all(asked.all, precheck.now(), name=asked.name, error=asked.error)
    order = replace(order, options=chosen.implied(order.options))
    return order, list(job_selection.iterate_jobs(precheck.build_context(order.queue, order.act), chosen))


def _parts(order: ActionCommand, jobs: Iterable[ExpectedJob]) -> Iterator[ActionCommand]:
    """Yields orders of as many jobs as go at once; an action on a queue is one order."""
    if ENTRIES[order.act].is_for_queue:
        yield order
        return
    rest = iter(jobs)
    while part := tuple(islice(rest, runner.AT_ONCE)):
        yield replace(order, jobs=part)


def _results(order: ActionCommand, parts: Sequence[ActionCommand]) -> Iterator[JobResult]:
    """Yields the results. An error before anything was done is raised; later it is the result of the jobs not tried."""
    if ENTRIES[order.act].in_steps:
        yield runner.sweep(order)
        return
    for number, part in enumerate(parts):
        try:
            yield from runner.perform(part)
        except (StoreError, NotRecorded) as error:
            if not number:
                raise
            outcome = Outcome.UNKNOWN if isinstance(error, StoreError) else Outcome.REFUSED
            for rest in parts[number:]:
                yield from (JobResult(seen.id, outcome, f"Not tried: {error}") for seen in rest.jobs)
            return


def _foretold(judgement: ActionPrecheck) -> JobResult:
    """Returns the result that a dry run predicts."""
    outcome = Outcome.DONE if judgement.is_allowed else judgement.outcome
    why = judgement.risk if judgement.is_allowed else judgement.why
    return JobResult(judgement.id, outcome, why, affected=judgement.effects.affected)


def _along(affected: Sequence[JobSideEffect]) -> Iterator[str]:
    """Yields the other jobs that change with one, and how; of very many the first."""
    for one in affected[:AFFECTED_LISTED]:
        yield f"{one.job.queue.label} {one.job.label} {one.change}"
    if len(affected) > AFFECTED_LISTED:
        yield f"and {len(affected) - AFFECTED_LISTED:,} more"


def _question(order: ActionCommand, previews: Sequence[ActionDryRun], can: int) -> str:
    if ENTRIES[order.act].is_for_queue:
        return previews[0].question
    entry = ENTRIES[order.act]
    return f"{entry.label} {entry.counted(can)} of {order.queue.label}?"


def _line(order: ActionCommand, result: JobResult, *, dry: bool) -> str:
    name = printable(result.job) if result.job else order.queue.label
    said = f"would be {ENTRIES[order.act].done}" if dry and result.outcome is Outcome.DONE else result.outcome.value
    entry = f" (#{result.audit})" if result.audit else ""
    return f"{name}: {said}{': ' * bool(result.why)}{result.why}{entry}"


def _answer(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        return ""


def _status(error: UnstallError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), REFUSED)
