"""Runs a fire drill: kills a real worker of a disposable queue, and measures the time to recovery."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from recovery.actions.audit import audit_log
from recovery.config import current
from recovery.domain.drills.plan import DrillLibrary, DrillPlan, StopSignal, plan_warnings, problems
from recovery.domain.duration_parser import format_duration as spelled
from recovery.domain.duration_parser import parse_duration
from recovery.domain.identifiers import printable
from recovery.drills import location, runtimes
from recovery.drills import runner as drills_runner
from recovery.drills.cli_report import event_text, report_text
from recovery.drills.drill_orders import NOTE
from recovery.drills.runner import DrillEvent, DrillReport
from recovery.drills.workers import DrillWorkerNotStarted
from recovery.errors import BadOrder, ConfigError, Missing, NotRecorded, StoreError, Unsupported
from recovery.management import arguments
from recovery.management.arguments import REFUSED, UNREACHABLE, WRONG_CALL
from recovery.processes import up_environment
from recovery.processes.signals import StopRequest

INTERRUPTED = 130
BY_HAND = "Started from the shell."
_PLAN = DrillPlan()
_TIMES = {
    "lock": "lock duration",
    "renew": "lock renewal interval",
    "stalled-interval": "interval of the stalled check",
    "grace": "with TERM: grace period before SIGKILL",
    "shutdown": "with TERM: shutdown timeout of the worker",
    "job": "duration of the job",
    "wait": "run time of the job when its worker is stopped; random by default",
    "timeout": "timeout of a round",
}
_NUMBERS = {
    "max-stalled": "maxStalledCount",
    "concurrency": "concurrency of each worker",
    "workers": "processes",
    "rounds": "number of rounds",
}


class DrillInterrupted(Exception):
    """A signal interrupted the drill."""


class Command(BaseCommand):
    help = (
        "Measure the recovery time: stop a real worker in the middle of its job. Exit status: 0 the job was "
        "recovered each time, 2 for a wrong call, 3 when it was not, 4 when the store does not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--library", choices=[one.value for one in DrillLibrary], default=_PLAN.library.value)
        parser.add_argument(
            "--node-modules", default="", metavar="PATH", help="path of your library (default: NODE_PATH)"
        )
        for name, words in _TIMES.items():
            default = getattr(_PLAN, name.replace("-", "_"))
            said = f"{words} (default {spelled(default)})" if default is not None else words
            parser.add_argument(f"--{name}", type=_span, default=default, metavar="TIME", help=said)
        for name, words in _NUMBERS.items():
            default = getattr(_PLAN, name.replace("-", "_"))
            parser.add_argument(
                f"--{name}", type=int, default=default, metavar="N", help=f"{words} (default {default})"
            )
        parser.add_argument("--signal", choices=[one.value for one in StopSignal], default=StopSignal.KILL.value)
        parser.add_argument("--on", default="", metavar="DEPLOYMENT", help="in its Redis, not in our state store")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--follow", action="store_true", help="print events as JSON on stderr, one object per line")

    def handle(self, *_: Any, **given: Any) -> None:
        asked = Namespace(**given)
        plan = plan_of(asked)
        ending = StopRequest(lambda: os._exit(INTERRUPTED))  # our workers die with us, and the cleaner cleans up
        ending.listen()

        def rest(seconds: float) -> None:
            if ending.wait(seconds):
                raise DrillInterrupted

        try:
            found = self._run(asked, plan, rest)
        except DrillInterrupted:
            raise CommandError("Stopped and cleaned up.", returncode=INTERRUPTED) from None
        except (ConfigError, Missing, BadOrder, Unsupported) as error:
            raise CommandError(str(error), returncode=WRONG_CALL) from error
        except StoreError as error:
            raise CommandError(f"{error}. {error.advice}", returncode=UNREACHABLE) from error
        except (DrillWorkerNotStarted, NotRecorded) as error:
            raise CommandError(str(error), returncode=REFUSED) from error
        self._tell(asked, found)
        if not all(one.end.is_harmless for one in found.rounds):
            sys.exit(REFUSED)

    def _run(self, asked: Namespace, plan: DrillPlan, rest: Any) -> DrillReport:
        up_environment.adopt(Path(settings.DATA_DIR))
        program = runtimes.find(plan.library, asked.node_modules)
        where = location.deployment_of_drill(current(), asked.on)
        if asked.on:  # writes into a user's Redis are audited first
            audit_log.note(arguments.actor(), NOTE, BY_HAND, {"on": asked.on, "plan": plan.as_json()})
        if asked.follow:
            self._say(json.dumps({"version": program.version, "target": where.target}))
        else:
            self._say(f"{plan.library.label} {printable(program.version)} on {where.target}: {plan.workers} workers.")
            for doubt in plan_warnings(plan):
                self._say(doubt)
        tell = self._follow if asked.follow else self._event
        return drills_runner.run(plan, program, where, asked.on, rest=rest, tell=tell)

    def _event(self, event: DrillEvent) -> None:
        if text := event_text(event):
            self._say(text)

    def _follow(self, event: DrillEvent) -> None:
        told = {"number": event.number, "what": event.what, "at": event.at}
        self._say(json.dumps(told | ({"round": event.round.as_json()} if event.round else {})))

    def _say(self, line: str) -> None:
        """Writes a line at once: it is read while the drill runs."""
        self.stderr.write(line, lambda text: text)
        self.stderr.flush()

    def _tell(self, asked: Namespace, found: DrillReport) -> None:
        if asked.follow:
            self._say(json.dumps({"cleaned": found.cleaned, "says": " ".join(filter(None, (found.says, found.left)))}))
        if asked.json:
            self.stdout.write(json.dumps(drills_runner.as_json(found), indent=2))
        elif not asked.follow:
            self.stdout.write(report_text(found))


def plan_of(asked: Namespace) -> DrillPlan:
    """Returns the plan of these arguments. Raises CommandError."""
    names = [name.replace("-", "_") for name in (*_TIMES, *_NUMBERS)]
    plan = DrillPlan(
        library=DrillLibrary(asked.library),
        means=StopSignal(asked.signal),
        **{name: getattr(asked, name) for name in names},
    )
    if wrong := problems(plan):
        lines = [f"--{name.replace('_', '-')}: {words}" for name, words in wrong.items()]
        raise CommandError("\n".join(lines), returncode=WRONG_CALL)
    return plan


def _span(written: str) -> int:
    try:
        return parse_duration(written)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
