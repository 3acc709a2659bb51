"""Reads from INFO a server's name and version, its run id, and warnings about a dangerous configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from recovery.domain.identifiers import decode_name, printable

# The field with the version, by product. All of them also claim to be a Redis, so that one comes last.
_PRODUCTS = (("valkey_version", "Valkey"), ("dragonfly_version", "Dragonfly"), ("redis_version", "Redis"))


class ServerInfo(NamedTuple):
    """Name, version and run id of the first node that answered, and the warnings of all nodes."""

    server: str = ""
    run_id: str = ""
    warnings: tuple[str, ...] = ()


def parse_server_info(replies: Mapping[str, Any]) -> ServerInfo:
    """Parses INFO of every node; a node that refused it is left out."""
    nodes = {node: parse_info_fields(reply) for node, reply in replies.items() if isinstance(reply, bytes | str)}
    if not nodes:
        return ServerInfo()
    first = next(iter(nodes.values()))
    where = {node: f" ({node})" if len(nodes) > 1 else "" for node in nodes}
    warnings = [warning + where[node] for node, fields in nodes.items() for warning in _warnings(fields)]
    return ServerInfo(_server(first), first.get("run_id", ""), tuple(dict.fromkeys(warnings)))


def parse_info_fields(reply: bytes | str) -> dict[str, str]:
    lines = (decode_name(reply) if isinstance(reply, bytes) else reply).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _server(fields: Mapping[str, str]) -> str:
    return next((f"{name} {printable(fields[key])}" for key, name in _PRODUCTS if fields.get(key)), "")


def _warnings(fields: Mapping[str, str]) -> Iterator[str]:
    policy = fields.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield (
            f"maxmemory-policy is {printable(policy)}: under memory pressure locks and jobs are evicted. "
            "Queues need noeviction."
        )
    if fields.get("role") == "slave":
        yield "This is a replica: its data may lag behind its master."
        if fields.get("master_link_status") == "down":
            yield "The replica has lost its master: its numbers are not updated."
