"""Bodies of requests before Django sees them: together they take a bounded part of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dashboard import intake
from dashboard.intake import SMALL, Left, Refused
from dashboard.live.stream import Message, Receive

LARGE = 100_000


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(intake, "INCOMING_LIMIT", LARGE * 3 // 2)
    yield
    assert intake._incoming.bytes == 0


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
        request = await intake.whole(sends(LARGE), first)
        with pytest.raises(Refused) as caught:
            await intake.whole(sends(LARGE), second)
        assert (caught.value.status, caught.value.retry) == (503, intake.RETRY_SECONDS)
        second.close()
        assert len((await request())["body"]) == LARGE
        first.close()
        assert len((await (await intake.whole(sends(LARGE), second))())["body"]) == LARGE


@pytest.mark.parametrize("pieces", [1, 4])
async def test_a_form_is_taken_beside_many_large_bodies(pieces: int) -> None:
    with ExitStack() as large, ExitStack() as refused, ExitStack() as form:
        await intake.whole(sends(LARGE), large)
        with pytest.raises(Refused):
            await intake.whole(sends(LARGE, pieces=pieces), refused)
        assert (await (await intake.whole(sends(SMALL, pieces=pieces), form))())["body"] == b"x" * SMALL


async def test_who_leaves_takes_the_body_along() -> None:
    with pytest.raises(Left), ExitStack() as waiting:
        await intake.whole(sends(LARGE, leaves=True), waiting)
