"""Shows what the scanners may do to a queue, and where each value comes from; policies are edited on the page or by the
API.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from recovery import shared_clock
from recovery.config import Config
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.policies import describe
from recovery.domain.policies.policy_layers import LayerValues, PolicyValueOrigin
from recovery.domain.policies.types import PolicyScanner
from recovery.errors import ConfigError, DeploymentMissing, StoreError
from recovery.management.configuration import WRONG_CALL, load_configuration
from recovery.reads.policies.queries import PolicySnapshot
from recovery.reads.queues import snapshot_store
from recovery.stores.registry import registry

UNREACHABLE = 4


class Command(BaseCommand):
    help = (
        "Show the policy of a queue, or of all queues without a policy of their own, and where each value comes from. "
        "Exit status: 0, 2 for a wrong call, 4 when the database does not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queue", nargs="?", default="", metavar="[DEPLOYMENT/]BASE")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        config = load_configuration()
        queue = _queue(options["queue"], config) if options["queue"] else QueueRef("", "")
        try:
            book = PolicySnapshot.open(config)
        except DatabaseError as error:
            raise CommandError(f"The database does not answer: {error}", returncode=UNREACHABLE) from error
        if queue.base and not _is_known(queue):
            self.stderr.write(
                f"There is no queue {printable(str(queue))} now. This policy would apply to a queue of that name."
            )
        now = shared_clock.now()
        self.stdout.write(_json(book, queue) if options["json"] else "\n".join(_lines(book, queue, now)))


def _queue(written: str, config: Config) -> QueueRef:
    """Parses the queue. A slash may belong to the name; it separates a deployment only if one has that name."""
    head, slash, base = written.partition("/")
    if slash and base and _is_deployment(head, config):
        return QueueRef(head, base)
    names = [place.name for place in config.places]
    if len(names) != 1:
        known = ", ".join(sorted(names)) or "none"
        raise CommandError(f"Write DEPLOYMENT/BASE. Configured: {known}.", returncode=WRONG_CALL)
    return QueueRef(names[0], written)


def _is_known(queue: QueueRef) -> bool:
    """Returns True if the newest snapshot has the queue, or if there is no snapshot that could tell."""
    try:
        snapshot = snapshot_store.fetch(registry().state())
    except (ConfigError, StoreError, snapshot_store.SnapshotOfOtherVersion):
        return True
    return snapshot is None or any(sample.ref == queue for sample in snapshot.queues)


def _is_deployment(name: str, config: Config) -> bool:
    try:
        config.deployment(name)
    except DeploymentMissing:
        return False
    return True


def _lines(book: PolicySnapshot, queue: QueueRef, now: int) -> Iterator[str]:
    found = book.of(queue)
    yield printable(str(queue)) if queue.base else "All queues without a policy of their own"
    for term in describe.policy_terms(found, now):
        yield f"  {term.name}: {printable(term.value)}"
        yield f"      {printable(term.origin)}"
    yield from (f"  {printable(why)}" for why in found.withheld)
    others = [_place(layer.origin) for layer in book.layers if queue.base == "" and _is_narrower(layer)]
    if others:
        yield "Other policies are set for:"
        yield from (f"  {place}" for place in sorted(set(others)))
    yield from (f"  {printable(row.trouble)}" for row in book.unread if row.trouble not in found.withheld)


def _is_narrower(layer: LayerValues) -> bool:
    return bool(layer.origin.deployment or layer.origin.base)


def _place(origin: PolicyValueOrigin) -> str:
    if not origin.base:
        return f"all queues of {origin.deployment}"
    return (
        printable(f"{origin.deployment}/{origin.base}")
        if origin.deployment
        else f"{printable(origin.base)} in any deployment"
    )


def _json(book: PolicySnapshot, queue: QueueRef) -> str:
    """Returns the policy as JSON. `base` keeps every byte: what is no UTF-8 is the escape of a lone surrogate."""
    found = book.of(queue)
    return json.dumps(
        {
            "deployment": queue.deployment or None,
            "base": queue.base or None,
            "enabled": {scanner.value: found.policy.may_act(scanner) for scanner in PolicyScanner},
            "policy": describe.policy_settings(found.policy),
            "origins": describe.origins(found),
            "layers": [describe.as_json(layer.origin) for layer in book.layers],
            "withheld": list(found.withheld),
            "trouble": list(book.trouble),
        },
        indent=2,
    )
