"""A stand-in for Loki 3 on loopback that keeps what its documentation promises, and fails as it is told.

Lines are sorted within a stream only, streams come in no order, and so do the lines of one nanosecond when a stream has
more than a few; what is cut off within one is anybody's guess. The contract of recovery/logs/loki runs against it and
against the real one.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

from tests.support.logs import logql

HANG, RESET = "hang", "reset"
API = "/loki/api/v1"
MOST = 5000
HOUR = 3600 * 10**9
LONGEST = 721 * HOUR
_GIVES_UP = 60.0  # seconds: nobody waits for it; the test lets it go
_TICK = 0.02
_IN_ORDER = 12  # lines of a stream; with more of them its sort is not stable
_LEVELS = ("trace", "debug", "fatal", "critical", "error", "warn", "info")
Answer = int | str | tuple[int, Mapping[str, str], bytes]
Entry = tuple[int, str] | tuple[int, str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def query(self) -> str:
        return self.params.get("query", "")


@dataclass(slots=True)
class _Stream:
    labels: Mapping[str, str]
    entries: list[tuple[int, str, Mapping[str, str]]] = field(default_factory=list)
    known: set[tuple[int, str]] = field(default_factory=set)


class LokiDouble:
    """Use as a context. `asked`: all that came. `answers`: what the next questions get in place of the truth.
    `abandoned`: those that were held back when whoever asked hung up.
    """

    def __init__(
        self,
        *,
        most: int = MOST,
        tenant: str = "",
        token: str = "",
        levels: bool = True,
        tls: Path | None = None,
        port: int = 0,
    ) -> None:
        self.most, self.tenant, self.token, self.levels = most, tenant, token, levels
        self.asked: list[Asked] = []
        self.abandoned: list[Asked] = []
        self.answers: list[Answer] = []
        self.longest = LONGEST
        self.released = threading.Event()
        self.connections: list[socket.socket] = []
        self._held: list[tuple[str, float]] = []
        self._streams: dict[tuple[tuple[str, str], ...], _Stream] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Page)
        self._server.owner = self
        self._scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls / "server.crt", tls / "server.key")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def push(self, labels: Mapping[str, str], *entries: Entry) -> None:
        """Lines of one stream: (ns, text) or (ns, text, structured metadata). What it has already is not kept twice."""
        with self._lock:
            stream = self._streams.setdefault(tuple(sorted(labels.items())), _Stream(dict(labels)))
            for at, text, *more in entries:
                if (at, text) not in stream.known:
                    stream.known.add((at, text))
                    stream.entries.append((at, text, self._metadata(labels, text, *more)))
            stream.entries.sort(key=lambda entry: entry[0])  # stable: as they came within one ns

    def forget(self) -> None:
        """All lines are gone."""
        with self._lock:
            self._streams.clear()

    def hold(self, text: str, seconds: float) -> None:
        """Questions whose query holds this text are answered that much later; "": all of them. 0 ends it."""
        with self._lock:
            self._held = [one for one in self._held if one[0] != text]
            if seconds:
                self._held.append((text, seconds))

    def asked_for(self, text: str) -> list[Asked]:
        return [one for one in list(self.asked) if text in one.query]

    def may_answer(self, asked: Asked, asker: socket.socket) -> bool:
        """Once it is time; False when nobody waits for it any more."""
        with self._lock:
            seconds = max((held for text, held in self._held if text in asked.query), default=0.0)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.released.wait(_TICK):
            if _has_hung_up(asker):
                self.abandoned.append(asked)
                return False
        return True

    def answer(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self.tenant and headers.get("x-scope-orgid") != self.tenant:
            return 401, b"no org id\n"
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return 401, b"<html>401 Authorization Required</html>"
        try:
            found = self._found(path.removeprefix(API), params, headers)
        except logql.Refused as error:
            return 400, f"{error}\n".encode()
        if found is None:
            return 404, b"404 page not found\n"
        told = {} if found == [] else {"data": found}  # a list of nothing is left out
        return 200, json.dumps({"status": "success", **told}).encode()

    def _found(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        match [part for part in path.split("/") if part]:
            case ["query_range"]:
                return self._lines(params, "categorize-labels" in headers.get("x-loki-response-encoding-flags", ""))
            case ["query"]:
                return self._count(params)
            case ["labels"]:
                return sorted({name for stream in self._within(params, 6) for name in stream.labels})
            case ["label", name, "values"]:
                return sorted({stream.labels[name] for stream in self._within(params, 6) if name in stream.labels})
            case ["series"]:
                return [
                    dict(stream.labels) for stream in self._within({"query": params.get("match[]", ""), **params}, 6)
                ]
        return None

    def _within(self, params: Mapping[str, str], hours: int) -> Iterable[_Stream]:
        start, end = _bounds(params, hours)
        self._check_span(start, end)
        query = params.get("query") or "{}"
        wanted = logql.logs(query, may_be_all=query == "{}")
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            if wanted.matches(stream.labels) and any(start <= at < end for at, *_ in stream.entries):
                yield stream

    def _lines(self, params: Mapping[str, str], is_apart: bool) -> dict[str, Any]:
        limit = int(params.get("limit", 100))
        if limit > self.most:
            raise logql.Refused(
                f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({limit} > {self.most})"
            )
        start, end = _bounds(params, 1)
        if end <= start:
            raise logql.Refused("end timestamp must not be before or equal to start time")
        self._check_span(start, end)
        is_backward = params.get("direction", "backward").lower() == "backward"
        found = self._matching(params.get("query", ""), start, end, is_backward)
        result: dict[str, dict[str, Any]] = {}
        for at, text, labels, metadata in found[:limit]:
            shown = labels if is_apart else {**labels, **metadata}
            stream = result.setdefault(json.dumps(shown, sort_keys=True), {"stream": shown, "values": []})
            more = [{"structuredMetadata": metadata} if metadata else {}] if is_apart else []
            stream["values"].append([str(at), text, *more])
        for stream in result.values():
            if len(stream["values"]) > _IN_ORDER:
                stream["values"] = _stirred(stream["values"])
        streams = sorted(result.values(), key=lambda one: crc32(json.dumps(one["stream"]).encode()))
        flags = {"encodingFlags": ["categorize-labels"]} if is_apart else {}
        return {"resultType": "streams", "result": streams, **flags, "stats": {}}

    def _check_span(self, start: int, end: int) -> None:
        if end - start > self.longest:
            asked, limit = (f"{span // HOUR}h0m0s" for span in (end - start, self.longest))
            raise logql.Refused(f"the query time range exceeds the limit (query length: {asked}, limit: {limit})")

    def _matching(
        self, query: str, start: int, end: int, is_backward: bool
    ) -> Sequence[tuple[int, str, Mapping[str, str], Mapping[str, str]]]:
        wanted = logql.logs(query)
        with self._lock:
            streams = [(stream.labels, list(stream.entries)) for stream in self._streams.values()]
        found = [
            (at, text, labels, metadata)
            for labels, entries in streams
            if wanted.matches(labels)
            for at, text, metadata in (reversed(entries) if is_backward else entries)
            if start <= at < end and wanted.keeps(text, {**labels, **metadata})
        ]
        found.sort(key=lambda one: -one[0] if is_backward else one[0])
        return found

    def _count(self, params: Mapping[str, str]) -> dict[str, Any]:
        query, span = logql.counted(params.get("query", ""))
        at = _moment(params.get("time", ""), time.time_ns())
        total = len(self._matching(query, at - span + 1, at + 1, False))
        value = [{"metric": {}, "value": [at / 10**9, str(total)]}] if total else []
        return {"resultType": "vector", "result": value, "stats": {}}

    def _metadata(self, labels: Mapping[str, str], text: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """With the level that it finds by itself."""
        if not self.levels:
            return dict(given or {})
        said = labels.get("level", text).lower()
        level = next((level for level in _LEVELS if level in said), "unknown")
        return {"detected_level": level, **(given or {})}


class _Server(ThreadingHTTPServer):
    owner: LokiDouble
    daemon_threads = True
    request_queue_size = 128

    def get_request(self) -> tuple[Any, Any]:
        request, address = super().get_request()
        self.owner.connections.append(request)
        return request, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up early is what some tests are about."""


