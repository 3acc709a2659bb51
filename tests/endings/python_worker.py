"""`python python_worker.py URL QUEUE NAME DOES OPTIONS`: a worker of BullMQ's Python port that hangs, spins or swells.

SIGTERM closes it as an application does: it takes nothing new and waits for the job in hand.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

from bullmq import Worker

_PIECE = 4_000_000  # bytes


async def run(url: str, queue: str, name: str, does: str, options: dict[str, Any]) -> None:
    async def process(job: Any, _token: str) -> None:
        await asyncio.sleep(job.data["after"])
        if does == "spin":
            while True:
                pass
        kept = []
        while does == "swell":
            kept.append(bytearray(b"x") * _PIECE)
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    # It blocks for five seconds at a time, and the client would give up after five.
    worker = Worker(queue, process, {**options, "connection": f"{url}?socket_timeout=30", "name": name})
    closing = set[Any]()
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: closing.add(asyncio.ensure_future(worker.close()))
    )
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:5], json.loads(sys.argv[5])))
