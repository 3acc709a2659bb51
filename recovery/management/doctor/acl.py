"""Checks what the user of a deployment may do, by trying each command once on a key that does not exist.

ACL DRYRUN would say the same, but a user who may only read may not call it.
"""

from __future__ import annotations

from collections.abc import Iterator

import redis

from recovery.backends.redis_common import permissions
from recovery.config import Deployment
from recovery.domain.identifiers import QueueRef
from recovery.management.doctor.findings import DoctorFinding, good, warning, wrong
from recovery.stores.redis.client import Command, StoreClient

_KEY = "unstall:doctor"  # behind the prefix, where an ACL with key prefixes allows reading
_GRANT = "Grant what docs/redis-acl.md lists."
_ACT = "Grant what docs/redis-acl.md lists for actions; or set read_only = true, or UNSTALL_READ_ONLY=1 for main."
_OLD = "The server is too old or a proxy blocks the command: Redis 6.2 or Valkey is required."

# Every command that reading uses. Without one of them a column or a tab stays unknown.
_READS: tuple[tuple[str | int, ...], ...] = (
    ("EXISTS",),
    ("TYPE",),
    ("PTTL",),
    ("GET",),
    ("GETRANGE", 0, 1),
    ("LLEN",),
    ("LINDEX", -1),
    ("LRANGE", 0, 0),
    ("LPOS", "x"),
    ("ZCARD",),
    ("ZCOUNT", 0, 1),
    ("ZRANGE", 0, 0),
    ("ZREVRANGE", 0, 0),
    ("ZRANK", "x"),
    ("ZREVRANK", "x"),
    ("ZSCORE", "x"),
    ("SCARD",),
    ("SSCAN", 0),
    ("HGET", "x"),
    ("HMGET", "x"),
    ("HLEN",),
    ("HKEYS",),
    ("HSTRLEN", "x"),
    ("HRANDFIELD", 1),
)
# Commands about the server, and what is missing without them.
_EXTRAS: dict[Command, str] = {
    ("CLIENT", "LIST"): "the worker of each job stays unknown",
    ("INFO",): "version, role and eviction policy stay unknown",
    ("SCAN", 0, "COUNT", 1): "queues are found by their workers or by their configured names only",
}


def missing(about: str, wire: StoreClient, deployment: Deployment) -> Iterator[DoctorFinding]:
    """Checks reading, writing and optional commands. Raises StoreError."""
    yield from _reads(about, wire, deployment)
    yield from _writes(about, wire, deployment)
    for command, loss in _EXTRAS.items():
        refused = next((reply for reply in wire.each_node(command).values() if isinstance(reply, Exception)), None)
        if refused is not None:
            yield warning(about, f"{_name(command)} is refused: {loss}.", _remedy(refused))


def _reads(about: str, wire: StoreClient, deployment: Deployment) -> Iterator[DoctorFinding]:
    prefix = _prefix(deployment)
    replies = wire.call([(word, f"{prefix}:{_KEY}", *rest) for word, *rest in _READS])
    refused = {
        str(command[0]): reply
        for command, reply in zip(_READS, replies, strict=True)
        if isinstance(reply, redis.ResponseError)
    }
    if not refused:
        yield good(about, "All commands needed for reading are allowed.")
        return
    by_remedy: dict[str, list[str]] = {}
    for word, reply in refused.items():
        by_remedy.setdefault(_remedy(reply), []).append(word)
    for remedy, words in by_remedy.items():
        yield wrong(about, f"Refused on keys under {prefix}: {', '.join(words)}.", remedy)


def _writes(about: str, wire: StoreClient, deployment: Deployment) -> Iterator[DoctorFinding]:
    """Checks whether jobs can be recovered, unless the deployment is configured to be read only."""
    if deployment.read_only:
        yield good(about, "It is configured to be read only: Unstall changes nothing in it.")
        return
    queue = QueueRef(deployment.name, f"{_prefix(deployment)}:{_KEY}")
    try:
        lacking = permissions.missing_permissions(wire, queue)
    except redis.ResponseError as error:
        lacking = str(error)
    if lacking:
        says = f"Its user has no write permission, so neither scanners nor people can recover jobs here: {lacking}."
        yield warning(about, says, _ACT)
    else:
        yield good(about, "Its user may recover jobs.")


def _prefix(deployment: Deployment) -> str:
    return deployment.prefixes[0] if deployment.prefixes else "bull"


def _name(command: Command) -> str:
    return " ".join(str(part) for part in command[:2] if isinstance(part, str) and part.isupper())


def _remedy(refused: Exception) -> str:
    denied = isinstance(refused, redis.exceptions.NoPermissionError)
    return _GRANT if denied else _OLD
