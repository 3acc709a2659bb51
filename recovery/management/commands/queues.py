"""Lists all queues with their counts, read directly: needs neither a scheduler nor a state store."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from recovery.domain.identifiers import printable
from recovery.domain.queues.types import QueueSample, Snapshot
from recovery.management import one_off_snapshot
from recovery.management.configuration import load_configuration
from recovery.management.text_table import align_columns
from recovery.stores.registry import ConnectionRegistry

UNREACHABLE = 4
_COLUMNS = ("waiting", "prioritized", "paused", "active", "delayed", "waiting_children", "completed", "failed")


class Command(BaseCommand):
    help = "List all queues with their counts. Exit status: 0, 2 for a wrong call, 4 when a store does not answer."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        config = load_configuration()
        registry = ConnectionRegistry(config)
        try:
            snapshot = one_off_snapshot.take_snapshot(registry)
        finally:
            registry.close()
        self.stdout.write(_json(snapshot) if options["json"] else _table(snapshot))
        silent = [deployment for deployment in snapshot.deployments if deployment.error]
        if silent:
            raise CommandError("\n".join(map(one_off_snapshot.trouble, silent)), returncode=UNREACHABLE)


def _json(snapshot: Snapshot) -> str:
    """Returns the snapshot as JSON. `base` keeps every byte: what is no UTF-8 is the escape of a lone surrogate."""
    return json.dumps(
        {
            "taken_at": snapshot.taken_at,
            "deployments": [
                {"name": one.name, "target": one.target, "server": one.server, "error": one.error or None}
                for one in snapshot.deployments
            ],
            "queues": [_row(sample) for sample in snapshot.queues],
        },
        indent=2,
    )


def _row(sample: QueueSample) -> dict[str, Any]:
    return {
        "deployment": sample.ref.deployment,
        "base": sample.ref.base,
        "library": str(sample.flavour.library),
        "version": sample.flavour.version or None,
        **sample.counts._asdict(),
        "is_paused": sample.is_paused,
        "workers": sample.workers,
        "oldest_waiting_at": sample.oldest_waiting_at,
        "oldest_active_at": sample.oldest_active_at,
        "error": sample.error or None,
    }


def _table(snapshot: Snapshot) -> str:
    head = ["queue", "library", *(name.replace("_", "-") for name in _COLUMNS), "workers", ""]
    rows = [head, *map(_cells, snapshot.queues)]
    return align_columns(rows, (0, 1, len(head) - 1)) if snapshot.queues else "No queues were found."


def _cells(sample: QueueSample) -> list[str]:
    numbers = [getattr(sample.counts, name) for name in _COLUMNS]
    name = f"{sample.ref.deployment}/{printable(sample.ref.base)}"
    remark = sample.error or ("paused" if sample.is_paused else "")
    # A state that a readable queue lacks is one that its library does not have; in any other case it is unknown.
    nothing = "?" if sample.error else "–"
    written = [nothing if number is None else f"{number:,}" for number in numbers]
    hands = "?" if sample.workers is None else f"{sample.workers:,}"
    return [name, sample.flavour.label, *written, hands, printable(remark)]
