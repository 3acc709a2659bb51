"""A semaphore shared fairly: each holder has a share, the longest waiting comes next, and every wait has an end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from dashboard.server.fair_semaphore import FairSemaphore, NoFreeSlot


async def turns() -> None:
    """Whatever can go on goes on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_holder_has_a_share_and_others_go_on() -> None:
    places = FairSemaphore(3, 2)
    for _ in range(2):
        await places.take("anne")
    third = asyncio.create_task(places.take("anne"))
    await turns()
    assert not third.done()
    await places.take("bob")
    third.cancel()


async def test_a_place_goes_to_whoever_waits_longest_and_has_not_its_share() -> None:
    places = FairSemaphore(2, 1)
    give_back = await places.take("anne")
    await places.take("bob")
    waiting = {name: asyncio.create_task(places.take(name)) for name in ("bob", "carol", "dora")}
    await turns()
    give_back()
    await turns()
    assert [name for name, task in waiting.items() if task.done()] == ["carol"]
    for task in waiting.values():
        task.cancel()


async def test_giving_back_twice_gives_one_place() -> None:
    places = FairSemaphore(1, 1)
    give_back = await places.take("anne")
    give_back()
    await places.take("bob")
    give_back()
    assert places.held_by("bob") == 1
    with pytest.raises(NoFreeSlot):
        await places.take("bob", waiting=0)


async def test_beyond_the_share_and_those_who_may_wait_it_is_refused_at_once() -> None:
    places = FairSemaphore(4, 1, queue=2)
    await places.take("anne")
    waiting = asyncio.create_task(places.take("anne", waiting=1))
    await turns()
    with pytest.raises(NoFreeSlot) as own:
        await places.take("anne", waiting=1)
    assert own.value.is_own
    for name in ("bob", "carol", "dora"):
        await places.take(name)
    others = asyncio.create_task(places.take("eve"))
    await turns()
    with pytest.raises(NoFreeSlot) as all_taken:
        await places.take("fred")
    assert not all_taken.value.is_own
    for task in (waiting, others):
        task.cancel()


async def test_whoever_waits_too_long_is_told_and_leaves_nothing_behind() -> None:
    places = FairSemaphore(1, 1, seconds=0.01)
    give_back = await places.take("anne")
    with pytest.raises(NoFreeSlot):
        await places.take("bob")
    give_back()
    async with places.one("bob"):
        assert places.held_by("bob") == 1
    assert (places._held, places._waiting, len(places._queue)) == (Counter(), Counter(), 0)


async def test_whoever_leaves_in_the_moment_it_is_their_turn_leaves_the_place_to_the_next() -> None:
    places = FairSemaphore(1, 1)
    give_back = await places.take("anne")
    leaves, stays = asyncio.create_task(places.take("bob")), asyncio.create_task(places.take("carol"))
    await turns()
    give_back()
    leaves.cancel()
    await turns()
    assert leaves.cancelled()
    assert stays.done()


@pytest.mark.parametrize("seed", range(5))
async def test_no_place_is_lost_or_made_whatever_happens(seed: int) -> None:
    chance, places, most = random.Random(seed), FairSemaphore(5, 2, queue=10, seconds=0.005), 0

    async def use(holder: str) -> None:
        nonlocal most
        try:
            async with asyncio.timeout(chance.uniform(0, 0.02)), places.one(holder, waiting=chance.randrange(4)):
                assert places.held_by(holder) <= 2
                most = max(most, places._held.total())
                await asyncio.sleep(chance.uniform(0, 0.003))
        except (NoFreeSlot, TimeoutError):
            pass

    await asyncio.gather(*(use(chance.choice("abcdef")) for _ in range(300)))
    assert most == 5
    assert (places._held, places._waiting, len(places._queue)) == (Counter(), Counter(), 0)
