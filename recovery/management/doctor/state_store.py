"""Checks the state store: reachable, writable, apart from the queues whatever its address, fed by a scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

from recovery.domain.identifiers import printable
from recovery.errors import StoreError
from recovery.idempotency.store_isolation import check_isolation
from recovery.management.doctor.findings import DoctorFinding, good, silent, warning, wrong
from recovery.reads.scanners import scheduler_status
from recovery.servers import monitor_acl
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state.state_keys import PROBE, SNAPSHOT

ABOUT, SCHEDULER = "state store", "scheduler"
_OPEN = frozenset({"user", "default", "on", "nopass"})
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_PROBE_S = 5  # seconds that the probe lives if this process dies before it deletes it


def store(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    state = registry.config.state
    if state is None:
        remedy = "Set UNSTALL_STATE_URL for separately started processes; `manage.py up` starts a store."
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
    yield from _users(registry)
    yield from _scheduler(sign, has_worked=has_worked)


def _probe(registry: ConnectionRegistry) -> None:
    """Writes a key and deletes it again."""
    client = registry.state()
    with redis_errors.guarded(client):
        client.set(PROBE, b"1", ex=_PROBE_S)
        client.delete(PROBE)


def _users(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    """Checks password and users; nothing if our user may not list users, or the store has none (Redis 5)."""
    client = registry.state()
    try:
        with redis_errors.guarded(client):
            lines = cast("list[str]", client.acl_list())
    except StoreError:
        return
    if any(_OPEN.issubset(line.split()) for line in lines) and not _is_private(registry):
        remedy = "Set a password there (requirepass) and in UNSTALL_STATE_URL: redis://:PASSWORD@HOST:PORT/0"
        yield warning(ABOUT, "It requires no password, and other machines may be able to reach it.", remedy)
    for writer in monitor_acl.too_wide(lines):
        remedy = "Give each monitor a user of its own: manage.py servers --acl ID prints it."
        yield warning(ABOUT, f"Its user {printable(writer.name)} may write the keys of every server.", remedy)


def _is_private(registry: ConnectionRegistry) -> bool:
    """Returns True for a socket, or an address that only this machine reaches."""
    address = registry.config.state.nodes[0] if registry.config.state else None
    return address is not None and (bool(address.path) or address.host in _LOCAL)


def _fed(registry: ConnectionRegistry) -> tuple[scheduler_status.SchedulerStatus | None, bool]:
    """Returns the scheduler that feeds the pages, and whether any ever did."""
    client = registry.state()
    sign = scheduler_status.fetch(client)
    with redis_errors.guarded(client):
        return sign, bool(client.exists(SNAPSHOT))


def _scheduler(sign: scheduler_status.SchedulerStatus | None, *, has_worked: bool) -> Iterator[DoctorFinding]:
    """Checks the scheduler; nothing if none has been started yet."""
    if sign and sign.leads:
        since = datetime.fromtimestamp(sign.since / 1000, UTC).isoformat(sep=" ", timespec="seconds")
        yield good(SCHEDULER, f"Process {sign.pid} on {sign.host} is the leader since {since}, epoch {sign.epoch}.")
    elif sign:
        says = (
            f"Process {sign.pid} on {sign.host} only reads, because its database does not answer: nothing is repaired."
        )
        yield warning(SCHEDULER, says, "Check DATABASE_URL where it runs, and whether it is migrated.")
    elif has_worked:
        yield warning(
            SCHEDULER, "None is running: all numbers on the pages are stale.", "Start one: manage.py scheduler"
        )


def _neighbours(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    """Checks that no queues share its database or server. Deployments that do not answer have their own findings."""
    found = check_isolation(registry)
    for name in found.same:
        remedy = "Use another server, or another database number: Unstall writes nothing next to queues."
        yield wrong(ABOUT, f"It is the same database as the queues of {name}.", remedy)
    for name in found.beside:
        remedy = "Use a separate server, so that a full or stopped one affects only one of the two."
        yield warning(ABOUT, f"It shares its server with the queues of {name}.", remedy)
