"""Pages that are read by HTTP, side by side, each within a deadline and a size, and never anywhere else than asked.

A page is not followed where it leads to: an address comes from the configuration alone. It is not taken compressed: a
few KB may unfold to gigabytes. No proxy of the environment is used, and no login that stands in a file of ours.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from urllib.parse import urlencode

import httpcore
import httpx

from recovery.config.endpoints import Endpoint
from recovery.connections.http_faults import LOOK, refused, too_late, translated
from recovery.errors import Garbled, StoreError

SECONDS = 2.0  # whoever needs longer is no help to a page that waits, nor to a sample that is to be fresh
LARGEST = 8 * 1024 * 1024  # bytes; an exporter with everything switched on writes less than one MB
TOGETHER = 64  # asked at the same time
_RESOLVERS = 16  # threads that ask for the address of a name
# What the library raises has no root of its own.
_HTTP = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class Question:
    """`path` is put behind the endpoint's own."""

    endpoint: Endpoint
    path: str = ""
    params: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def url(self) -> httpcore.URL:
        """Raises httpx.InvalidURL."""
        written = httpx.URL(self.endpoint.url + self.path + (f"?{urlencode(self.params)}" if self.params else ""))
        return httpcore.URL(
            scheme=written.raw_scheme, host=written.raw_host, port=written.port, target=written.raw_path
        )

    @property
    def headers(self) -> list[tuple[str, str]]:
        endpoint, said = self.endpoint, [("Accept-Encoding", "identity"), ("Accept", "*/*"), ("User-Agent", "unstall")]
        if endpoint.token:
            said.append(("Authorization", f"Bearer {endpoint.token}"))
        elif endpoint.username:
            login = f"{endpoint.username}:{endpoint.password}".encode()
            said.append(("Authorization", f"Basic {b64encode(login).decode()}"))
        return said


@dataclass(frozen=True, slots=True)
class Answer:
    """A good one. `address` is of the machine that gave it."""

    body: bytes
    address: str = ""


def ask(
    questions: Sequence[Question], *, seconds: float = SECONDS, largest: int = LARGEST
) -> list[Answer | StoreError]:
    """One answer each, in their order, or why there is none. Must not be called from a coroutine."""
    if not questions:
        return []
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(_Resolving(_RESOLVERS, thread_name_prefix="resolve"))
        return runner.run(_ask_all(questions, seconds, largest))


class _Resolving(ThreadPoolExecutor):
    """A name server that is silent holds a thread for half a minute. Nobody waits for it, and all others go on."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


class _Network(httpcore.AnyIOBackend):
    """Closes all that it opened: a handshake that is cut off in the middle leaves its connection to nobody."""

    def __init__(self) -> None:
        self._opened: list[httpcore.AsyncNetworkStream] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        self._opened.append(stream)
        return stream

    async def close(self) -> None:
        for stream in self._opened:
            await stream.aclose()


async def _ask_all(questions: Sequence[Question], seconds: float, largest: int) -> list[Answer | StoreError]:
    turns = asyncio.Semaphore(TOGETHER)
    return await asyncio.gather(*(_ask(question, turns, seconds, largest) for question in questions))


async def _ask(question: Question, turns: asyncio.Semaphore, seconds: float, largest: int) -> Answer | StoreError:
    target = question.endpoint.target
    async with turns:
        try:
            async with asyncio.timeout(seconds):
                return await _answer(question, largest)
        except StoreError as error:
            return error
        except TimeoutError:
            return too_late(target, seconds)
        except (httpx.InvalidURL, OSError, *_HTTP) as error:
            return translated(error, target, seconds)


async def _answer(question: Question, largest: int) -> Answer:
    target = question.endpoint.target
    async with _opened(question) as response:
        found = response.extensions["network_stream"].get_extra_info("server_addr")  # gone once all of it is read
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        if headers.get("content-encoding", "identity") != "identity":
            raise Garbled(target, "it sends a compressed page though none was asked for", advice=LOOK)
        body = await _body(response, target, largest)
        if response.status != HTTPStatus.OK:
            raise refused(target, response.status, headers, body)
        return Answer(body, str(found[0]) if found else "")


@asynccontextmanager
async def _opened(question: Question) -> AsyncIterator[httpcore.Response]:
    network = _Network()
    pool = httpcore.AsyncConnectionPool(ssl_context=_trusted(question.endpoint.ca), network_backend=network)
    try:
        async with pool, pool.stream("GET", question.url, headers=question.headers) as response:
            yield response
    finally:
        await network.close()


@cache
def _trusted(ca: str) -> ssl.SSLContext:
    """Read once: each costs some ten milliseconds."""
    return ssl.create_default_context(cafile=ca or None)


async def _body(response: httpcore.Response, target: str, largest: int) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_stream():
        size += len(part)
        if size > largest:
            raise Garbled(target, f"it sends more than {largest // 1024**2} MB", advice=LOOK)
        parts.append(part)
    return b"".join(parts)
