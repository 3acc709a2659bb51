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

from django.db import DatabaseError, connection, connections, transaction

from dashboard.base.error_pages import is_unmigrated
from dashboard.live import state_cache
from dashboard.live.asgi import Receive, Scope, Send
from dashboard.live.asgi import refuse as answer
from dashboard.live.cached_state import SnapshotHealth
from dashboard.models import User
from recovery import config, shared_clock
from recovery.domain.scanners.types import ScannerKind
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.queries import SLACK, every, is_late
from recovery.stores import thread_pool
from recovery.version import VERSION

# -- database check
# Checks that our own database answers, is migrated and takes writes, by trying: no setting of it says so. A database
# that was made read-only, a standby and a full disk all answer every read. So the check writes. On SQLite that is one
# page, with a number in the file's head that nobody else uses. On PostgreSQL it would leave a dead row each time, so
# there the check asks to change a row that does not exist, which a read-only server refuses, and lets the server put
# a megabyte aside on its disk, which a full one refuses.


SILENT = "does not answer"
UNMIGRATED = "is not migrated"
READ_ONLY = "cannot be written to"
_NOBODY = -1
_WRITES = {
    "sqlite": ("PRAGMA user_version = 1",),
    "postgresql": (
        "SET LOCAL work_mem = '64kB'",
        "WITH aside AS MATERIALIZED (SELECT repeat('x', 8000) FROM generate_series(1, 128)) SELECT count(*) FROM aside",
    ),
}


def find_problem() -> tuple[str, str]:
    """Returns the problem in a few words and the driver's message; "" twice: none. Blocks while it is locked."""
    try:
        return _read() or _write() or ("", "")
    finally:
        connections.close_all()


def _read() -> tuple[str, str] | None:
    try:
        User.objects.exists()  # of a real table: an empty file in the place of the database answers everything else
    except DatabaseError as error:
        return (UNMIGRATED if is_unmigrated(error) else SILENT), str(error)
    return None


def _write() -> tuple[str, str] | None:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            User.objects.filter(pk=_NOBODY).update(is_active=False)
            for statement in _WRITES[connection.vendor]:
                cursor.execute(statement)
    except DatabaseError as error:
        return READ_ONLY, str(error)
    return None


# -- probes


log = logging.getLogger(__name__)

ALIVE, READY = "/healthz", "/readyz"
PATHS = frozenset({ALIVE, READY})
EVERY = 5.0  # seconds between two checks of the database
AGAIN = 1.0  # while something is wrong with it
PATIENCE = 8.0  # seconds for one: SQLite queues five of them for its lock, PostgreSQL is given up after three
_UNASKED = "not checked yet"


class Probes:
    """Answers probes. `check`: what is wrong with the database, and its message; it blocks, in a thread of its own."""

    def __init__(self, check: Callable[[], tuple[str, str]] = find_problem) -> None:
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
                self._say(SILENT, f"nothing for {PATIENCE:g} s")
            try:
                self._say(*await under_way)
            except Exception:
                log.exception("the database cannot be checked")
                self._trouble = SILENT
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
