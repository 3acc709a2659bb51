"""The library's own act against ours, on the same generated keys: the whole key space ends the same.

What we do differently on purpose is in `intended`, by name. A failure tells generation, act and number: with
`worlds.make(generation, act, number)` the same queue is there again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from recovery.backends.base import Target
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action, ActionOptions, Outcome
from tests.contract import golden, intended, released, worlds
from tests.contract.golden import Keyspace
from tests.contract.worlds import World
from tests.support.processes.fleet import GENERATIONS, Fleet
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

_STALLED = f"{golden.BASE}:stalled"
FEW, MANY = 20, 280  # states of each act of each generation: 720, and 10,080


@dataclass(frozen=True, slots=True)
class Arena:
    """Where both act, one after the other."""

    store: Store
    pipe: Pipe
    libraries: Fleet


@pytest.fixture
def arena(valkey: Store, libraries: Fleet) -> Iterator[Arena]:
    pipe = Pipe(valkey.client)
    yield Arena(valkey, pipe, libraries)
    pipe.close()


@pytest.mark.parametrize("act", worlds.ACTS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_keys_end_as_the_library_leaves_them(generation: str, act: str, arena: Arena) -> None:
    for number in range(FEW):
        _compare(worlds.make(generation, act, number), arena)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("act", worlds.ACTS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_so_do_ten_thousand(generation: str, act: str, arena: Arena) -> None:
    for number in range(FEW, FEW + MANY):
        _compare(worlds.make(generation, act, number), arena)


def _compare(world: World, arena: Arena) -> None:
    now = int(time.time() * 1000)
    with _heard(world, arena.store) as told_by_it:
        theirs = _theirs(world, arena.store, arena.libraries, now)
    with _heard(world, arena.store) as told_by_us:
        ours = _ours(world, arena.store, arena.pipe, now)
    # The library empties `stalled` and marks all active jobs anew; we take out those that we recover.
    assert set(ours.pop(_STALLED, {"v": ()})["v"]).isdisjoint(world.targets)
    theirs.pop(_STALLED, None)
    assert _different(ours, theirs) == {}, f"{world.name}: (ours, the library's)"
    assert _anonymous(told_by_us) == _anonymous(told_by_it), world.name


@contextmanager
def _heard(world: World, store: Store) -> Iterator[list[tuple[str, str]]]:
    """What Bull publishes: whoever waits for a job learns of it from nothing else. BullMQ writes a stream."""
    if not world.is_bull:
        yield []
        return
    with golden.publishing(store) as heard:
        yield heard


def _anonymous(published: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The name after the @ is that of the queue object that acted."""
    return [(channel.replace("@unstall", "@<token>"), text) for channel, text in published]


def _theirs(world: World, store: Store, libraries: Fleet, now: int) -> Keyspace:
    released.queue_of(world, libraries, store).counts()  # the library writes its version when it is first asked
    _renew(world, store)
    order = _in_their_order(store)
    released.act(world, libraries, store, now)
    return intended.of(world, golden.dump(store), order, now)


def _ours(world: World, store: Store, pipe: Pipe, now: int) -> Keyspace:
    _renew(world, store)
    target = Target(pipe, world.case.ref, world.flavour)
    for outcome in _act(world, store, target, now):
        assert outcome is Outcome.DONE, world.name
    return golden.dump(store)


def _act(world: World, store: Store, target: Target, now: int) -> Iterator[Outcome]:
    ours = operator(world.flavour)
    options = ActionOptions(is_late=True, children=True, other_queues=True)  # as the library does it
    if world.act in ("pause", "resume"):
        yield ours.on_queue(Action(world.act), target, options, now).outcome
    elif world.act == "recover":
        for id in _in_their_order(store):
            if id in world.targets:
                yield ours.on_jobs(_recovery(world, id), target, [world.seen(id)], options, now)[0].outcome
    else:
        for done in ours.on_jobs(Action(world.act), target, [world.seen(id) for id in world.targets], options, now):
            yield done.outcome


def _recovery(world: World, id: str) -> Action:
    """What the library's check comes to: a job of a living schedule never fails by stalling."""
    facts = world.facts[id]
    is_over = facts["stalls"] + 1 > worlds.MAX_STALLS and not facts["scheduler"]
    return Action.FAIL if is_over else Action.REQUEUE


def _in_their_order(store: Store) -> list[str]:
    """As a script sees them: the client makes a set of it, which has no order."""
    return [id.decode() for id in store.do("EVAL", "return redis.call('SMEMBERS', KEYS[1])", 1, _STALLED)]


def _renew(world: World, store: Store) -> None:
    store.flush()
    golden.load(store, world.keys)


def _different(ours: Keyspace, theirs: Keyspace) -> dict[str, tuple[Any, Any]]:
    mine, its = (_without_order_of_removals(golden.compared(keys)) for keys in (ours, theirs))
    return {key: (mine.get(key), its.get(key)) for key in mine.keys() | its.keys() if mine.get(key) != its.get(key)}


def _without_order_of_removals(keys: Keyspace) -> Keyspace:
    """Which child of a family goes first says nothing: the library begins with those that are done."""
    for entry in keys.values():
        if entry["t"] == "stream":
            removals = [event for event in entry["v"] if event["event"] == "removed"]
            others = [event for event in entry["v"] if event["event"] != "removed"]
            entry["v"] = [*others, *sorted(removals, key=lambda event: event["jobId"])]
    return keys
