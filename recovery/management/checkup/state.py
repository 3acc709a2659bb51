"""The state store: reachable, writable, apart from the queues, whatever names they were given; and who feeds it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from recovery.connections import faults
from recovery.connections.registry import Registry
from recovery.connections.state import PROBE, SNAPSHOT
from recovery.errors import StoreError
from recovery.management.checkup.findings import Finding, good, silent, warning, wrong
from recovery.once.apart import neighbours
from recovery.reads import leading

ABOUT, SCHEDULER = "state store", "scheduler"
_PROBE_S = 5  # seconds our probe lives, should we die before we remove it


def store(registry: Registry) -> Iterator[Finding]:
    state = registry.config.state
    if state is None:
        remedy = "Set UNSTALL_STATE_URL for processes that are started one by one; `manage.py up` brings a store."
        yield warning(ABOUT, "None is configured.", remedy)
        return
    try:
        _probe(registry)
        sign, has_worked = _fed(registry)
        beside = list(_neighbours(registry))
    except StoreError as error:
        yield silent(ABOUT, error)
        return
    yield good(ABOUT, f"{state.target} can be written.")
    yield from beside
    yield from _scheduler(sign, has_worked=has_worked)


def _probe(registry: Registry) -> None:
    """Written, and removed again."""
    client = registry.state()
    with faults.guarded(client):
        client.set(PROBE, b"1", ex=_PROBE_S)
        client.delete(PROBE)


def _fed(registry: Registry) -> tuple[leading.Sign | None, bool]:
    """Who feeds the pages, and whether anybody ever did."""
    client = registry.state()
    sign = leading.fetch(client)
    with faults.guarded(client):
        return sign, bool(client.exists(SNAPSHOT))


def _scheduler(sign: leading.Sign | None, *, has_worked: bool) -> Iterator[Finding]:
    """Nothing is said where none has been started yet."""
    if sign and sign.leads:
        since = datetime.fromtimestamp(sign.since / 1000, UTC).isoformat(sep=" ", timespec="seconds")
        yield good(SCHEDULER, f"Process {sign.pid} on {sign.host} leads since {since}, epoch {sign.epoch}.")
    elif sign:
        says = (
            f"Process {sign.pid} on {sign.host} only reads, because its database does not answer: nothing is repaired."
        )
        yield warning(SCHEDULER, says, "Look at DATABASE_URL where it runs, and whether it is migrated.")
    elif has_worked:
        yield warning(SCHEDULER, "None runs: every number on the pages is old.", "Start one: manage.py scheduler")


def _neighbours(registry: Registry) -> Iterator[Finding]:
    """Those that do not answer are told among the deployments."""
    found = neighbours(registry)
    for name in found.same:
        remedy = "Use another server, or another database number: nothing is written beside queues."
        yield wrong(ABOUT, f"It is the very place of the queues of {name}.", remedy)
    for name in found.beside:
        remedy = "Better a server of its own: one that is full or stopped then takes only one of the two."
        yield warning(ABOUT, f"It shares its server with the queues of {name}.", remedy)
