"""Bodies of requests before Django sees them: together they take a bounded part of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dashboard.live.asgi import Message, Receive
from dashboard.server import request_body
from dashboard.server.request_body import SMALL, ClientDisconnected, RequestRefused

LARGE = 100_000


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(request_body, "INCOMING_LIMIT", LARGE * 3 // 2)
    yield
    assert request_body._incoming.bytes == 0


def sends(size: int, *, pieces: int = 4, leaves: bool = False) -> Receive:
    messages: list[Message] = [
        {"type": "http.request", "body": b"x" * (size // pieces), "more_body": number < pieces - 1 or leaves}
        for number in range(pieces)
    ]
    following = iter([*messages, {"type": "http.disconnect"}])

    async def receive() -> Message:
        return next(following)

    return receive


async def test_a_body_counts_until_somebody_begins_to_answer_it() -> None:
    with ExitStack() as first, ExitStack() as second:
        request = await request_body.read_body(sends(LARGE), first)
        with pytest.raises(RequestRefused) as caught:
            await request_body.read_body(sends(LARGE), second)
        assert (caught.value.status, caught.value.retry) == (503, request_body.RETRY_SECONDS)
        second.close()
        assert len((await request())["body"]) == LARGE
        first.close()
        assert len((await (await request_body.read_body(sends(LARGE), second))())["body"]) == LARGE


@pytest.mark.parametrize("pieces", [1, 4])
async def test_a_form_is_taken_beside_many_large_bodies(pieces: int) -> None:
    with ExitStack() as large, ExitStack() as refused, ExitStack() as form:
        await request_body.read_body(sends(LARGE), large)
        with pytest.raises(RequestRefused):
            await request_body.read_body(sends(LARGE, pieces=pieces), refused)
        assert (await (await request_body.read_body(sends(SMALL, pieces=pieces), form))())["body"] == b"x" * SMALL


async def test_who_leaves_takes_the_body_along() -> None:
    with pytest.raises(ClientDisconnected), ExitStack() as waiting:
        await request_body.read_body(sends(LARGE, leaves=True), waiting)
