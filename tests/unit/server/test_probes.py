"""/healthz and /readyz answer from memory, with what was last found."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from dashboard.live import state_cache
from dashboard.live.cached_state import SnapshotHealth
from dashboard.server import probes
from dashboard.server.probes import Probes
from recovery.version import VERSION
from tests.support.patience import patience

FRESH = SnapshotHealth(snapshot_age_ms=800, scheduler_alive=True, stale=False)
SECRET = "connection to server at 10.0.0.2 failed: password hunter2"


@pytest.fixture(autouse=True)
def health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "health", lambda: FRESH)


async def test_alive_asks_nobody_and_says_which_version_it_is() -> None:
    status, told = await _ask(Probes(_never), "/healthz")
    assert (status, told) == (200, {"alive": True, "version": VERSION, "scanners": None, "other_consoles": None})


async def test_ready_is_said_when_the_database_has_taken_a_write() -> None:
    asked = Probes(lambda: ("", ""))
    assert (await _ask(asked, "/readyz"))[0] == 503, "nobody knows yet"
    asked.start()
    await _until(asked, 200)
    assert (await _ask(asked, "/readyz"))[1] == {"ready": True, "reasons": [], "degraded": []}
    await asked.stop()


@pytest.mark.parametrize(
    ("health", "lack"),
    [
        (SnapshotHealth(error="redis://:hunter2@10.0.0.1 refused"), "state store: does not answer"),
        (SnapshotHealth(), "snapshot: none yet"),
        (SnapshotHealth(snapshot_age_ms=34_500), "snapshot: 34 s old"),
        (SnapshotHealth(snapshot_age_ms=800, stale=False, is_unled=True), "scheduler: no leader"),
    ],
)
async def test_it_stays_ready_while_the_pages_work_and_says_what_they_lack(
    monkeypatch: pytest.MonkeyPatch, health: SnapshotHealth, lack: str
) -> None:
    monkeypatch.setattr(state_cache, "health", lambda: health)
    asked = Probes(lambda: ("", ""))
    asked.start()
    await _until(asked, 200)
    assert (await _ask(asked, "/readyz"))[1] == {"ready": True, "reasons": [], "degraded": [lack]}
    await asked.stop()


async def test_what_the_driver_says_is_logged_once_and_told_to_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(probes, "AGAIN", 0.01)
    looks = threading.Semaphore(0)

    def dead() -> tuple[str, str]:
        looks.release()
        return probes.SILENT, SECRET

    asked = Probes(dead)
    asked.start()
    await _until(asked, 503, "database: does not answer")
    for _ in range(3):
        assert await asyncio.to_thread(looks.acquire, timeout=patience(5))
    assert json.dumps((await _ask(asked, "/readyz"))[1]).count("hunter2") == 0
    assert [record.message for record in caplog.records if "hunter2" in record.message] == [
        f"not ready: the database does not answer: {SECRET}"
    ]
    await asked.stop()


async def test_a_database_that_hangs_costs_one_thread_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 0.05)
    monkeypatch.setattr(probes, "AGAIN", 0.01)
    released, looks = threading.Event(), threading.Semaphore(0)

    def hangs() -> tuple[str, str]:
        looks.release()
        released.wait()
        return "", ""

    asked = Probes(hangs)
    asked.start()
    await _until(asked, 503, "database: does not answer")
    assert looks.acquire(blocking=False)
    assert not looks.acquire(blocking=False), "it is asked anew when it has answered"
    released.set()
    await _until(asked, 200)
    await asked.stop()


async def test_a_probe_is_no_form() -> None:
    assert (await _ask(Probes(_never), "/healthz", "POST"))[0] == 405


async def _nothing() -> Any:
    raise AssertionError


def _never() -> tuple[str, str]:
    raise AssertionError


async def _ask(asked: Probes, path: str, method: str = "GET") -> tuple[int, Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await asked({"type": "http", "method": method, "path": path, "headers": []}, _nothing, send)
    body = sent[1]["body"]
    return sent[0]["status"], json.loads(body) if body.startswith(b"{") else body


async def _until(asked: Probes, status: int, reason: str = "") -> None:
    async with asyncio.timeout(patience(10)):
        while True:
            found, told = await _ask(asked, "/readyz")
            if found == status and told["reasons"] == ([reason] if reason else []):
                return
            await asyncio.sleep(0.001)
