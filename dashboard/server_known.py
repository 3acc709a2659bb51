"""What is known of servers right now: those that are there, those that were, and who works on them."""

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
    """None for one that is not there any more; raises ServerMissing for one that nobody ever told of."""
    found = next((server for server in mirror.servers() if server.id == id), None)
    if found is None and id not in mirror.known() and not mirror.health().error:
        raise ServerMissing(f"No server named {shown(id)} has reported within a week.")
    return found


def seen() -> dict[str, int]:
    """When each server last told of itself, the latest first; empty while the state store is away."""
    try:
        return _seconds.get("seen", lambda: servers.seen(registry().state()))
    except StoreError:
        return {}


def gone() -> list[tuple[str, int]]:
    """Servers that are not there any more, and when they last were."""
    here = {server.id for server in mirror.servers()}
    return [(id, at) for id, at in seen().items() if id not in here]


def floor() -> Floor:
    """Made once a second for all who look."""
    return _seconds.get("floor", _floor)


def stuck_on(id: str) -> int:
    """Rows of the inbox whose holder is or was on this server."""
    inbox = stuck.newest()
    return sum(row.server == id for row in inbox.rows) if inbox else 0


def url(id: str) -> str:
    """Of its page; "" for what is no server that told of itself."""
    return reverse("server", args=[id]) if id in mirror.known() else ""


def forget() -> None:
    """What was read a moment ago is read again."""
    _seconds.forget()


def _floor() -> Floor:
    where = Whereabouts.of(mirror.servers(), shared_clock.now())
    return Floor.of(mirror.newest(), stuck.newest(), where)
