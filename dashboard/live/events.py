"""What goes over an event stream, as bytes: pure functions, one for each kind of line.

Server-sent events: fields end with a newline, an event ends with an empty line, a line that begins with a
colon is a comment. JSON has no raw newline, so one `data` line always holds it.
"""

from __future__ import annotations

import json
import random
from enum import StrEnum
from typing import Any

from dashboard.live.image import Image
from recovery.domain.counts import Snapshot

RETRY_MS = (1000, 4000)  # a hundred tabs must not come back in the same instant
BEAT = b": beat\n\n"  # keeps proxies from closing a quiet stream, and finds readers that are gone


class Ending(StrEnum):
    """Why the server ends a stream; the browser decides by it whether to come back."""

    RESTARTING = "restarting"
    LOGGED_OUT = "logged-out"
    ROLE_CHANGED = "role-changed"  # it comes back with what the new role may see


def event(kind: str, values: dict[str, Any], *, id: str = "") -> bytes:
    """One event. `id` comes back as Last-Event-ID when the browser reconnects."""
    body = json.dumps(values, separators=(",", ":"))
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {kind}\ndata: {body}\n\n".encode("ascii")


def opening(now_ms: int) -> bytes:
    """First bytes of every stream: a comment that flushes the headers, the pause before a reconnect, and
    `hello`, by which the browser tells a live stream from one that a proxy collects in a buffer."""
    return f": unstall\nretry: {_retry()}\n\n".encode("ascii") + event("hello", {"now": now_ms})


def tick(image: Image, now_ms: int) -> bytes:
    """The newest snapshot's number and how far to trust it; the pages then fetch what they show."""
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
    """Deployments that do not answer, in a sentence each."""
    return [f"{sample.name}: {sample.error}" for sample in snapshot.deployments if sample.error]


def _held(image: Image) -> list[str]:
    """Without the time that is left: a page asks anew when this changes."""
    return [f"{name}: auto-recovery paused" for name in image.held]


def _consoles(image: Image) -> list[str]:
    return [one.words for one in image.leader.consoles] if image.leader else []


def bye(ending: Ending) -> bytes:
    """Last bytes of a stream that the server ends; `retry` spreads the reconnects."""
    return event("bye", {"reason": ending.value, "retry": _retry()})


def _retry() -> int:
    return random.randint(*RETRY_MS)  # noqa: S311 -- jitter, not a secret
