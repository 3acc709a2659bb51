"""A small load over kept connections: it must cost less than what it measures, and both share two cores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from urllib.parse import urlsplit

ANSWER_SECONDS = 120.0  # bull-board takes seconds for a thousand queues


@dataclass(frozen=True, slots=True)
class Load:
    """What came back from a load."""

    seconds: float
    times_ms: tuple[float, ...]
    bytes: int  # of one answer, as it went over the wire

    @property
    def per_second(self) -> float:
        return len(self.times_ms) / self.seconds


def together(loads: Sequence[Load]) -> Load:
    """Several loads of one address as one."""
    times = tuple(chain.from_iterable(part.times_ms for part in loads))
    return Load(sum(part.seconds for part in loads), times, loads[0].bytes)


async def load(url: str, *, concurrency: int, seconds: float, headers: Mapping[str, str] | None = None) -> Load:
    """Ask for `url` again and again on `concurrency` connections. A round that began in time is waited for."""
    deadline = time.perf_counter() + seconds
    started = time.perf_counter()
    rounds = await asyncio.gather(*(_ask(url, headers or {}, deadline) for _ in range(concurrency)))
    times = tuple(took for connection in rounds for took, _ in connection)
    return Load(time.perf_counter() - started, times, rounds[0][0][1])


async def fetch(url: str, headers: Mapping[str, str]) -> int:
    """One request on a connection of its own; the size of its body."""
    return (await _ask(url, headers, 0.0, least=1))[0][1]


async def _ask(url: str, headers: Mapping[str, str], deadline: float, *, least: int = 0) -> list[tuple[float, int]]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 24)
    lines = [f"GET {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode()
    answers: list[tuple[float, int]] = []
    try:
        while len(answers) < least or time.perf_counter() < deadline:
            started = time.perf_counter()
            writer.write(request)
            size = await asyncio.wait_for(_answer(reader), ANSWER_SECONDS)
            answers.append(((time.perf_counter() - started) * 1000, size))
    finally:
        writer.transport.abort()
    return answers


async def _answer(reader: asyncio.StreamReader) -> int:
    """The body's size; raises when it is no answer to be proud of."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    if status != 200:
        raise RuntimeError(f"answered with {status}")
    _, found, rest = head.partition(b"content-length:")
    if found:
        size = int(rest.split(b"\r\n", 1)[0])
        await reader.readexactly(size)
        return size
    return await _chunks(reader)


async def _chunks(reader: asyncio.StreamReader) -> int:
    total = 0
    while size := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(size + 2)
        total += size
    await reader.readexactly(2)
    return total
