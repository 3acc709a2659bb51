"""Queues with problems: failing, without a worker, paused, and one whose worker is killed again and again."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import Any

from recovery.demo.runtime import CHANCE, DemoRuntime
from recovery.demo.sample_data import customer, order, payment
from recovery.processes.child import parent_pipe, tied_to_parent

BACKLOG = 80  # jobs that wait for a worker that never comes; then the producer gives up
FEW = 15  # jobs before the worker that dies
FIRST_LIFE = 6.0  # seconds: there is an orphan within the first minute
LIFE = 45.0
DEATH = 60.0  # seconds without any worker: its orphans are seen, and not recovered
KILLED_AFTER = 20.0  # seconds we wait at most for it to have a job in hand

log = logging.getLogger("demo.payments")


class CardDeclined(Exception):
    pass


class GatewayTimeout(Exception):
    pass


async def payments(stage: DemoRuntime) -> None:
    """Sets up a failing queue: two kinds of error that a retry may heal, and one in our own code that no retry will."""
    queue = stage.queue("payments")

    async def charge(job: Any, _token: str) -> dict[str, Any]:
        log.debug("asking the gateway, Authorization: %s", job.data["headers"]["Authorization"])
        await asyncio.sleep(CHANCE.uniform(0.2, 0.8))
        luck = CHANCE.random()
        if luck < 0.2:
            raise GatewayTimeout(f"gateway did not answer within 800 ms (request {CHANCE.randrange(10**6)})")
        if luck < 0.35:
            raise CardDeclined(f"card declined: insufficient funds for order {job.data['order']}")
        if job.data["lines"][0]["amount"] == 3:
            raise KeyError("discount")
        return {"receipt": f"ch_{CHANCE.randrange(10**9)}"}

    async def buy() -> None:
        await queue.add("charge", payment(), {"attempts": 3, "backoff": {"type": "exponential", "delay": 2000}})

    async def refund() -> None:
        await queue.add("refund", payment(), {"attempts": 1})

    for _ in range(6):
        await refund()
    stage.work("payments", charge, concurrency=2)
    stage.every(3.0, buy)
    stage.every(11.0, refund)


async def archive(stage: DemoRuntime) -> None:
    """Sets up a queue without a worker: the oldest waiting job only grows older."""
    queue = stage.queue("archive")

    async def put_off() -> None:
        if await queue.getWaitingCount() < BACKLOG:
            await queue.add("to-cold-storage", order())

    for _ in range(12):
        await put_off()
    stage.every(12.0, put_off)


async def campaigns(stage: DemoRuntime) -> None:
    """Pauses a queue, with jobs in it."""
    queue = stage.queue("campaigns")
    await queue.pause()
    missing = 10 - await queue.getJobCountByTypes("waiting", "paused")
    await queue.addBulk([{"name": "autumn-sale", "data": {"to": customer()}} for _ in range(missing)])


async def imports(stage: DemoRuntime) -> None:
    """Sets up a queue whose worker process is really killed while it works, and comes back a minute later."""
    queue = stage.queue("imports")

    async def upload() -> None:
        if await queue.getWaitingCount() < FEW:
            await queue.add(
                "supplier-catalogue", {"supplier": CHANCE.randrange(1, 40), "rows": CHANCE.randint(1, 9) * 500}
            )

    for _ in range(4):
        await upload()
    stage.every(10.0, upload)
    stage.play(_live_and_die(stage, queue))


async def _live_and_die(stage: DemoRuntime, queue: Any) -> None:
    life = FIRST_LIFE
    while True:
        pipe = parent_pipe()
        argv = [
            sys.executable,
            "-m",
            "recovery.demo.crashing_worker",
            stage.url,
            *([str(stage.logs)] if stage.logs else []),
        ]
        process = await asyncio.create_subprocess_exec(*tied_to_parent(argv, signal.SIGKILL, pipe), pass_fds=(pipe,))
        try:
            await asyncio.sleep(life)
            await _until_busy(queue)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        await asyncio.sleep(DEATH)
        life = LIFE


async def _until_busy(queue: Any) -> None:
    for _ in range(int(KILLED_AFTER)):
        if await queue.getJobCountByTypes("active"):
            return
        await asyncio.sleep(1.0)
