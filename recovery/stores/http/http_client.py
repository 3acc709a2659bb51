"""HTTP GET with a deadline and a size limit, and never to any other address than the one asked.

`ask` reads some addresses side by side, `HttpPool` one again and again from an event loop.

A redirect is not followed: an address comes from the configuration alone. Compressed responses are not taken: a few KB
may unfold to gigabytes. No proxy of the environment is used, and no login from a file such as .netrc.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import httpcore
import httpx

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.errors import Garbled, StoreError
from recovery.stores.http.http_errors import LOOK, HttpResponseTooLong, refused, timeout_error, translated

SECONDS = 2.0  # a slower answer is of no use to a page that waits, nor to a sample that is to be fresh
LARGEST = 8 * 1024 * 1024  # bytes; an exporter with everything switched on writes less than one MB
TOGETHER = 64  # asked at the same time
POOLED = 8  # connections to one place
_IDLE_SECONDS = 15.0  # that a connection is kept: less than any proxy on the way waits before it hangs up
_RESOLVERS = 16  # threads that ask for the address of a name
# Exceptions of the library have no common base class.
_HTTP = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.UnsupportedProtocol)
Refusal = Callable[[str, int, Mapping[str, str], bytes], StoreError]  # target, status, headers, body


@dataclass(frozen=True, slots=True)
class HttpGetRequest:
    """A GET. `path` is put behind the endpoint's own, `more` are headers of its own."""

    endpoint: HttpEndpoint
    path: str = ""
    params: Mapping[str, str] = field(default_factory=dict, hash=False)
    more: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def url(self) -> httpcore.URL:
        """URL of the request. Raises httpx.InvalidURL."""
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
        return [*said, *self.more.items()]


@dataclass(frozen=True, slots=True)
class HttpGetResponse:
    """A successful response. `address` is of the machine that sent it."""

    body: bytes
    address: str = ""


def fetch_all(
    questions: Sequence[HttpGetRequest], *, seconds: float = SECONDS, largest: int = LARGEST
) -> list[HttpGetResponse | StoreError]:
    """Returns one answer each, in their order, or why there is none. Must not be called from a coroutine."""
    if not questions:
        return []
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(_Resolving(_RESOLVERS, thread_name_prefix="resolve"))
        return runner.run(_ask_all(questions, seconds, largest))


class _Resolving(ThreadPoolExecutor):
    """Resolves names in threads that are not waited for: a silent name server holds one for half a minute."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


class HttpPool:
    """Connections to one address that are kept open between questions. It belongs to the event loop that uses it."""

    def __init__(
        self, ca: str, *, seconds: float = SECONDS, largest: int = LARGEST, refusal: Refusal = refused
    ) -> None:
        self._ca, self._seconds, self._largest, self._refusal = ca, seconds, largest, refusal
        self._connections: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(POOLED)

    @property
    def opened(self) -> int:
        """Number of its open connections."""
        return sum(connection.network.opened for connection in self._connections)

    async def answer(self, question: HttpGetRequest) -> HttpGetResponse:
        """Asks, and returns the answer. Raises StoreError; `refusal` turns a bad response into one."""
        return await _bounded(self._in_turn(question), question, self._seconds)

    async def _in_turn(self, question: HttpGetRequest) -> HttpGetResponse:
        """Asks on a connection of its own, and gives that up with a question that is cancelled.

        httpcore (1.0.9) may hold such a connection taken for ever: when `task.cancel()` arrives while it takes one of
        its locks, or closes a response.
        """
        async with self._turns:
            connection = self._idle.pop() if self._idle else self._new()
            try:
                answer = await _answer(connection.pool, question, self._largest, self._refusal)
            except StoreError:
                self._put_back(connection)
                raise
            except BaseException:
                await asyncio.shield(self._give_up(connection))
                raise
            self._put_back(connection)
            return answer

    def _new(self) -> _Connection:
        connection = _Connection(self._ca)
        self._connections.add(connection)
        return connection

    def _put_back(self, connection: _Connection) -> None:
        if connection in self._connections:  # else the pool was closed meanwhile
            self._idle.append(connection)

    def _give_up(self, connection: _Connection) -> asyncio.Task[None]:
        """Closes the connection in a task, which a second cancellation does not reach."""
        self._connections.discard(connection)
        task = asyncio.create_task(connection.network.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def close(self) -> None:
        self._idle.clear()
        await asyncio.gather(*self._closing, *map(self._give_up, tuple(self._connections)))


class _Connection:
    """A connection at a time to one address, made when it is needed."""

    def __init__(self, ca: str) -> None:
        self.network = _Network()
        self.pool = _pool(ca, self.network)


class _Network(httpcore.AnyIOBackend):
    """Network that closes all that it opened: a handshake that is cut off half-way would leave its connection open."""

    def __init__(self) -> None:
        self._opened: set[_Stream] = set()

    @property
    def opened(self) -> int:
        return len(self._opened)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        inner = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        stream = _Stream(inner, self._opened.discard)
        self._opened.add(stream)
        return stream

    async def close(self) -> None:
        for stream in tuple(self._opened):
            await stream.aclose()


class _Stream(httpcore.AsyncNetworkStream):
    """Connection that reports when it is closed."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, leave: Callable[[_Stream], object]) -> None:
        self._inner, self._leave = inner, leave

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        self._leave(self)
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            self._inner = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self.aclose()
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


