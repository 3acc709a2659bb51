"""The gate at 500 questions a second, and at its limit of a thousand: one web process, one token, one server.

Questions are sent when they are due, not when the answer before has come, and their time runs from then on: a stall
counts for every question that it made wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from bench.measure import Result, median, percentile
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.support.stuck.gating import steady

RATES = (500, 900)  # a second; the limit of one token is 1,000
CONNECTIONS = 50
SECONDS = 60.0
WARM_SECONDS = 2.0
P99_MS = 5.0
SERVER = "worker-1"
_TOKEN = "unstall_" + "g" * 43
_MAKE = (
    "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
    " VALUES ('bench', ?, 'unstall_bench', 'gate', '2026-01-01', '2126-01-01')"
)


def run(*, quick: bool) -> Result:
    seconds = SECONDS / 6 if quick else SECONDS
    result = Result("gate", f"The gate, asked {RATES[0]} times a second")
    result.setting = {"rates": RATES, "connections": CONNECTIONS, "seconds": seconds}
    with _asked() as (web, store):
        asyncio.run(_load(web, RATES[0], WARM_SECONDS))
        for rate in RATES:
            _measure(web, store, result, rate, seconds)
    return result


@contextmanager
def _asked() -> Iterator[tuple[WebProcess, Store]]:
    with Store("valkey") as store:
        environ = {"UNSTALL_STATE_URL": store.url, "UNSTALL_REDIS_URL": store.url.replace("/0", "/1")}
        with WebProcess(environ) as web, steady(store.client, SERVER, 20.0):
            web.change(_MAKE, hashlib.sha256(_TOKEN.encode()).hexdigest())
            yield web, store


def _measure(web: WebProcess, store: Store, result: Result, rate: int, seconds: float) -> None:
    store.client.config_resetstat()
    used = _processor(web)
    times, statuses = asyncio.run(_load(web, rate, seconds))
    used = (_processor(web) - used) / len(times)
    asked_first = int(store.client.info("commandstats").get("cmdstat_set", {}).get("calls", 0))
    let_in = statuses[200]
    note = f"p99 {percentile(times, 0.99):.1f} ms, worst {max(times):.0f} ms, {len(times):,} questions"
    result.row(f"{rate} a second: an answer", median(times), "ms", note)
    result.row(f"{rate} a second: processor time for each", used * 1000, "ms", "of the whole web process")
    result.row(f"{rate} a second: let in", let_in, "", f"in {seconds:g} s, settling for 10 s each time")
    result.row(
        f"{rate} a second: marks written", asked_first, "", "one for each that was let in, and nobody waits for it"
    )
    if rate == RATES[0]:
        result.goal(f"{rate} a second, p99 ≤ {P99_MS:g} ms", percentile(times, 0.99), most=P99_MS)
        result.goal(
            "answers that are neither yes nor no", sum(statuses.values()) - statuses[200] - statuses[503], most=0
        )


def _processor(web: WebProcess) -> float:
    """Seconds that it has used."""
    spent = psutil.Process(web.pid).cpu_times()
    return float(spent.user + spent.system)


async def _load(web: WebProcess, rate: int, seconds: float) -> tuple[list[float], Counter[int]]:
    """Milliseconds from the moment when each was due, and how often each status came."""
    step = CONNECTIONS / rate
    begin = time.perf_counter() + 0.1
    rounds = await asyncio.gather(
        *(_ask(web, begin + step * number / CONNECTIONS, step, begin + seconds) for number in range(CONNECTIONS))
    )
    answers = [answer for connection in rounds for answer in connection]
    return [took for took, _ in answers], Counter(status for _, status in answers)


async def _ask(web: WebProcess, due: float, step: float, end: float) -> list[tuple[float, int]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    lines = (
        f"GET /cpu-gate?server={SERVER}&caller=bench HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {_TOKEN}",
    )
    request = ("\r\n".join(lines) + "\r\n\r\n").encode()
    answers: list[tuple[float, int]] = []
    try:
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
            answers.append(((time.perf_counter() - due) * 1000, int(head.split(b" ", 2)[1])))
            due += step
    finally:
        writer.transport.abort()
    return answers
