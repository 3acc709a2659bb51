"""Reads what is known of servers now: those that report, those that no longer do, and their workers."""

from __future__ import annotations

from django.urls import reverse

from dashboard.live import mirror
from recovery import shared_clock
from recovery.connections.registry import registry
from recovery.domain.refs import shown
from recovery.domain.servers import Server
from recovery.domain.staff import Floor
from recovery.domain.whereabouts import Whereabouts
from recovery.errors import ServerMissing, StoreError
from recovery.reads import servers, stuck
from recovery.reads.shared import Shared

_seconds = Shared(kept=8)


def one(id: str) -> Server | None:
    """Returns a server; None if it no longer reports. Raises ServerMissing for an unknown one."""
    found = next((server for server in mirror.servers() if server.id == id), None)
    if found is None and id not in mirror.known() and not mirror.health().error:
        raise ServerMissing(f"No server named {shown(id)} has reported within a week.")
    return found


def seen() -> dict[str, int]:
    """Returns when each server last reported, the latest first; empty while the state store does not answer."""
    try:
        return _seconds.get("seen", lambda: servers.seen(registry().state()))
    except StoreError:
        return {}


def gone() -> list[tuple[str, int]]:
    """Returns the servers that no longer report, and when they last did."""
    here = {server.id for server in mirror.servers()}
    return [(id, at) for id, at in seen().items() if id not in here]


def floor() -> Floor:
    """Returns the workers by server, computed once a second for all requests."""
    return _seconds.get("floor", _floor)


def stuck_on(id: str) -> int:
    """Counts the stuck jobs whose worker is or was on this server."""
    inbox = stuck.newest()
    return sum(row.server == id for row in inbox.rows) if inbox else 0


def url(id: str) -> str:
    """Returns the URL of a server's page; "" for a name by which no server has reported."""
    return reverse("server", args=[id]) if id in mirror.known() else ""


def forget() -> None:
    """Clears the cache of this module, so that what was read a moment ago is read again."""
    _seconds.forget()


def _floor() -> Floor:
    where = Whereabouts.of(mirror.servers(), shared_clock.now())
    return Floor.of(mirror.newest(), stuck.newest(), where)
