"""Worker program of a drill, like `node/worker.mjs`, with the official Python port of BullMQ. Started by its path,
without the project.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from importlib.metadata import version
from typing import Any

from bullmq import Queue, Worker

WORDS = 300  # characters of a text that are worth telling
PATIENCE = 30  # seconds for one answer: a worker blocks for ten, and the client would give up after five
ORDER: dict[str, Any] = json.loads(os.environ.pop("DRILL_ORDER"))


def tell(event: str, **more: Any) -> None:
    sys.stderr.write(json.dumps({"event": event, **more}) + "\n")
    sys.stderr.flush()


def wrong(error: object, *_: object) -> None:
    tell("error", text=str(error)[:WORDS])


async def run() -> None:
    options = {"connection": connection(), "prefix": ORDER["prefix"]}
    if ORDER["role"] == "add":
        queue = Queue(ORDER["queue"], options)
        tell("added", job=str((await queue.add("drill", {})).id))
        await queue.close()
        return
    let_go = asyncio.Event()
    worker = Worker(ORDER["queue"], working(let_go), {**options, **ORDER["options"], "name": ORDER["worker"]})
    listen(worker)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, let_go.set)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    tell("ready", version=version("bullmq"), connection=await number(worker))
    await ended.wait()
    tell("closing")
    closing = asyncio.ensure_future(worker.close())
    await asyncio.wait({closing}, timeout=ORDER["shutdown"] / 1000)
    os._exit(0)


def working(let_go: asyncio.Event) -> Any:
    async def work(job: Any, _token: str) -> str:
        tell("started", job=str(job.id))
        let_go.clear()
        try:
            await asyncio.wait_for(let_go.wait(), ORDER["job"] / 1000)
        except TimeoutError:
            return "worked"
        return "let go"

    return work


def listen(worker: Any) -> None:
    worker.on("error", wrong)
    worker.on("completed", lambda job, *_: tell("completed", job=str(job.id)))
    worker.on("stalled", lambda job, *_: tell("stalled", job=str(job)))
    worker.on("failed", lambda job, error, *_: tell("failed", job=str(job.id), text=str(error)[:WORDS]))


def connection() -> dict[str, Any]:
    place = {name: value for name, value in ORDER["connection"].items() if value not in (None, "")}
    tls = place.pop("tls", None)
    if path := place.pop("path", None):
        place["unix_socket_path"] = path
    if tls:
        place |= {"ssl": True, "ssl_cert_reqs": "required" if tls["verify"] else "none"}
        place |= {"ssl_ca_certs": tls["ca"] or None, "ssl_certfile": tls["certificate"] or None}
        place |= {"ssl_keyfile": tls["key"] or None}
    return {**place, "socket_timeout": PATIENCE}


async def number(worker: Any) -> int | None:
    """Returns the client id of this worker's connection; an ACL may forbid to ask."""
    try:
        return int(await worker.client.client_id())
    except Exception:  # noqa: BLE001 - whatever it is, the drill goes on without
        return None


if __name__ == "__main__":
    try:
        asyncio.run(run())
    except Exception as error:  # noqa: BLE001 - reported to the drill
        wrong(error)
        sys.exit(1)
