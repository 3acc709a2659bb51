"""Checks deployments: whether they answer, their version, the rights of our user, and whether queues are found."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import redis
from django.db import Error

from recovery import shared_clock
from recovery.backends.redis_common import consoles
from recovery.config import Deployment
from recovery.domain.identifiers import printable
from recovery.errors import StoreError
from recovery.management.doctor import acl
from recovery.management.doctor.findings import DoctorFinding, good, silent, warning
from recovery.models import Lease
from recovery.scanners.collect.server_info import parse_info_fields, parse_server_info
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.discovery.search import configured_bases
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import ConnectionRegistry

_SKEW_S = 5  # seconds two clocks may differ before "since" and "in" on the pages mislead


def deployments(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    if not registry.config.places:
        remedy = "Set UNSTALL_REDIS_URL, or write [[deployments]]; until then `manage.py up` shows a demo."
        yield warning("deployments", "None is configured.", remedy)
    for deployment in registry.config.deployments:
        yield from _deployment(registry, deployment)


def _deployment(registry: ConnectionRegistry, deployment: Deployment) -> Iterator[DoctorFinding]:
    about = f"deployment {deployment.name}"
    wire = registry.wire(deployment.name)
    try:
        yield from _server(about, wire)
        yield from _consoles(about, registry, wire)
        yield from acl.missing(about, wire, deployment)
        yield from _queues(about, registry, deployment)
    except StoreError as error:
        yield silent(about, error)


def _server(about: str, wire: StoreClient) -> Iterator[DoctorFinding]:
    started = time.perf_counter()
    wire.each_node(("PING",))
    took = (time.perf_counter() - started) * 1000
    told = wire.each_node(("INFO",))
    seen = parse_server_info(told)
    yield good(about, f"{wire.target} answers in {took:.1f} ms: {seen.server or 'its version is unknown'}.")
    for says in seen.warnings:
        yield warning(about, says, _remedy(says))
    yield from _clock(about, told)


def _consoles(about: str, registry: ConnectionRegistry, wire: StoreClient) -> Iterator[DoctorFinding]:
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


def _clock(about: str, told: Mapping[str, Any]) -> Iterator[DoctorFinding]:
    """Compares the clocks, by INFO: TIME may be refused by an ACL, and the refusal would appear in the ACL log."""
    for node, reply in told.items():
        stamp = parse_info_fields(reply).get("server_time_usec", "") if isinstance(reply, bytes | str) else ""
        if not stamp.isdigit():
            continue
        ahead = int(stamp) / 1_000_000 - time.time()
        if abs(ahead) > _SKEW_S:
            word = "ahead of" if ahead > 0 else "behind"
            says = f"The clock of {node} is {abs(ahead):.0f} s {word} ours: ages and delays are off by that much."
            yield warning(about, says, "Synchronize the clocks of both machines with NTP.")


def _queues(about: str, registry: ConnectionRegistry, deployment: Deployment) -> Iterator[DoctorFinding]:
    """Discovers the queues on its own, and writes nothing."""
    alone = ConnectionRegistry(replace(registry.config, deployments=(deployment,)))
    roster = KnownQueues()
    try:
        Discoverer(alone, roster, remembers=False).run(shared_clock.now())
    finally:
        alone.close()
    found = {known.ref.base for known in roster.listing(deployment.name).queues}
    there = _present(registry.wire(deployment.name), found)
    for base in sorted(set(configured_bases(deployment)) - there):
        remedy = f"Check the name and the prefix in `queues` of [[deployments]] {deployment.name}."
        yield warning(about, f"The configured queue {printable(base)} has no keys yet.", remedy)
    if there:
        yield good(about, f"{len(there):,} queue{'s' * (len(there) > 1)} found.")
    else:
        remedy = "Check the database number and `prefixes`, or list the queues in `queues`."
        yield warning(about, "No queue was found.", remedy)


def _present(wire: StoreClient, bases: set[str]) -> set[str]:
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
