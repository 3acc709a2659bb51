"""Two monitors, a worker that burns the CPU, and a gate: the page follows, and says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from recovery.stores.state import state_keys
from tests.integration.running import ROOT
from tests.support.processes.processes import end, spawn
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.waiting import until

Open = Callable[..., Page]
BASE = "bull:render"
PATIENCE = 90.0  # seconds; 20 on a machine that does nothing else
_MS = PATIENCE * 1000
# A third of the cores is more than eu-2 may take.
_SETTINGS = """
[gate]
open_on_loopback = true
[[servers]]
id = "eu-1"
close_at = 99
open_at = 89
[[servers]]
id = "eu-2"
close_at = 22
open_at = 11
"""
# A worker as the library connects it; told so, it burns a third of the cores, for as long as it lives.
_WORKER = """
import multiprocessing, os, sys, redis
client = redis.Redis(port=int(sys.argv[1]), single_connection_client=True)
client.client_setname(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
def burn(parent):
    while os.getppid() == parent:
        sum(range(100_000))
for _ in range(multiprocessing.cpu_count() // 3 + 1):
    multiprocessing.Process(target=burn, args=(os.getpid(),)).start()
sys.stdin.readline()
"""


@pytest.fixture
def site(valkey: Store, state_store: Store) -> Iterator[Site]:
    client = valkey.client
    client.hset(f"{BASE}:meta", "version", "bullmq:5.81.5")
    client.set(f"{BASE}:stalled-check", "1", px=3_600_000)
    fields = {"name": "render", "data": "{}", "timestamp": 1_760_000_000_000, "processedOn": 1_760_000_000_000}
    for id in ("1", "2"):
        client.hset(f"{BASE}:{id}", mapping={**fields, "pb": "render-1"})
        client.set(f"{BASE}:{id}:lock", "w:1", px=3_600_000)
        client.lpush(f"{BASE}:active", id)
    with Site(valkey, state_store, settings=_SETTINGS) as made:
        yield made


@contextmanager
def monitor(site: Site, server: str, pattern: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {
        "PATH": os.environ["PATH"],
        "UNSTALL_STATE_URL": site.state.url,
        "UNSTALL_SERVER_ID": server,
        "UNSTALL_WORKER_PATTERNS": pattern,
    }
    process = spawn([sys.executable, "-m", "recovery.monitor"], directory=ROOT, environ=environ)
    try:
        yield process
    finally:
        end(process)


@contextmanager
def worker(site: Site, script: Path) -> Iterator[subprocess.Popen[bytes]]:
    script.write_text(_WORKER)
    name = f"bull:{b64encode(b'render').decode()}:w:render-1"
    command = [sys.executable, str(script), str(site.queues.port), name]
    process = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        end(process)


def tell(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def ask_gate(site: Site) -> int:
    try:
        with urllib.request.urlopen(f"{site.url}/cpu-gate?server=eu-2&caller=nightly", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def traces(page: Page) -> dict[str, list[Any]]:
    """What the chart draws now: values by name."""
    found = page.evaluate(
        "(document.getElementById('server-chart')?.data || []).map((one) => [one.name, one.text || one.y])"
    )
    return dict(found)


def highest(page: Page) -> float:
    return max((value for value in traces(page).get("raw", []) if value is not None), default=0.0)


def shaded(page: Page) -> int:
    found: int = page.evaluate(
        "(document.getElementById('server-chart')?.layout?.shapes || []).filter((one) => one.type === 'rect').length"
    )
    return found


def _turned(page: Page) -> bool:
    """A refresh may take the key's target away in the moment in which it is pressed; a person presses again."""
    if not page.url.endswith("/servers/eu-2?range=15m"):
        page.locator("#server-select").press("ArrowDown")
    return page.url.endswith("/servers/eu-2?range=15m")


def test_charts_follow_the_gate_closes_marks_appear_and_a_silent_server_goes(
    site: Site, open_page: Open, tmp_path: Path
) -> None:
    pattern = f"render-{token_hex(4)}"
    with (
        monitor(site, "eu-1", "no-such-worker") as first,
        monitor(site, "eu-2", pattern),
        worker(site, tmp_path / f"{pattern}.py") as hand,
    ):
        page = open_page("/servers/eu-1?range=15m", site=_known(site))
        cards = page.locator(".server-card")
        expect(cards).to_have_count(2, timeout=_MS)
        page.evaluate("window.marked = true")

        # The selector, by keyboard: without a load of the page, and the address follows.
        until(lambda: _turned(page), PATIENCE, "the address follows")
        expect(page.locator("#server-name")).to_have_text("eu-2")
        expect(page.locator("#server-cards [aria-current]")).to_have_text("eu-2")
        expect(page.locator("#server-select")).to_be_focused()
        workers = page.locator(".server-workers")
        expect(workers).to_contain_text("render-1", timeout=_MS)
        expect(workers).to_contain_text(BASE)
        expect(workers.locator("[data-label=Active]")).to_have_text("2", timeout=_MS)

        # Its CPU is burnt: the chart follows, and the gate closes.
        tell(hand)
        mine = page.locator(".server-card", has=page.locator("#server-eu-2"))
        expect(mine.locator(".badge")).to_have_text("gate closed", timeout=_MS)
        until(lambda: highest(page) > 22, PATIENCE, "the chart follows")
        until(lambda: shaded(page), PATIENCE, "the closed period is shaded")
        assert until(lambda: ask_gate(site), PATIENCE) == 503
        until(lambda: traces(page).get("refused"), PATIENCE, "the refusal is marked")
        expect(page.locator("#server-now")).to_contain_text("nightly", timeout=_MS)

        # A job of that worker loses its lock: it was lost here.
        site.queues.client.delete(f"{BASE}:1:lock")
        lost = until(lambda: traces(page).get("lost on this server"), PATIENCE, "the lost job is marked")
        assert lost == [f"1 job of {BASE}"]
        expect(page.locator("#server-now")).to_contain_text("1 stuck job", timeout=_MS)

        # A server whose monitor ends fades, and goes when its key does.
        first.send_signal(signal.SIGTERM)
        other = page.locator(".server-card", has=page.locator("#server-eu-1"))
        expect(other).to_have_attribute("data-old", "", timeout=_MS)
        expect(other).to_contain_text("removed in", timeout=_MS)
        site.state.client.pexpire(state_keys.server_metrics("eu-1"), 1)
        expect(cards).to_have_count(1, timeout=_MS)
        expect(page.locator(".gone")).to_contain_text("eu-1", timeout=_MS)

        # Its past stays, one click away and still without a load.
        page.locator(".gone a", has_text="eu-1").click()
        expect(page.locator("#server-gone")).to_contain_text("gone", timeout=_MS)
        until(lambda: traces(page).get("raw"), PATIENCE, "its past is drawn")
        assert page.evaluate("window.marked") is True


def _known(site: Site) -> Site:
    """Once both servers have told of themselves, and a page shows both."""
    until(lambda: _cards(site) == 2, PATIENCE, "both servers are known")
    return site


def _cards(site: Site) -> int:
    body = site.web.get("/servers", "viewer").body
    return sum(f'id="server-{id}"'.encode() in body for id in ("eu-1", "eu-2"))
