"""Serves the web process as one ASGI application: Django's pages, and /live/, probes, gate, metrics, idempotency.

The lifespan starts the state cache (the mirror) and the hub of the streams, and ends them in the reverse order.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from contextlib import ExitStack

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
_pages = get_asgi_application()  # sets Django up; nothing that needs its apps may be imported before

from dashboard import failed_logins, intake, probes, security_headers  # noqa: E402
from dashboard.api import faults  # noqa: E402
from dashboard.gate import house  # noqa: E402
from dashboard.idempotency import house as idempotency  # noqa: E402
from dashboard.live import events, logs, mirror  # noqa: E402
from dashboard.live.hub import Hub  # noqa: E402
from dashboard.live.image import Image  # noqa: E402
from dashboard.live.logs import Logs  # noqa: E402
from dashboard.live.mirror import Mirror  # noqa: E402
from dashboard.live.stream import Receive, Scope, Send, Streams, refuse  # noqa: E402
from dashboard.live.vigil import Vigil  # noqa: E402
from dashboard.metrics import app as metrics  # noqa: E402
from dashboard.page_concurrency import PageConcurrency  # noqa: E402
from dashboard.page_sender import PageSender  # noqa: E402
from recovery import config, shared_clock  # noqa: E402
from recovery.connections import registry  # noqa: E402
from recovery.logs import threads  # noqa: E402

log = logging.getLogger(__name__)

BROKEN = "This is a fault in Unstall. It is in the log of the web process."
THREADS = 4  # for what else would block the event loop: two lookups and two scrapes at once

hub = Hub()
_streams = Streams(hub)
_logs = Logs(hub)
_metrics = metrics.Metrics(mirror.picture, lambda: len(hub))
_gate = house.GateHouse(mirror.picture)
_idempotency = idempotency.IdempotencyHouse()
_probes = probes.Probes()
_places = PageConcurrency(hub.visitor)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close"})
    else:
        await _answer_always(scope, receive, security_headers.adding(scope, send))


async def _answer_always(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 500 where a fault of ours ends a request: the server's own answer to that has none of our headers."""
    try:
        await _answer(scope, receive, send)
    except Exception as fault:
        try:
            await _refuse(scope, send, intake.Refused(500, BROKEN))
        except RuntimeError:  # the answer has begun: the server logs the fault and drops the connection
            raise fault from None
        log.exception("a request met a fault")


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"].startswith(logs.PATH):
        await _logs(scope, receive, send)
    elif scope["path"].startswith("/live/"):
        await _streams(scope, receive, send)
    elif scope["path"] in probes.PATHS:
        await _probes(scope, receive, send)
    elif scope["path"] == house.PATH:
        await _gate(scope, receive, send)
    elif scope["path"] == metrics.PATH:
        await _metrics(scope, receive, send)
    elif scope["path"] == idempotency.PATH or scope["path"].startswith(f"{idempotency.PATH}/"):
        await _idempotency(scope, receive, send)
    else:
        await _page(scope, receive, send)


async def _page(scope: Scope, receive: Receive, send: Send) -> None:
    with ExitStack() as sent, ExitStack() as answered, ExitStack() as waiting:
        try:
            request = await intake.whole(receive, waiting)
            await _places.take(scope, answered, sent)
            waiting.close()
        except intake.Left:
            return
        except intake.Refused as refused:
            await _refuse(scope, send, refused)
            return
        await _pages(scope, request, PageSender(scope, send, answered.close).send)


async def _refuse(scope: Scope, send: Send, refused: intake.Refused) -> None:
    """Sends a refusal: as an API error under /api/, else as plain text."""
    close = [(b"connection", b"close")]
    if refused.retry:
        close.append((b"retry-after", str(refused.retry).encode()))
    if not scope["path"].startswith(faults.ROOT):
        await refuse(send, refused.status, str(refused), close)
        return
    told = faults.of_site(refused.status, str(refused)).content.decode()
    await refuse(send, refused.status, told, close, b"application/json")


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    mirrored = Mirror(_publish)
    try:
        asyncio.get_running_loop().set_default_executor(threads.started(THREADS, "web"))
        hub.start()
        await mirrored.start()
        _logs.start(config.current())
        _gate.start()
        _idempotency.start()
        _probes.start()
    except Exception as failure:
        log.exception("the web process cannot start")
        await send({"type": "lifespan.startup.failed", "message": str(failure)})
        return
    vigil = Vigil(config.current(), mirrored.image)
    vigil.start()
    noting = asyncio.create_task(failed_logins.write_for_ever(), name="failed log-ins")
    # What is loaded now stays loaded: the garbage collector need not scan it each time, which would stall every stream.
    gc.freeze()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    noting.cancel()
    await failed_logins.write_sums(is_last=True)
    await vigil.stop()
    await _probes.stop()
    await hub.close()
    await _logs.stop()
    await _gate.stop()
    await _idempotency.stop()
    await mirrored.stop()
    await asyncio.to_thread(registry.reset)  # Django closes no connection to a database in an event loop
    await send({"type": "lifespan.shutdown.complete"})


def _publish(image: Image) -> None:
    """Publishes the state to all streams as one tick, which is built once, not once per stream."""
    hub.publish(events.tick(image, shared_clock.now()))
