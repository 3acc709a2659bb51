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

from dashboard.accounts import failed_logins  # noqa: E402
from dashboard.alerts.no_leader_watch import NoLeaderWatch  # noqa: E402
from dashboard.api import error_responses  # noqa: E402
from dashboard.gate import lifespan  # noqa: E402
from dashboard.idempotency import lifespan as idempotency  # noqa: E402
from dashboard.live import events, state_cache  # noqa: E402
from dashboard.live.asgi import LiveEventsApp, Receive, Scope, Send, refuse  # noqa: E402
from dashboard.live.cached_state import CachedState  # noqa: E402
from dashboard.live.hub import Hub  # noqa: E402
from dashboard.live.state_cache import StateCache  # noqa: E402
from dashboard.logs.live import asgi as live_asgi  # noqa: E402
from dashboard.logs.live.asgi import LogsApp  # noqa: E402
from dashboard.metrics import asgi as metrics  # noqa: E402
from dashboard.server import probes, request_body, security_headers  # noqa: E402
from dashboard.server.page_concurrency import PageConcurrency  # noqa: E402
from dashboard.server.page_sender import PageSender  # noqa: E402
from recovery import config, shared_clock  # noqa: E402
from recovery.stores import (  # noqa: E402
    registry,
    thread_pool,
)

log = logging.getLogger(__name__)

BROKEN = "This is a fault in Unstall. It is in the log of the web process."
THREADS = 4  # for what else would block the event loop: two lookups and two scrapes at once

hub = Hub()
_streams = LiveEventsApp(hub)
_logs = LogsApp(hub)
_metrics = metrics.MetricsApp(state_cache.cached_state, lambda: len(hub))
_gate = lifespan.GateLifespan(state_cache.cached_state)
_idempotency = idempotency.IdempotencyLifespan()
_probes = probes.Probes()
_places = PageConcurrency(hub.visitor)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close"})
    else:
        await _answer_always(scope, receive, security_headers.wrap_send(scope, send))


async def _answer_always(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 500 where a fault of ours ends a request: the server's own answer to that has none of our headers."""
    try:
        await _answer(scope, receive, send)
    except Exception as fault:
        try:
            await _refuse(scope, send, request_body.RequestRefused(500, BROKEN))
        except RuntimeError:  # the answer has begun: the server logs the fault and drops the connection
            raise fault from None
        log.exception("a request met a fault")


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"].startswith(live_asgi.PATH):
        await _logs(scope, receive, send)
    elif scope["path"].startswith("/live/"):
        await _streams(scope, receive, send)
    elif scope["path"] in probes.PATHS:
        await _probes(scope, receive, send)
    elif scope["path"] == lifespan.PATH:
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
            request = await request_body.read_body(receive, waiting)
            await _places.take(scope, answered, sent)
            waiting.close()
        except request_body.ClientDisconnected:
            return
        except request_body.RequestRefused as refused:
            await _refuse(scope, send, refused)
            return
        await _pages(scope, request, PageSender(scope, send, answered.close).send)


async def _refuse(scope: Scope, send: Send, refused: request_body.RequestRefused) -> None:
    """Sends a refusal: as an API error under /api/, else as plain text."""
    close = [(b"connection", b"close")]
    if refused.retry:
        close.append((b"retry-after", str(refused.retry).encode()))
    if not scope["path"].startswith(error_responses.ROOT):
        await refuse(send, refused.status, str(refused), close)
        return
    told = error_responses.site_error(refused.status, str(refused)).content.decode()
    await refuse(send, refused.status, told, close, b"application/json")


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    mirrored = StateCache(_publish)
    try:
        asyncio.get_running_loop().set_default_executor(thread_pool.start_pool(THREADS, "web"))
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
    vigil = NoLeaderWatch(config.current(), mirrored.image)
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


def _publish(image: CachedState) -> None:
    """Publishes the state to all streams as one tick, which is built once, not once per stream."""
    hub.publish(events.tick(image, shared_clock.now()))
