"""The operator's user of docs/redis-acl.md is enough for every act, and the one that watches for none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.backends.base import Target
from recovery.backends.redis_common import fencing
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, UndoCopy
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import AccessDenied
from tests.integration.stores.test_acl import admit, documented
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.stuck.watching import NOW, finish

JOBS = QueueRef("main", "bull:jobs")
FLAVOURS = {
    "bullmq": LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5"),
    "bullmq4": LibraryVersion(QueueLibrary.BULLMQ, 4, "4.18.3"),
    "bull": LibraryVersion(QueueLibrary.BULL, 4),
}
LUA = Path(__file__).parents[3] / "recovery" / "backends"
FAILED = ExpectedJob("1", JobState.FAILED)
PROVEN = ActionOptions(is_late=True, directly=True, force=True)


@pytest.fixture
def server(serve: Callable[..., Store]) -> Store:
    return serve()


@pytest.fixture(params=FLAVOURS)
def target(request: pytest.FixtureRequest, server: Store) -> Iterator[Target]:
    """One queue as the operator's user reaches it, with a job in each state."""
    _seed(server)
    with wired(admit(server, documented("unstall-operator"))) as wire:
        yield Target(wire, JOBS, FLAVOURS[request.param])


def test_every_act_on_jobs_is_allowed(target: Target) -> None:
    ours = operator(target.flavour)

    def act(what: Action, id: str, state: JobState, **seen: Any) -> None:
        (done,) = ours.on_jobs(what, target, [ExpectedJob(id, state, **seen)], PROVEN, NOW)
        assert done.outcome is Outcome.DONE, (what, done)

    act(Action.RELEASE, "locked", JobState.ACTIVE, token="t:1")
    act(Action.REQUEUE, "alone", JobState.ACTIVE)
    act(Action.FAIL, "lost", JobState.ACTIVE)
    act(Action.RETRY, "1", JobState.FAILED)
    act(Action.PROMOTE, "later", JobState.DELAYED)
    act(Action.REMOVE, "waits", JobState.WAITING)


def test_every_act_on_a_queue_is_allowed(target: Target) -> None:
    ours = operator(target.flavour)
    for act in (Action.PAUSE, Action.RESUME):
        assert ours.on_queue(act, target, ActionOptions(), NOW).outcome is Outcome.DONE
    taken = ours.take_away(Action.CLEAN, target, ActionOptions(state=JobState.FAILED), NOW, budget=10)
    assert taken.removed == 1
    drained = ours.take_away(Action.DRAIN, target, ActionOptions(delayed=True), NOW, budget=10)
    assert drained.removed == 2
    for kept in (*taken.jobs, *drained.jobs):
        assert isinstance(kept, UndoCopy)
        assert ours.put_back(target, kept, NOW).outcome is Outcome.DONE


def test_the_user_that_watches_acts_on_nothing(server: Store) -> None:
    _seed(server)
    before = {key: server.client.dump(key) for key in server.client.keys("*")}
    flavour = FLAVOURS["bullmq"]
    with wired(admit(server, documented())) as wire, pytest.raises(AccessDenied):
        operator(flavour).on_jobs(
            Action.REQUEUE, Target(wire, JOBS, flavour), [ExpectedJob("alone", JobState.ACTIVE)], ActionOptions(), NOW
        )
    assert {key: server.client.dump(key) for key in server.client.keys("*")} == before


NAMED = documented("unstall-operator").replace(" ~* ", " ~bull:* ")
assert documented("unstall-operator") != NAMED


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=FLAVOURS)
def test_a_scheduler_acts_under_its_epoch_when_the_fence_is_granted(server: Store, flavour: LibraryVersion) -> None:
    _seed(server)
    with wired(admit(server, NAMED.replace("~bull:*", "~bull:* ~unstall:fence:*"))) as wire:
        (done,) = operator(flavour).on_jobs(Action.RETRY, Target(wire, JOBS, flavour, 7), [FAILED], PROVEN, NOW)
    assert done.outcome is Outcome.DONE
    assert server.client.get(fencing.epoch_key_of(JOBS.base)) == b"7"


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=FLAVOURS)
def test_without_that_right_it_does_nothing_and_a_person_acts_as_before(server: Store, flavour: LibraryVersion) -> None:
    _seed(server)
    ours, before = operator(flavour), {key: server.client.dump(key) for key in server.client.keys("*")}
    with wired(admit(server, NAMED)) as wire:
        with pytest.raises(AccessDenied):
            ours.on_jobs(Action.RETRY, Target(wire, JOBS, flavour, 7), [FAILED], PROVEN, NOW)
        with pytest.raises(AccessDenied):
            ours.fence(Target(wire, JOBS, flavour, 7))
        assert {key: server.client.dump(key) for key in server.client.keys("*")} == before
        (done,) = ours.on_jobs(Action.RETRY, Target(wire, JOBS, flavour), [FAILED], PROVEN, NOW)
    assert done.outcome is Outcome.DONE


def test_every_command_of_a_script_is_granted(server: Store) -> None:
    admit(server, documented("unstall-operator"))
    scripts = "\n".join(path.read_text() for path in LUA.rglob("*.lua"))
    commands = sorted(set(re.findall(r"\bp?call\(\s*\"([A-Z]+)\"", scripts)))
    assert len(commands) > 30
    refused = [name for name in commands if b"no permissions" in _dry(server, name)]
    assert refused == []


def _dry(server: Store, command: str) -> bytes:
    """What the server says of the bare command. It knows neither that it lacks arguments nor that nothing runs."""
    info = server.client.execute_command("COMMAND INFO", command)
    arity = abs(next(iter(info.values()))["arity"]) if isinstance(info, dict) else abs(info[0][1])
    reply = server.do("ACL", "DRYRUN", "unstall", command, *(["unstall:cancel:x"] * (arity - 1)))
    return reply if isinstance(reply, bytes) else str(reply).encode()


def _seed(server: Store) -> None:
    client, base = server.client, JOBS.base
    fields = {"name": "mail", "data": "{}", "opts": "{}", "timestamp": NOW, "delay": 0}
    for id in ("alone", "lost", "locked", "waits", "later"):
        client.hset(f"{base}:{id}", mapping=fields)
    client.lpush(f"{base}:active", "alone", "lost", "locked")
    client.set(f"{base}:locked:lock", "t:1", px=600_000)
    client.lpush(f"{base}:wait", "waits")
    client.zadd(f"{base}:delayed", {"later": (NOW + 60_000) * 4096})
    client.hset(f"{base}:meta", mapping={"opts.maxLenEvents": 100})
    finish(client, base, NOW - 60_000, outcome="failed")
