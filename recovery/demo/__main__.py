"""`python -m recovery.demo URL`: plays until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading

from recovery.demo import everyday, trouble
from recovery.demo.stage import CLOSING, Stage

PARTS = (
    everyday.emails,
    everyday.reports,
    everyday.notifications,
    everyday.reminders,
    everyday.orders,
    everyday.housekeeping,
    trouble.payments,
    trouble.archive,
    trouble.campaigns,
    trouble.imports,
)


async def play(url: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    stage = Stage(url)
    for part in PARTS:
        await part(stage)
    await ended.wait()
    # A worker whose store is away closes for ever, at full speed; the timer's thread does not ask it.
    threading.Timer(CLOSING, os._exit, (0,)).start()
    await stage.close()
    os._exit(0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    asyncio.run(play(sys.argv[1]))
