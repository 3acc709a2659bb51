"""Runs the demo until SIGTERM or SIGINT: `python -m recovery.demo URL [FOLDER]`; workers write their logs there."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from recovery.demo import failing_queues, healthy_queues
from recovery.demo.runtime import CLOSING, DemoRuntime

PARTS = (
    healthy_queues.emails,
    healthy_queues.reports,
    healthy_queues.notifications,
    healthy_queues.reminders,
    healthy_queues.orders,
    healthy_queues.housekeeping,
    failing_queues.payments,
    failing_queues.archive,
    failing_queues.campaigns,
    failing_queues.imports,
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
