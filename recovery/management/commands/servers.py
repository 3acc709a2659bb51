"""Lists all servers with their last measurements, from the state store."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from recovery import shared_clock
from recovery.config import current
from recovery.domain.identifiers import printable
from recovery.domain.servers.samples import Server
from recovery.domain.time_units import age
from recovery.errors import ConfigError, StoreError
from recovery.management.arguments import UNREACHABLE, WRONG_CALL
from recovery.management.text_table import align_columns
from recovery.processes import up_environment
from recovery.servers import monitor_acl
from recovery.servers import queries as servers_queries
from recovery.stores.registry import ConnectionRegistry

_HEAD = ("server", "source", "cpu", "smoothed", "cores", "memory", "load", "disk", "workers", "strays", "last seen")
_NOBODY = "No servers reporting. Start a monitor on each one that runs workers (docs/monitor.md)."
_UNKNOWN = "?"


class Command(BaseCommand):
    help = (
        "List all servers with their CPU, memory and workers. --acl ID prints the ACL of one monitor's own user in the "
        "state store. Exit status: 0, 2 for a wrong call, 4 without an answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--acl", metavar="ID", help="print the ACL of the monitor that has this UNSTALL_SERVER_ID")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["acl"]:
            self.stdout.write(monitor_acl.rule(options["acl"]))
            return
        try:
            found = _look()
        except ConfigError as error:
            raise CommandError(str(error), returncode=WRONG_CALL) from error
        except StoreError as error:
            raise CommandError(f"The state store {error}. {error.advice}", returncode=UNREACHABLE) from error
        if options["json"]:
            self.stdout.write(json.dumps({"servers": [asdict(server) for server in found]}, indent=2))
        else:
            self.stdout.write(_table(found, shared_clock.now()) if found else _NOBODY)


def _look() -> tuple[Server, ...]:
    up_environment.adopt(Path(settings.DATA_DIR))
    registry = ConnectionRegistry(current())
    try:
        return servers_queries.fetch(registry.state())
    finally:
        registry.close()


def _table(found: Sequence[Server], now: int) -> str:
    return align_columns([_HEAD, *(_cells(server, now) for server in found)], (0, 1))


def _cells(server: Server, now: int) -> Sequence[str]:
    return (
        printable(server.id),
        server.origin.value,
        _percent(server.cpu_raw),
        _percent(server.cpu_ema),
        _UNKNOWN if server.cores is None else f"{server.cores:g}",
        _share(server.mem_used, server.mem_total),
        _UNKNOWN if server.load1 is None else f"{server.load1:.2f}",
        _share(server.disk_used, server.disk_total),
        f"{len(server.processes) + server.left_out:,}",
        f"{len(server.strays):,}",
        f"{age(max(0, now - server.sampled_at))} ago",
    )


def _percent(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{share:.0f} %"


def _share(used: int | None, total: int | None) -> str:
    return _percent(100 * used / total if used is not None and total else None)
