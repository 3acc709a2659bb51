"""The worker of `imports`, alone in its process because it will be killed: `python -m recovery.demo.doomed URL`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from recovery.demo.stage import CHANCE, worker

LOCK_MS = 10_000  # short, so that its orphans are without a lock soon after its death
CHECK_MS = 10_000
STALLS = 2
STEPS = 5


async def run(url: str) -> None:
    worker(
        url,
        "imports",
        read_in,
        concurrency=2,
        lockDuration=LOCK_MS,
        stalledInterval=CHECK_MS,
        maxStalledCount=STALLS,
    )
    await asyncio.Event().wait()


async def read_in(job: Any, _token: str) -> dict[str, Any]:
    rows = job.data["rows"]
    for step in range(1, STEPS + 1):
        await asyncio.sleep(CHANCE.uniform(1.0, 2.0))
        await job.log(f"{rows * step // STEPS} of {rows} rows")
        await job.updateProgress(100 * step // STEPS)
    return {"rows": rows}


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
