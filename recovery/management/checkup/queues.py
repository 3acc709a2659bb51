"""Checks deployments: whether they answer, their version, the rights of our user, and whether queues are found."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import redis
from django.db import Error

from recovery import shared_clock
from recovery.backends.shared import consoles
from recovery.config import Deployment
from recovery.connections.registry import Registry
from recovery.connections.wire import Wire
from recovery.domain.refs import shown
from recovery.errors import StoreError
from recovery.management.checkup import rights
from recovery.management.checkup.findings import Finding, good, silent, warning
from recovery.models import Lease
from recovery.scanners.snapshot.discover import Discoverer
from recovery.scanners.snapshot.roster import Roster
from recovery.scanners.snapshot.search import configured
from recovery.scanners.snapshot.vitals import fields, vitals

_SKEW_S = 5  # seconds two clocks may differ before "since" and "in" on the pages mislead


def deployments(registry: Registry) -> Iterator[Finding]:
    if not registry.config.places:
        remedy = "Set UNSTALL_REDIS_URL, or write [[deployments]]; until then `manage.py up` shows a demo."
        yield warning("deployments", "None is configured.", remedy)
    for deployment in registry.config.deployments:
        yield from _deployment(registry, deployment)


def _deployment(registry: Registry, deployment: Deployment) -> Iterator[Finding]:
    about = f"deployment {deployment.name}"
    wire = registry.wire(deployment.name)
    try:
        yield from _server(about, wire)
        yield from _consoles(about, registry, wire)
        yield from rights.missing(about, wire, deployment)
        yield from _queues(about, registry, deployment)
    except StoreError as error:
        yield silent(about, error)


def _server(about: str, wire: Wire) -> Iterator[Finding]:
    started = time.perf_counter()
    wire.each_node(("PING",))
    took = (time.perf_counter() - started) * 1000
    told = wire.each_node(("INFO",))
    seen = vitals(told)
    yield good(about, f"{wire.target} answers in {took:.1f} ms: {seen.server or 'its version is unknown'}.")
    for says in seen.warnings:
        yield warning(about, says, _remedy(says))
    yield from _clock(about, told)


def _consoles(about: str, registry: Registry, wire: Wire) -> Iterator[Finding]:
    """Warns of other installations whose scheduler leads on this Redis."""
    try:
        ours = Lease.objects.values_list("installation", flat=True).first()
        others = [one for one in consoles.read(wire) if one.installation != ours]
    except (redis.ResponseError, Error):
        return  # other checks report what is wrong
    for one in others:
        yield warning(about, f"{one.words} {one.meaning}", "Give each Redis to one installation, or stop the other.")


def _remedy(says: str) -> str:
    if says.startswith("maxmemory-policy"):
        return "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file."
    return "Point the URL at the master, or name the Sentinels: redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB."


def _clock(about: str, told: Mapping[str, Any]) -> Iterator[Finding]:
    """Compares the clocks, by INFO: TIME may be refused by an ACL, and the refusal would appear in the ACL log."""
    for node, reply in told.items():
        stamp = fields(reply).get("server_time_usec", "") if isinstance(reply, bytes | str) else ""
        if not stamp.isdigit():
            continue
        ahead = int(stamp) / 1_000_000 - time.time()
        if abs(ahead) > _SKEW_S:
            word = "ahead of" if ahead > 0 else "behind"
            says = f"The clock of {node} is {abs(ahead):.0f} s {word} ours: ages and delays are off by that much."
            yield warning(about, says, "Synchronize the clocks of both machines with NTP.")


def _queues(about: str, registry: Registry, deployment: Deployment) -> Iterator[Finding]:
    """Discovers the queues on its own, and writes nothing."""
    alone = Registry(replace(registry.config, deployments=(deployment,)))
    roster = Roster()
    try:
        Discoverer(alone, roster, remembers=False).run(shared_clock.now())
    finally:
        alone.close()
    found = {known.ref.base for known in roster.listing(deployment.name).queues}
    there = _present(registry.wire(deployment.name), found)
    for base in sorted(set(configured(deployment)) - there):
        remedy = f"Check the name and the prefix in `queues` of [[deployments]] {deployment.name}."
        yield warning(about, f"The configured queue {shown(base)} has no keys yet.", remedy)
    if there:
        yield good(about, f"{len(there):,} queue{'s' * (len(there) > 1)} found.")
    else:
        remedy = "Check the database number and `prefixes`, or list the queues in `queues`."
        yield warning(about, "No queue was found.", remedy)


def _present(wire: Wire, bases: set[str]) -> set[str]:
    """Returns the bases that have keys: configured queues are listed before they exist. Every library writes at least
    one of these keys.
    """
    ordered = sorted(bases)
    parts = ("meta", "id", "wait", "active", "delayed", "completed", "failed")
    counts = wire.call([("EXISTS", f"{base}:{part}") for base in ordered for part in parts])
    size = len(parts)
    return {
        base
        for place, base in enumerate(ordered)
        if any(count == 1 for count in counts[place * size : (place + 1) * size])
    }
