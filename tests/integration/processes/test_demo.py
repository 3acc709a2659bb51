"""The demo: real jobs of the real library, something of every kind within seconds, and nothing that grows."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from recovery.domain.queues.types import QueueSample
from recovery.processes.all_in_one import STATE_DB
from recovery.reads.queues import snapshot_store
from tests.integration.running import ROOT, Up
from tests.support.processes.processes import end, spawn
from tests.support.stores.stores import Store
from tests.support.waiting import until

pytest.importorskip("bullmq", reason="the extra `demo` is not installed")

from recovery.demo.runtime import KEPT_COMPLETED

pytestmark = pytest.mark.timeout(120)

QUEUES = ("emails", "reports", "notifications", "reminders", "orders", "packing", "invoices", "housekeeping")
TROUBLED = ("payments", "archive", "campaigns", "imports")
ALIVE_WITHIN = 20.0  # ten on a machine that does nothing else
ENDS_WITHIN = 15.0  # two, likewise


# Adds so many jobs, and works on them.
_RECEIPTS = """
import asyncio, sys
from recovery.demo.runtime import DemoRuntime

async def do_nothing(job, token):
    pass

async def play():
    stage = DemoRuntime(sys.argv[1])
    await stage.queue("emails").addBulk([{"name": "receipt", "data": {}}] * int(sys.argv[2]))
    stage.work("emails", do_nothing, concurrency=20)
    await asyncio.Event().wait()

asyncio.run(play())
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[Store]:
    """A store in which the demo plays."""
    with Store() as store:
        process = spawn([sys.executable, "-m", "recovery.demo", store.url], directory=ROOT)
        yield store
        end(process)


@pytest.fixture
def demo(valkey: Store) -> Iterator[psutil.Process]:
    """One of the test's own, seen from its start."""
    process = spawn([sys.executable, "-m", "recovery.demo", valkey.url], directory=ROOT)
    yield psutil.Process(process.pid)
    end(process)


def test_something_of_every_kind_is_there_at_once(stage: Store) -> None:
    seen = stage.client
    until(lambda: seen.zcard("demo:emails:completed"), ALIVE_WITHIN)
    until(lambda: seen.llen("demo:reports:active"), ALIVE_WITHIN)
    until(lambda: seen.zcard("demo:notifications:prioritized"), ALIVE_WITHIN)
    until(lambda: seen.zcard("demo:reminders:delayed"), ALIVE_WITHIN)
    until(lambda: seen.zcard("demo:orders:waiting-children"), ALIVE_WITHIN)
    until(lambda: seen.zcard("demo:housekeeping:repeat") == 3, ALIVE_WITHIN)
    until(lambda: seen.llen("demo:archive:wait"), ALIVE_WITHIN)
    until(lambda: seen.hexists("demo:campaigns:meta", "paused"), ALIVE_WITHIN)
    until(lambda: seen.zcard("demo:payments:failed"), ALIVE_WITHIN)
    until(lambda: seen.exists("demo:emails:metrics:completed"), ALIVE_WITHIN)


def test_a_worker_that_had_nothing_to_do_for_a_while_takes_the_next_job(stage: Store) -> None:
    until(lambda: stage.client.zcard("demo:housekeeping:completed") >= 2, 20)


def test_a_worker_is_really_killed_and_leaves_what_it_had_in_hand(demo: psutil.Process, valkey: Store) -> None:
    until(lambda: b"demo:imports:w:imports-1" in _named(valkey), 20)
    until(lambda: b"demo:imports:w:imports-1" not in _named(valkey), 30)
    assert valkey.client.llen("demo:imports:active") > 0


def test_a_queue_keeps_so_many_finished_jobs_and_no_more(valkey: Store) -> None:
    """In a process of its own: the library does not always close every connection of a worker that ends."""
    client, count = valkey.client, KEPT_COMPLETED + 50
    process = spawn([sys.executable, "-c", _RECEIPTS, valkey.url, str(count)], directory=ROOT)
    try:
        until(lambda: client.zcard("demo:emails:completed"), ALIVE_WITHIN)
        until(lambda: not client.llen("demo:emails:wait") and not client.llen("demo:emails:active"), ALIVE_WITHIN)
        assert client.zcard("demo:emails:completed") == KEPT_COMPLETED
        assert int(client.get("demo:emails:id")) == count
    finally:
        end(process)


def test_it_ends_quickly_even_when_the_store_is_gone(demo: psutil.Process, valkey: Store) -> None:
    until(lambda: valkey.client.zcard("demo:emails:completed"), ALIVE_WITHIN)
    family = demo.children(recursive=True)
    valkey.kill()
    demo.send_signal(signal.SIGTERM)
    until(lambda: demo.status() == psutil.STATUS_ZOMBIE, ENDS_WITHIN)
    until(lambda: not any(_runs(one) for one in family), ENDS_WITHIN)


def test_up_without_a_redis_plays_the_demo_and_a_command_beside_it_sees_what_the_pages_see() -> None:
    up = Up(Path(tempfile.mkdtemp(prefix="up-")))
    try:
        up.ready()
        assert "Watching the demo" in up.said
        names = {f"demo:{name}" for name in (*QUEUES, *TROUBLED)}
        until(lambda: {sample.ref.base for sample in _snapshot(up)} >= names, ALIVE_WITHIN, "all queues of the demo")
        until(lambda: _shipped(up) >= {"payments.log", "emails.log"}, ALIVE_WITHIN, "its workers' logs are shipped")
        assert "demo:emails" in up.shell("queues").stdout
        assert up.end() == 0
        assert up.others() == []
        assert not (up.directory / "up.json").exists()
        alone = up.shell("queues")
        assert (alone.returncode, alone.stdout) == (2, "")
        assert "No deployment is configured" in alone.stderr
    finally:
        up.close()


def _snapshot(up: Up) -> tuple[QueueSample, ...]:
    with redis.Redis(unix_socket_path=str(up.directory / "valkey.sock"), db=STATE_DB) as store:
        found = snapshot_store.fetch(store)
    return found.queues if found else ()


def _shipped(up: Up) -> set[str]:
    """The names of the files whose lines are in the state store."""
    with redis.Redis(unix_socket_path=str(up.directory / "valkey.sock"), db=STATE_DB) as store:
        sets = [raw for key in store.scan_iter(b"worker-monitor:*:log-labels") for raw in store.hkeys(key)]  # type: ignore[union-attr]  # sync
    return {Path(json.loads(raw).get("file", "")).name for raw in sets}


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _named(store: Store) -> set[bytes]:
    return {client["name"].encode() for client in store.client.client_list()}
