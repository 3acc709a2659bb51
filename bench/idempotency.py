"""The ledger: claims a second and how long one takes, over HTTP from one web process, beside what a client does itself.

Side by side in one run, from this one process and on one store: `SET NX PX` as one would write it by hand, the ledger's
script sent directly, and the same claims over HTTP; one after the other, and many at once. Then claims over HTTP are
sent when they are due, at a rate that callers may have, so that a stall counts for each that it made wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count, cycle

import psutil
import redis.asyncio

from bench.measure import Result, median, percentile
from recovery.domain.idempotency import ClaimRequest, ClaimStep, ClaimStepResult, IdempotencyLimits
from recovery.idempotency.ledger import LoopLedger
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store

AT_ONCE = (1, 32)
SECONDS = 20.0
WARM_SECONDS = 2.0
RATE = 500  # a second
P99_MS = 10.0  # at that rate: what whoever is about to charge a card does not notice
TOKENS = 8  # one may call a thousand times a second
TTL = 60_000
KEYS = 999_999  # more than a round claims
_SECRETS = tuple("unstall_" + str(number) * 43 for number in range(TOKENS))
_MAKE = (
    "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
    " VALUES (?, ?, 'unstall_bench', 'idempotency', '2026-01-01', '2126-01-01')"
)
Claim = Callable[[str], Awaitable[bool]]  # of this key; whether it was won


def run(*, quick: bool) -> Result:
    seconds = SECONDS / 5 if quick else SECONDS
    result = Result("idempotency", "Work claimed once, beside SET NX PX")
    result.setting = {"seconds": seconds, "at_once": AT_ONCE, "rate": RATE, "tokens": TOKENS}
    with _ledger() as (web, store):
        asyncio.run(_measure(web, store, result, seconds))
    return result


@contextmanager
def _ledger() -> Iterator[tuple[WebProcess, Store]]:
    """With the append-only file that is asked for in docs/idempotency.md."""
    with Store("valkey", options={"appendonly": "yes"}) as store:
        web = WebProcess({"UNSTALL_STATE_URL": store.url, "UNSTALL_REDIS_URL": store.url.replace("/0", "/1")})
        (web.directory / "unstall.toml").write_text(f"[idempotency]\nkeys = {KEYS}\n")
        with web:
            for number, secret in enumerate(_SECRETS):
                web.change(_MAKE, f"bench-{number}", hashlib.sha256(secret.encode()).hexdigest())
            yield web, store


async def _measure(web: WebProcess, store: Store, result: Result, seconds: float) -> None:
    for many in AT_ONCE:
        async with _ways(web, store, many) as ways:
            for name, lines in ways.items():
                store.flush()
                await _claims(lines, WARM_SECONDS)
                used = _processor(web)
                times = await _claims(lines, seconds)
                note = f"a claim {median(times):.2f} ms, p99 {percentile(times, 0.99):.2f} ms"
                result.row(f"{name}, {many} at once", len(times) / seconds, "a second", note)
            spent = (_processor(web) - used) / len(times) * 1000
        result.row(f"of the web process, {many} at once", spent, "ms", "processor time for each claim")
    store.flush()
    async with _http(web, AT_ONCE[-1]) as lines:
        times = await _due(lines, seconds)
    note = f"p99 {percentile(times, 0.99):.1f} ms, worst {max(times):.0f} ms, {len(times):,} claims"
    result.row(f"over HTTP, {RATE} a second when they are due", median(times), "ms", note)
    result.goal(f"{RATE} claims a second, p99 ≤ {P99_MS:g} ms", percentile(times, 0.99), most=P99_MS)


@asynccontextmanager
async def _ways(web: WebProcess, store: Store, many: int) -> AsyncIterator[dict[str, Sequence[Claim]]]:
    """Each with as many lines as claim at once."""
    pool = redis.asyncio.ConnectionPool.from_url(store.url, max_connections=many)
    client = redis.asyncio.Redis.from_pool(pool)
    ledger = LoopLedger(client, IdempotencyLimits(keys=KEYS))

    async def by_hand(key: str) -> bool:
        return bool(await client.set(f"by-hand:{key}", "bench", nx=True, px=TTL))

    async def direct(key: str) -> bool:
        answer = await ledger.do(ClaimRequest(ClaimStep.CLAIM, key, span=TTL, by="bench", owner="bench"))
        return answer.word is ClaimStepResult.WON

    async with _http(web, many) as lines:
        yield {"SET NX PX": [by_hand] * many, "the script, directly": [direct] * many, "over HTTP": lines}
    await client.aclose()


@asynccontextmanager
async def _http(web: WebProcess, many: int) -> AsyncIterator[list[Claim]]:
    lines = [await _Line.open(web.port) for _ in range(many)]
    try:
        yield [line.claim for line in lines]
    finally:
        for line in lines:
            line.close()


class _Line:
    """One connection that is kept open. It takes the tokens in turn."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._heads = cycle(map(_head, _SECRETS))

    @classmethod
    async def open(cls, port: int) -> _Line:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def claim(self, key: str) -> bool:
        body = json.dumps({"key": key, "ttl": TTL, "owner": "bench"})
        self._writer.write(f"{next(self._heads)}{len(body)}\r\n\r\n{body}".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        await self._reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        return head.split(b" ", 2)[1] == b"201"

    def close(self) -> None:
        self._writer.transport.abort()


def _head(secret: str) -> str:
    lines = ("POST /api/v1/idempotency/claim HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {secret}")
    return "\r\n".join(lines) + "\r\nContent-Length: "


_numbers = count()


async def _claims(lines: Sequence[Claim], seconds: float) -> list[float]:
    """Milliseconds of each, one after the other on each line; every key is new, so every claim is won."""
    end = time.perf_counter() + seconds

    async def one(claim: Claim) -> list[tuple[float, bool]]:
        found = []
        while (started := time.perf_counter()) < end:
            won = await claim(f"charge:{next(_numbers)}")
            found.append(((time.perf_counter() - started) * 1000, won))
        return found

    return _won(await asyncio.gather(*map(one, lines)))


async def _due(lines: Sequence[Claim], seconds: float) -> list[float]:
    """Milliseconds from the moment when each was due."""
    step = len(lines) / RATE
    begin = time.perf_counter() + 0.1

    async def one(number: int, claim: Claim) -> list[tuple[float, bool]]:
        due, found = begin + step * number / len(lines), []
        while due < begin + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            won = await claim(f"charge:{next(_numbers)}")
            found.append(((time.perf_counter() - due) * 1000, won))
            due += step
        return found

    return _won(await asyncio.gather(*(one(number, claim) for number, claim in enumerate(lines))))


def _won(rounds: Sequence[list[tuple[float, bool]]]) -> list[float]:
    """Times of claims that were won; one that was not would be cheaper, and means that something is wrong."""
    found = [one for line in rounds for one in line]
    words = Counter(won for _, won in found)
    if words[False]:
        raise RuntimeError(f"{words[False]:,} of {len(found):,} claims were not won")
    return [took for took, _ in found]


def _processor(web: WebProcess) -> float:
    """Seconds that it has used."""
    spent = psutil.Process(web.pid).cpu_times()
    return float(spent.user + spent.system)
