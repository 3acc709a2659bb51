"""Analyzes the files of a deployment: what happens to jobs whose worker is stopped or killed, with a patch and
predictions.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from recovery import shared_clock
from recovery.domain.n8n.versions import Version, parse
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.tuning.observed import ObservedSettings
from recovery.domain.tuning.report import TuningReport, report
from recovery.domain.tuning.timing import LOCK, WorkerTiming
from recovery.domain.tuning.worker_setup import TuningOptions
from recovery.errors import Illegible
from recovery.management import one_off_snapshot
from recovery.management.configuration import WRONG_CALL, load_configuration
from recovery.stores.registry import registry
from recovery.tuning import cli_report, running_queues
from recovery.tuning.parsers.deployment_files import parse_files
from recovery.tuning.parsers.uploads import FILE_LIMIT
from recovery.tuning.parsers.yaml_source import duration

GRAVE = 3
_LIBRARIES = (QueueLibrary.BULL.value, QueueLibrary.BULLMQ.value)


class Command(BaseCommand):
    help = (
        "Read environment files, compose files and Kubernetes manifests, and report what they mean for jobs whose "
        "worker "
        "is stopped or killed. Nothing is changed, and no Redis is read without --running. Exit status: 0, 3 when "
        "a serious problem is found, 2 for a wrong call or a file that cannot be read."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", metavar="FILE", help="- reads standard input")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--patch", action="store_true", help="print only the patch, for `patch -p1` or `git apply`")
        parser.add_argument("--running", action="store_true", help="also check the configured queues")
        parser.add_argument("--n8n-version", metavar="V", help="n8n version, when no image tag shows it")
        parser.add_argument("--worker", default="", metavar="NAME", help="the service or container that runs the jobs")
        parser.add_argument("--library", choices=_LIBRARIES, help="library of workers that set their options in code")
        for name, what in (("lock", "lockDuration"), ("renew", "lockRenewTime"), ("stalled", "stalledInterval")):
            parser.add_argument(f"--{name}", metavar="TIME", help=f"its {what}: 30s, 500ms, 1m")
        parser.add_argument("--max-stalled", type=int, default=1, metavar="N", help="its maxStalledCount")
        parser.add_argument("--shutdown", metavar="TIME", help="its shutdown timeout after SIGTERM")

    def handle(self, *_: Any, **options: Any) -> None:
        if not options["files"] and not options["running"] and not options["library"]:
            raise CommandError("Give files, --running or --library.", returncode=WRONG_CALL)
        try:
            given = parse_files((name, _content(name)) for name in options["files"])
        except Illegible as error:
            raise CommandError(str(error), returncode=WRONG_CALL) from error
        seen = _running() if options["running"] else None
        found = report(given, _options(options), seen)
        self.stdout.write(self._written(found, seen, options), ending="")
        if found.is_grave:
            raise SystemExit(GRAVE)

    def _written(self, found: TuningReport, seen: ObservedSettings | None, options: dict[str, Any]) -> str:
        if options["json"]:
            return json.dumps(cli_report.as_json(found, seen), indent=2) + "\n"
        return "".join(patch.diff for patch in found.patches) if options["patch"] else cli_report.as_text(found, seen)


def _content(name: str) -> bytes:
    """Reads a file, one byte more than is allowed, which shows that it is too large."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(FILE_LIMIT + 1)
        with Path(name).open("rb") as file:
            return file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}", returncode=WRONG_CALL) from error


def _options(options: dict[str, Any]) -> TuningOptions:
    return TuningOptions(_version(options["n8n_version"]), _timing(options), options["worker"])


def _version(written: str | None) -> Version | None:
    if not written:
        return None
    version = parse(written)
    if version is None:
        raise CommandError("Write --n8n-version as 1.123.5.", returncode=WRONG_CALL)
    return version


def _timing(options: dict[str, Any]) -> WorkerTiming | None:
    if not options["library"]:
        return None
    usual = WorkerTiming()
    lock = _time(options, "lock", LOCK)
    return WorkerTiming(
        library=QueueLibrary(options["library"]),
        lock=lock,
        renew=_time(options, "renew", lock / 2) or lock / 2,
        stalled_interval=_time(options, "stalled", usual.stalled_interval),
        max_stalled=max(0, options["max_stalled"]),
        shutdown=_time(options, "shutdown", 0.0) if options["shutdown"] else None,
    )


def _time(options: dict[str, Any], name: str, usual: float) -> float:
    if not options[name]:
        return usual
    value = duration(options[name])
    if value is None:
        raise CommandError(f"Write --{name} as 30s, 500ms or 1m.", returncode=WRONG_CALL)
    return value


def _running() -> ObservedSettings:
    config = load_configuration()
    return running_queues.running(one_off_snapshot.take_snapshot(registry()), config, shared_clock.now())