class _Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        owner: LokiDouble = self.server.owner  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        params = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(parts.path, params, headers)
        owner.asked.append(asked)
        told = owner.answers.pop(0) if owner.answers else None
        if not owner.may_answer(asked, self.connection):
            self.close_connection = True
        elif told is None:
            self._say(*owner.answer(parts.path, params, headers))
        elif told in (HANG, RESET):
            self._break(owner, str(told))
        elif isinstance(told, tuple):
            self._say(told[0], told[2], told[1])
        else:
            self._say(int(told), b"as the test wishes\n")

    def do_POST(self) -> None:
        owner: LokiDouble = self.server.owner  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for stream in body["streams"]:
            owner.push(stream["stream"], *((int(at), *rest) for at, *rest in stream["values"]))
        self._say(204, b"")

    def _break(self, owner: LokiDouble, how: str) -> None:
        if how == HANG:
            owner.released.wait(_GIVES_UP)
        else:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _say(self, status: int, body: bytes, headers: Mapping[str, str] = {}) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            is_text = status >= 400 and not body.startswith(b"<")
            kind = "text/plain" if is_text else "text/html" if body.startswith(b"<") else "application/json"
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def _has_hung_up(asker: socket.socket) -> bool:
    """Nobody asks twice on one connection before the answer, so what can be read is the end."""
    return bool(select.select([asker], [], [], 0)[0])


def _stirred(values: list[Any]) -> list[Any]:
    """Those of one nanosecond in another order, which depends on how many there are in all."""
    chance, found = random.Random(len(values)), []
    for _, some in groupby(values, key=lambda value: value[0]):
        same = list(some)
        chance.shuffle(same)
        found += same
    return found


def _bounds(params: Mapping[str, str], hours: int) -> tuple[int, int]:
    now = time.time_ns()
    end = _moment(params.get("end", ""), now)
    return _moment(params.get("start", ""), min(end, now) - hours * HOUR), end


def _moment(text: str, otherwise: int) -> int:
    """More than ten digits are nanoseconds."""
    if not text:
        return otherwise
    if text.isdigit():
        return int(text) if len(text) > 10 else int(text) * 10**9
    return round(float(text) * 10**9)
