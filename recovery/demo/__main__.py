"""Runs the demo until SIGTERM or SIGINT: `python -m recovery.demo URL [FOLDER]`; workers write their logs there."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from recovery.demo import healthy_queues
from recovery.demo.runtime import CHANCE, CLOSING, DemoRuntime
from recovery.demo.sample_data import customer, order, payment
from recovery.processes.child import parent_pipe, tied_to_parent

# -- failing queues
# Queues with problems: failing, without a worker, paused, and one whose worker is killed again and again.


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


# --   main


PARTS = (
    healthy_queues.emails,
    healthy_queues.reports,
    healthy_queues.notifications,
    healthy_queues.reminders,
    healthy_queues.orders,
    healthy_queues.housekeeping,
    payments,
    archive,
    campaigns,
    imports,
)


async def play(url: str, logs: Path | None = None) -> None:
    """Runs until a signal comes, also while the parts still set up: a store that is away holds them for minutes."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    stage = DemoRuntime(url, logs)
    playing = asyncio.ensure_future(_play_all(stage))
    asked = asyncio.ensure_future(ended.wait())
    await asyncio.wait({playing, asked}, return_when=asyncio.FIRST_COMPLETED)
    # A worker whose store is away closes for ever, at full speed; the timer's thread does not ask it.
    threading.Timer(CLOSING, os._exit, (int(playing.done()),)).start()
    if playing.done():
        playing.result()  # it only ends by an error
    await stage.close()
    os._exit(0)


async def _play_all(stage: DemoRuntime) -> None:
    for part in PARTS:
        await part(stage)
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    logging.raiseExceptions = False  # a full disk costs the logs, not the demo
    asyncio.run(play(sys.argv[1], *map(Path, sys.argv[2:3])))
