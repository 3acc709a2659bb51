"""A pager loses nothing: whatever comes and goes between two pages, what stays is shown exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.redis_common.keys import Keys
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging.windows import window
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store
from tests.support.stuck.restless import Restless

SCENE = QueueContext(QueueRef("main", "bull:q"), Keys("bull:q"), LAYOUT)
KEY = "bull:q:failed"
LIST = "bull:q:wait"
# One server for all examples: each begins by emptying it.
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

ids = st.integers(0, 30).map(str)
scores = st.integers(1, 3)  # few, so that many finish in the same millisecond
change = st.tuples(st.sampled_from(["add", "remove", "remove"]), ids, scores)
burst = st.lists(change, max_size=4)  # what happens between two commands of ours


@pytest.fixture
def pipes(valkey: Store) -> Iterator[Callable[..., Restless]]:
    opened: list[Restless] = []

    def pipe(changes: Sequence[Callable[[], Any]] = ()) -> Restless:
        opened.append(Restless(valkey.client, changes))
        return opened[-1]

    yield pipe
    for one in opened:
        one.close()


@shared
@given(
    start=st.dictionaries(ids, scores, max_size=30),
    changes=st.lists(burst, max_size=15),
    wish=st.tuples(st.integers(1, 6), st.booleans()),
)
def test_finished_jobs_that_stay_are_shown_once(
    valkey: Store,
    pipes: Callable[..., Restless],
    start: dict[str, int],
    changes: list[list[tuple[str, str, int]]],
    wish: tuple[int, bool],
) -> None:
    client = valkey.client
    valkey.flush()
    if start:
        client.zadd(KEY, start)
    touched = {id for burst in changes for _, id, _ in burst}

    def apply(burst: list[tuple[str, str, int]]) -> None:
        for kind, id, score in burst:
            if kind == "add":
                client.zadd(KEY, {id: score})
            else:
                client.zrem(KEY, id)

    pipe = pipes([partial(apply, burst) for burst in changes])
    seen = _walk(pipe, JobState.FAILED, *wish)
    pipe.close()
    for id in start.keys() - touched:
        assert seen[id] == 1


@shared
@given(
    count=st.integers(0, 30),
    changes=st.lists(st.sampled_from(["push", "pop"]), max_size=15),
    size=st.integers(1, 6),
)
def test_waiting_jobs_that_stay_are_shown_once_while_workers_take_and_producers_add(
    valkey: Store, pipes: Callable[..., Restless], count: int, changes: list[str], size: int
) -> None:
    client = valkey.client
    valkey.flush()
    if count:
        client.lpush(LIST, *range(count))
    new = iter(range(1000, 2000))

    def apply(kind: str) -> Callable[[], Any]:
        return lambda: client.lpush(LIST, next(new)) if kind == "push" else client.rpop(LIST)

    pipe = pipes([apply(one) for one in changes])
    seen = _walk(pipe, JobState.WAITING, size, None)
    pipe.close()
    for id in range(changes.count("pop"), count):
        assert seen[str(id)] == 1


@shared
@given(count=st.integers(0, 30), pushes=st.integers(0, 20), size=st.integers(1, 6))
def test_waiting_jobs_are_shown_once_from_the_newest_on_while_more_are_added(
    valkey: Store, pipes: Callable[..., Restless], count: int, pushes: int, size: int
) -> None:
    client = valkey.client
    valkey.flush()
    if count:
        client.lpush(LIST, *range(count))
    new = iter(range(1000, 2000))
    pipe = pipes([lambda: client.lpush(LIST, next(new))] * pushes)
    seen = _walk(pipe, JobState.WAITING, size, False)
    pipe.close()
    for id in range(count):
        assert seen[str(id)] == 1


@shared
@given(start=st.dictionaries(ids, scores, min_size=1, max_size=30), size=st.integers(1, 6), back=st.integers(1, 5))
def test_going_back_shows_what_was_there(
    valkey: Store, pipes: Callable[..., Restless], start: dict[str, int], size: int, back: int
) -> None:
    valkey.flush()
    valkey.client.zadd(KEY, start)
    pipe, place = pipes(), _place(JobState.FAILED)
    pages = [window(pipe, SCENE, place, cursor="", size=size)]
    while pages[-1].next:
        pages.append(window(pipe, SCENE, place, cursor=pages[-1].next, size=size))
    for page, before in list(zip(reversed(pages), reversed(pages[:-1]), strict=False))[:back]:
        assert window(pipe, SCENE, place, cursor=page.previous, size=size).entries == before.entries
    pipe.close()


@shared
@given(cursor=st.text(max_size=20) | st.from_regex(r"[fbo],[0-9.einf+-]{0,8},[~0-9A-Fa-f]{0,6}", fullmatch=True))
@pytest.mark.parametrize("state", [JobState.FAILED, JobState.WAITING])
def test_any_cursor_is_answered(valkey: Store, pipes: Callable[..., Restless], state: JobState, cursor: str) -> None:
    valkey.flush()
    valkey.client.zadd(KEY, {"1": 5})
    pipe = pipes()
    window(pipe, SCENE, _place(state), cursor=cursor, size=5)
    pipe.close()


def test_a_page_deep_in_a_long_set_costs_what_the_first_one_does(valkey: Store, pipes: Callable[..., Restless]) -> None:
    valkey.client.zadd(KEY, {f"job-{number}": 1000 + number // 50 for number in range(20_000)})
    pipe, place = pipes(), _place(JobState.FAILED)
    cursor = window(pipe, SCENE, place, cursor="", size=100).next
    for _ in range(150):
        cursor = window(pipe, SCENE, place, cursor=cursor, size=100).next
    pipe.reset()
    page = window(pipe, SCENE, place, cursor=cursor, size=100)
    assert len(page.entries) == 100
    assert pipe.trips <= 3
    assert pipe.weight < 102 * 40


def test_thousands_that_ended_at_once_are_passed_even_when_the_last_one_shown_is_gone(
    valkey: Store, pipes: Callable[..., Restless]
) -> None:
    valkey.client.zadd(KEY, {f"{number:05}": 7 for number in range(5000)})
    pipe, place = pipes(), _place(JobState.FAILED)
    cursor = f"f,7.0,{2500:05}"
    valkey.client.zrem(KEY, "02500")
    page = window(pipe, SCENE, place, cursor=cursor, size=3)
    assert [entry.id for entry in page.entries] == [b"02499", b"02498", b"02497"]
    assert pipe.trips < 8


@pytest.mark.parametrize("oldest_first", [True, False])
def test_many_that_leave_while_a_page_is_read_take_nothing_with_them(
    valkey: Store, pipes: Callable[..., Restless], oldest_first: bool
) -> None:
    valkey.client.zadd(KEY, {str(number): number for number in range(100, 200)})
    cursor = window(pipes(), SCENE, _place(JobState.FAILED), cursor="", size=50, oldest_first=oldest_first).next
    shown = [str(number) for number in (range(100, 140) if oldest_first else range(160, 200))]
    pipe = pipes([_nobody, _nobody, lambda: valkey.client.zrem(KEY, *shown)])
    page = window(pipe, SCENE, _place(JobState.FAILED), cursor=cursor, size=2, oldest_first=oldest_first)
    assert [entry.id for entry in page.entries] == ([b"150", b"151"] if oldest_first else [b"149", b"148"])


def _nobody() -> None:
    """Nobody acts."""


def test_the_page_after_a_job_that_is_gone_costs_no_more(valkey: Store, pipes: Callable[..., Restless]) -> None:
    valkey.client.zadd(KEY, {f"job-{number}": number for number in range(100)})
    pipe = pipes()
    page = window(pipe, SCENE, _place(JobState.FAILED), cursor="f,49.5,gone", size=2)
    assert [entry.id for entry in page.entries] == [b"job-49", b"job-48"]
    assert pipe.trips == 3


def _walk(pipe: Pipe, state: JobState, size: int, oldest_first: bool | None) -> Counter[str]:
    """Every page from the first to the last."""
    seen: Counter[str] = Counter()
    cursor = ""
    for _ in range(200):
        page = window(pipe, SCENE, _place(state), cursor=cursor, size=size, oldest_first=oldest_first)
        seen.update(entry.id.decode() for entry in page.entries)
        cursor = page.next
        if not cursor:
            return seen
    raise AssertionError("the pager never ends")


def _place(state: JobState) -> StatePlace:
    place = LAYOUT.place(state)
    assert place is not None
    return place
