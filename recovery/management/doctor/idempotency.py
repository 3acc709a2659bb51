"""Checks idempotency keys: whether the state store may hold them, would keep them, and how full it is."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.errors import StoreError
from recovery.idempotency import durability
from recovery.idempotency.queries import counts
from recovery.idempotency.store_isolation import check_isolation
from recovery.management.doctor.findings import DoctorFinding, good, warning, wrong
from recovery.stores.registry import ConnectionRegistry

ABOUT = "idempotency"
_NEARLY = 0.9  # of the keys that it may have


def idempotency(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    """Checks idempotency keys; a state store that is missing or silent has its own finding."""
    if registry.config.state is None:
        return
    try:
        yield from _apart(registry)
        yield from _used(registry)
    except StoreError:
        return


def _apart(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    found = check_isolation(registry)
    if found.trouble:
        yield wrong(ABOUT, found.trouble, "Give UNSTALL_STATE_URL another server, or another database number.")
    for name in found.unknown:
        says = f"Whether the queues of {name} are in the state store is unknown: it does not report a run id."
        yield warning(ABOUT, says, "Make sure that it answers, and allow its user to call INFO.")


def _used(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    """Checks the number of keys. Possible loss of keys is reported only if any are in use."""
    found, most = counts(registry.state()), registry.config.idempotency.keys
    if not found.keys:
        yield good(ABOUT, "Nothing is claimed.")
        return
    yield good(ABOUT, f"{found.claimed:,} claimed, {found.expired:,} expired, {found.completed:,} completed.")
    if found.keys > _NEARLY * most:
        says = f"It has {found.keys:,} of {most:,} keys; at the limit nothing can be claimed."
        yield warning(ABOUT, says, "Raise keys in [idempotency], or complete with a shorter keep.")
    for doubt in durability.find_risks(registry.state()):
        yield warning(ABOUT, doubt.says, doubt.remedy)
