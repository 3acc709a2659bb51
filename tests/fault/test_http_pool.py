"""One place asked again and again: what is cut off, closed or late costs the next question nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.errors import Garbled, NotReady, StoreError, TimedOut, Unreachable
from recovery.stores.http import http_client
from recovery.stores.http.http_client import HttpGetRequest, HttpGetResponse, HttpPool
from recovery.stores.http.http_errors import HttpResponseTooLong
from tests.support.logs.loki_double import API, HANG, LokiDouble
from tests.support.odd_pages import OK, OddPages
from tests.support.patience import patience


def labels(double: LokiDouble, **more: str) -> HttpGetRequest:
    return HttpGetRequest(HttpEndpoint(double.url), f"{API}/labels", more={"X-Scope-OrgID": "a", **more})


async def test_one_connection_serves_one_question_after_the_other_and_is_closed_at_the_end() -> None:
    with LokiDouble() as double:
        pool = HttpPool("", seconds=30)
        for _ in range(5):
            assert isinstance(await pool.answer(labels(double)), HttpGetResponse)
        assert pool.opened == 1
        assert {asked.headers["x-scope-orgid"] for asked in double.asked} == {"a"}
        await asyncio.gather(*(pool.answer(labels(double)) for _ in range(30)))
        assert pool.opened <= http_client.POOLED
        await pool.close()
        assert pool.opened == 0
        assert isinstance(await pool.answer(labels(double)), HttpGetResponse)  # as after a pause
        await pool.close()


async def test_what_is_cut_off_or_late_leaves_no_connection_behind() -> None:
    with LokiDouble() as double:
        pool = HttpPool("", seconds=0.3)
        await _in_the_end(pool, labels(double))
        double.answers = [HANG] * http_client.POOLED
        results = await asyncio.gather(
            *(pool.answer(labels(double)) for _ in range(http_client.POOLED)), return_exceptions=True
        )
        assert all(isinstance(result, TimedOut) for result in results)
        assert pool.opened == 0
        assert isinstance(await _in_the_end(pool, labels(double)), HttpGetResponse)
        await pool.close()


async def test_a_question_that_is_called_off_leaves_no_connection_behind() -> None:
    with LokiDouble() as double:
        pool = HttpPool("", seconds=60)
        double.answers = [HANG]
        task = asyncio.create_task(pool.answer(labels(double)))
        async with asyncio.timeout(30):
            while not double.asked:
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pool.opened == 0
        assert isinstance(await pool.answer(labels(double)), HttpGetResponse)
        await pool.close()


async def test_questions_that_are_cancelled_at_any_point_leave_all_connections_usable() -> None:
    with LokiDouble() as double:
        pool = HttpPool("", seconds=60)
        for turns in range(400):
            task = asyncio.create_task(pool.answer(labels(double)))
            for _ in range(turns % 40):
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(turns // 40):
                await asyncio.sleep(0)
            task.cancel()  # in the midst of what the first one set off
            await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(patience(30)):
            answers = await asyncio.gather(*(pool.answer(labels(double)) for _ in range(http_client.POOLED)))
        assert all(isinstance(answer, HttpGetResponse) for answer in answers)
        await pool.close()
        assert pool.opened == 0


async def test_whoever_waits_for_a_connection_is_late_in_time_too() -> None:
    with LokiDouble() as double:
        pool = HttpPool("", seconds=0.5)
        double.answers = [HANG] * http_client.POOLED
        questions = [labels(double) for _ in range(3 * http_client.POOLED)]
        results = await asyncio.gather(*map(pool.answer, questions), return_exceptions=True)
        assert all(isinstance(result, TimedOut | HttpGetResponse) for result in results)
        assert isinstance(await _in_the_end(pool, labels(double)), HttpGetResponse)
        await pool.close()


async def test_a_server_that_was_restarted_is_asked_over_a_new_connection() -> None:
    with LokiDouble() as double:
        pool, port = HttpPool("", seconds=30), int(double.url.rpartition(":")[2])
        await pool.answer(labels(double))
    with LokiDouble(port=port) as double:
        assert isinstance(await _in_the_end(pool, labels(double)), HttpGetResponse)
        assert pool.opened == len(double.connections) == 1
        await pool.close()


async def test_how_a_refusal_is_told_is_up_to_whoever_asks() -> None:
    def refusal(target: str, status: int, headers: Mapping[str, str], body: bytes) -> StoreError:
        return NotReady(target, f"{status} {headers['content-type']} {body.decode()}", advice="x")

    with LokiDouble() as double:
        pool = HttpPool("", seconds=30, refusal=refusal)
        double.answers = [(418, {"Content-Type": "text/plain"}, b"no")]
        with pytest.raises(NotReady, match="418 text/plain no"):
            await pool.answer(labels(double))
        await pool.close()


async def test_an_answer_too_large_is_told_and_the_next_one_is_read() -> None:
    with OddPages() as pages, LokiDouble() as double:
        pool = HttpPool("", largest=1000, seconds=30)
        with pytest.raises(HttpResponseTooLong):
            await pool.answer(HttpGetRequest(HttpEndpoint(pages.page(OK + b"x" * 5000))))
        assert pool.opened == 0
        assert isinstance(await pool.answer(labels(double)), HttpGetResponse)
        await pool.close()


async def test_tls_that_is_never_answered_is_late_and_closed() -> None:
    with OddPages() as pages:
        pool = HttpPool("", seconds=0.3)
        with pytest.raises(TimedOut):
            await pool.answer(HttpGetRequest(HttpEndpoint(pages.page(None).replace("http:", "https:"))))
        assert pool.opened == 0
        with pytest.raises((Unreachable, Garbled)):
            await HttpPool("", seconds=30).answer(HttpGetRequest(HttpEndpoint(pages.page(b""))))
        await pool.close()


async def test_it_speaks_tls_with_whom_it_is_told_to_trust(certificates: Path) -> None:
    with LokiDouble(tls=certificates) as double:
        pool = HttpPool(str(certificates / "ca.crt"), seconds=30)
        await pool.answer(labels(double))
        await pool.answer(labels(double))
        assert pool.opened == 1
        await pool.close()


async def _in_the_end(pool: HttpPool, question: HttpGetRequest) -> HttpGetResponse | None:
    """One that comes in time, on a busy machine too."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            return await pool.answer(question)
        except TimedOut:
            continue
    return None
