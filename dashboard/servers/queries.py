"""Reads what is known of servers now: those that report, those that no longer do, and their workers."""

from __future__ import annotations

from django.urls import reverse

from dashboard.live import state_cache
from recovery import shared_clock
from recovery.domain.identifiers import printable
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.servers.samples import Server
from recovery.domain.servers.worker_assignment import WorkersByServer
from recovery.errors import ServerMissing, StoreError
from recovery.reads.stuck import queries as stuck_queries
from recovery.servers import queries as servers_queries
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import SharedReads

_seconds = SharedReads(kept=8)


def find_server(id: str) -> Server | None:
    """Returns a server; None if it no longer reports. Raises ServerMissing for an unknown one."""
    found = next((server for server in state_cache.servers() if server.id == id), None)
    if found is None and id not in state_cache.known_server_ids() and not state_cache.health().error:
        raise ServerMissing(f"No server named {printable(id)} has reported within a week.")
    return found


def last_reports() -> dict[str, int]:
    """Returns when each server last reported, the latest first; empty while the state store does not answer."""
    try:
        return _seconds.get("seen", lambda: servers_queries.last_seen(registry().state()))
    except StoreError:
        return {}


def gone_servers() -> list[tuple[str, int]]:
    """Returns the servers that no longer report, and when they last did."""
    here = {server.id for server in state_cache.servers()}
    return [(id, at) for id, at in last_reports().items() if id not in here]


def read_workers() -> WorkersByServer:
    """Returns the workers by server, computed once a second for all requests."""
    return _seconds.get("floor", _floor)


def stuck_on(id: str) -> int:
    """Counts the stuck jobs whose worker is or was on this server."""
    inbox = stuck_queries.newest_inbox()
    return sum(row.server == id for row in inbox.rows) if inbox else 0


def url(id: str) -> str:
    """Returns the URL of a server's page; "" for a name by which no server has reported."""
    return reverse("server", args=[id]) if id in state_cache.known_server_ids() else ""


def forget() -> None:
    """Clears the cache of this module, so that what was read a moment ago is read again."""
    _seconds.forget()


def _floor() -> WorkersByServer:
    where = AddressMap.of(state_cache.servers(), shared_clock.now())
    return WorkersByServer.of(state_cache.newest_snapshot(), stuck_queries.newest_inbox(), where)
