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
from recovery.connections.registry import registry
from recovery.domain.counts import Library
from recovery.domain.tuning.report import Report, report
from recovery.domain.tuning.seen import Running
from recovery.domain.tuning.setups import Options
from recovery.domain.tuning.timing import LOCK, Timing
from recovery.domain.tuning.versions import Version, parse
from recovery.errors import Illegible
from recovery.management import looking, tuned
from recovery.management.configured import WRONG_CALL, configured
from recovery.reads.tuning import running
from recovery.reads.tuning.scenes import scene
from recovery.reads.tuning.source import duration
from recovery.reads.tuning.texts import FILE_LIMIT

GRAVE = 3
_LIBRARIES = (Library.BULL.value, Library.BULLMQ.value)


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
            given = scene((name, _content(name)) for name in options["files"])
        except Illegible as error:
            raise CommandError(str(error), returncode=WRONG_CALL) from error
        seen = _running() if options["running"] else None
        found = report(given, _options(options), seen)
        self.stdout.write(self._written(found, seen, options), ending="")
        if found.is_grave:
            raise SystemExit(GRAVE)

    def _written(self, found: Report, seen: Running | None, options: dict[str, Any]) -> str:
        if options["json"]:
            return json.dumps(tuned.as_json(found, seen), indent=2) + "\n"
        return "".join(patch.diff for patch in found.patches) if options["patch"] else tuned.as_text(found, seen)


def _content(name: str) -> bytes:
    """Reads a file, one byte more than is allowed, which shows that it is too large."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(FILE_LIMIT + 1)
        with Path(name).open("rb") as file:
            return file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}", returncode=WRONG_CALL) from error


def _options(options: dict[str, Any]) -> Options:
    return Options(_version(options["n8n_version"]), _timing(options), options["worker"])


def _version(written: str | None) -> Version | None:
    if not written:
        return None
    version = parse(written)
    if version is None:
        raise CommandError("Write --n8n-version as 1.123.5.", returncode=WRONG_CALL)
    return version


def _timing(options: dict[str, Any]) -> Timing | None:
    if not options["library"]:
        return None
    usual = Timing()
    lock = _time(options, "lock", LOCK)
    return Timing(
        library=Library(options["library"]),
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


def _running() -> Running:
    config = configured()
    return running.running(looking.snapshot(registry()), config, shared_clock.now())
