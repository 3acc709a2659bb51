"""Encodes what goes over an event stream as bytes: pure functions, one for each kind of event.

Server-sent events: fields end with a newline, an event ends with an empty line, a line that begins with a
colon is a comment. JSON has no raw newline, so one `data` line always holds it.
"""

from __future__ import annotations

import json
import random
from enum import StrEnum
from typing import Any

from dashboard.live.cached_state import CachedState
from recovery.domain.queues.types import Snapshot

RETRY_MS = (1000, 4000)  # a hundred tabs must not reconnect in the same instant
KEEP_ALIVE = b": beat\n\n"  # keeps proxies from closing an idle stream, and detects clients that are gone


class StreamEnding(StrEnum):
    """Reason why the server ends a stream; the browser decides by it whether to reconnect."""

    RESTARTING = "restarting"
    LOGGED_OUT = "logged-out"
    ROLE_CHANGED = "role-changed"  # it reconnects and sees what the new role may see


def event(kind: str, values: dict[str, Any], *, id: str = "") -> bytes:
    """Encodes one event. `id` comes back as Last-Event-ID when the browser reconnects."""
    body = json.dumps(values, separators=(",", ":"))
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {kind}\ndata: {body}\n\n".encode("ascii")


def opening(now_ms: int) -> bytes:
    """Returns the first bytes of every stream: a comment that flushes the headers, the pause before a reconnect, and
    `hello`, by which the browser tells a live stream from one that a proxy buffers."""
    return f": unstall\nretry: {_retry()}\n\n".encode("ascii") + event("hello", {"now": now_ms})


def tick(image: CachedState, now_ms: int) -> bytes:
    """Encodes the newest snapshot's number and health; the pages then fetch what they show."""
    snapshot, health = image.snapshot, image.health(now_ms)
    number = None if snapshot is None else snapshot.number
    values = {
        "number": number,
        "taken_at": None if snapshot is None else snapshot.taken_at,
        "now": now_ms,
        "stale": health.stale,
        "reason": health.reason,
        "problems": [
            *([health.lack] if health.lack else []),
            *(_problems(snapshot) if snapshot else []),
            *_held(image),
            *_consoles(image),
        ],
    }
    return event("tick", values, id="" if number is None else str(number))


def _problems(snapshot: Snapshot) -> list[str]:
    """Returns one sentence for each deployment that does not answer."""
    return [f"{sample.name}: {sample.error}" for sample in snapshot.deployments if sample.error]


def _held(image: CachedState) -> list[str]:
    """Returns one sentence for each deployment whose auto-recovery is paused.

    The remaining time is not in it, because pages fetch anew when the text changes.
    """
    return [f"{name}: auto-recovery paused" for name in image.held]


def _consoles(image: CachedState) -> list[str]:
    return [one.words for one in image.leader.consoles] if image.leader else []


def bye(ending: StreamEnding) -> bytes:
    """Returns the last bytes of a stream that the server ends; `retry` spreads the reconnects."""
    return event("bye", {"reason": ending.value, "retry": _retry()})


def _retry() -> int:
    return random.randint(*RETRY_MS)  # noqa: S311 -- jitter, not a secret