async def _ask_all(
    questions: Sequence[HttpGetRequest], seconds: float, largest: int
) -> list[HttpGetResponse | StoreError]:
    turns = asyncio.Semaphore(TOGETHER)
    return await asyncio.gather(*(_ask(question, turns, seconds, largest) for question in questions))


async def _ask(
    question: HttpGetRequest, turns: asyncio.Semaphore, seconds: float, largest: int
) -> HttpGetResponse | StoreError:
    async with turns:
        try:
            return await _bounded(_ask_once(question, largest), question, seconds)
        except StoreError as error:
            return error


async def _bounded(
    answer: Coroutine[Any, Any, HttpGetResponse], question: HttpGetRequest, seconds: float
) -> HttpGetResponse:
    target = question.endpoint.target
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError as error:
        raise timeout_error(target, seconds) from error
    except (httpx.InvalidURL, OSError, *_HTTP) as error:
        raise translated(error, target, seconds) from error


async def _ask_once(question: HttpGetRequest, largest: int) -> HttpGetResponse:
    network = _Network()
    try:
        async with _pool(question.endpoint.ca, network) as pool:
            return await _answer(pool, question, largest, refused)
    finally:
        await network.close()


def _pool(ca: str, network: _Network) -> httpcore.AsyncConnectionPool:
    return httpcore.AsyncConnectionPool(
        ssl_context=_trusted(ca), max_connections=1, keepalive_expiry=_IDLE_SECONDS, network_backend=network
    )


async def _answer(
    pool: httpcore.AsyncConnectionPool, question: HttpGetRequest, largest: int, refusal: Refusal
) -> HttpGetResponse:
    target = question.endpoint.target
    async with pool.stream("GET", question.url, headers=question.headers) as response:
        found = response.extensions["network_stream"].get_extra_info("server_addr")  # gone once all of it is read
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        if headers.get("content-encoding", "identity") != "identity":
            raise Garbled(target, "it sends a compressed response that was not requested", advice=LOOK)
        body = await _body(response, target, largest)
        if response.status != HTTPStatus.OK:
            raise refusal(target, response.status, headers, body)
        return HttpGetResponse(body, str(found[0]) if found else "")


@cache
def _trusted(ca: str) -> ssl.SSLContext:
    """Returns the TLS context, read once: each costs some ten milliseconds."""
    return ssl.create_default_context(cafile=ca or None)


async def _body(response: httpcore.Response, target: str, largest: int) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_stream():
        size += len(part)
        if size > largest:
            raise HttpResponseTooLong(target, f"it sends more than {largest // 1024**2} MB", advice=LOOK)
        parts.append(part)
    return b"".join(parts)
