"""Serves /healthz and /readyz as a small ASGI application beside Django, which answers from memory.

/healthz: the event loop of this process turns. Whatever else fails, a restart would not mend it.
/readyz: requests can be served, and what people do can be recorded. Where it answers 503 another process may do
better. While the state store or the scheduler is away it stays 200: the pages work, and they say why.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dashboard.live import state_cache
from dashboard.live.asgi import Receive, Scope, Send
from dashboard.live.asgi import refuse as answer
from dashboard.live.cached_state import SnapshotHealth
from dashboard.server import database_check
from recovery import config, shared_clock
from recovery.domain.scanners.types import ScannerKind
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.queries import SLACK, every, is_late
from recovery.stores import thread_pool
from recovery.version import VERSION

log = logging.getLogger(__name__)

ALIVE, READY = "/healthz", "/readyz"
PATHS = frozenset({ALIVE, READY})
EVERY = 5.0  # seconds between two checks of the database
AGAIN = 1.0  # while something is wrong with it
PATIENCE = 8.0  # seconds for one: SQLite queues five of them for its lock, PostgreSQL is given up after three
_UNASKED = "not checked yet"


class Probes:
    """Answers probes. `check`: what is wrong with the database, and its message; it blocks, in a thread of its own."""

    def __init__(self, check: Callable[[], tuple[str, str]] = database_check.find_problem) -> None:
        self._check = check
        self._trouble = _UNASKED
        self._thread: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await answer(send, 405, "Probes accept GET only.", [(b"allow", b"GET, HEAD")])
            return
        now = shared_clock.now()
        status, told = _alive(now) if scope["path"] == ALIVE else _ready(self._trouble, state_cache.health())
        await answer(send, status, json.dumps(told), kind=b"application/json")

    def start(self) -> None:
        self._thread = thread_pool.start_pool(1, "database-check")
        self._task = asyncio.create_task(self._run(), name="database check")

    async def stop(self) -> None:
        """Stops the checks, without waiting for one that is under way."""
        if self._task:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._thread:
            self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while True:
            under_way = asyncio.get_running_loop().run_in_executor(self._thread, self._check)
            done, _ = await asyncio.wait((under_way,), timeout=PATIENCE)
            if not done:
                self._say(database_check.SILENT, f"nothing for {PATIENCE:g} s")
            try:
                self._say(*await under_way)
            except Exception:
                log.exception("the database cannot be checked")
                self._trouble = database_check.SILENT
            await asyncio.sleep(AGAIN if self._trouble else EVERY)

    def _say(self, trouble: str, why: str) -> None:
        """Logs a change once, not at each check."""
        if trouble and trouble != self._trouble:
            log.warning("not ready: the database %s: %s", trouble, " ".join(why.split()))
        elif not trouble and self._trouble not in ("", _UNASKED):
            log.warning("ready again: the database can be used")
        self._trouble = trouble


def _alive(now: int) -> tuple[int, dict[str, object]]:
    return 200, {"alive": True, "version": VERSION, "scanners": _scanners(now), "other_consoles": _consoles()}


def _ready(trouble: str, health: SnapshotHealth) -> tuple[int, dict[str, object]]:
    """Returns what is missing, never its address."""
    reasons = [f"database: {trouble}"] if trouble else []
    return 503 if reasons else 200, {"ready": not reasons, "reasons": reasons, "degraded": _degraded(health)}


def _degraded(health: SnapshotHealth) -> list[str]:
    """Returns what does not work, while pages still do."""
    if health.error:
        return ["state store: does not answer"]
    if health.refuses:
        return ["state store: takes no writes"]
    if health.snapshot_age_ms is None:
        return ["snapshot: none yet"]
    if health.stale:
        return [f"snapshot: {health.snapshot_age_ms // 1000} s old"]
    return ["scheduler: no leader"] if health.is_unled else []


def _consoles() -> dict[str, str] | None:
    """Returns by deployment what another console does there. Where it runs is shown only to logged-in users."""
    image = state_cache.cached_state()
    if image is None or image.leader is None:
        return None
    acting = {one.deployment for one in image.leader.consoles if one.acts}
    return {one.deployment: "acts" if one.deployment in acting else "stands by" for one in image.leader.consoles}


def _scanners(now: int) -> dict[str, dict[str, object]] | None:
    """Returns how long ago each scanner last succeeded; None where that is not known."""
    known = state_cache.scanner_pulses()
    if known is None:
        return None
    return {scan.value: _succeeded(scan, known[scan], now) for scan in ScannerKind if scan in known}


def _succeeded(scan: ScannerKind, pulse: LastScannerRun, now: int) -> dict[str, object]:
    at = pulse.succeeded_at
    return {
        "succeeded_ms_ago": None if at is None or at > now + SLACK else max(0, now - at),
        "late": is_late(every(config.current(), scan), at, now),
    }
