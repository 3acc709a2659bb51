"""A queue of each generation with a job for every act, made by hand, and a wire on which another scheduler comes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

from recovery import shared_clock
from recovery.backends import registry as backends_registry
from recovery.backends.base import Command, CommandClient, Target
from recovery.backends.redis_common import fencing
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, Rival, ScriptOutcome, UndoCopy
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import Fenced
from recovery.stores.redis.scripts import script

FLAVOURS = {
    "bull3": LibraryVersion(QueueLibrary.BULL, 3),
    "bull4": LibraryVersion(QueueLibrary.BULL, 4),
    "bullmq3": LibraryVersion(QueueLibrary.BULLMQ, 3, "3.16.2"),
    "bullmq4": LibraryVersion(QueueLibrary.BULLMQ, 4, "4.18.3"),
    "bullmq5": LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5"),
    "bullmq6": LibraryVersion(QueueLibrary.BULLMQ, 6, "6.7.0"),
}
NOW = shared_clock.now()
_PROVEN = ActionOptions(is_late=True, force=True)
_SCRIPT = ("EVALSHA", "EVAL")
_READ = [script(path) for path in Path(backends_registry.__file__).parent.glob("*/lua/read/*.lua")]
_READING = {one.digest for one in _READ} | {one.text for one in _READ}

Attempt = Callable[[Target], Rival | None]


def hold(client: Any, base: str, epoch: int, installation: str = fencing.UNNAMED, ms: int = 60_000) -> None:
    """As a script of this installation leaves the fence behind."""
    client.set(fencing.epoch_key_of(base, installation), epoch, ex=60)
    if ms:
        client.set(fencing.key_of(base), installation, px=ms)


class Queue:
    """`client` may be that of a cluster: then the base has a tag."""

    def __init__(self, client: Any, generation: str, base: str = "bull:mail") -> None:
        self.client, self.base = client, base
        self.flavour = FLAVOURS[generation]

    @property
    def is_bull(self) -> bool:
        return self.flavour.library is QueueLibrary.BULL

    @property
    def fence(self) -> bytes:
        return fencing.key_of(self.base)

    def target(self, wire: CommandClient, epoch: int | None, installation: str = "") -> Target:
        return Target(wire, QueueRef("main", self.base), self.flavour, epoch, installation)

    def met(self) -> int | None:
        found = self.client.get(fencing.epoch_key_of(self.base))
        return None if found is None else int(found)

    def seed(self) -> None:
        """A job in each state; paused, so that a resume has something to do as well."""
        for id in ("alone", "lost", "locked", "bound", "waits", "later"):
            self.add(id)
        for id in ("alone", "lost", "locked", "bound"):
            self.client.lpush(f"{self.base}:active", id)
        for id in ("locked", "bound"):
            self.client.set(f"{self.base}:{id}:lock", "t:1", px=3_600_000)
        self.client.lpush(f"{self.base}:wait", "waits")
        self.client.zadd(f"{self.base}:delayed", {"later": (NOW + 3_600_000) * (1 if self.is_bull else 4096)})
        self.failed("1", "2")
        self.client.hset(f"{self.base}:meta", mapping={"opts.maxLenEvents": 100_000})

    def add(self, id: str, **fields: Any) -> None:
        whole = {"name": "mail", "data": "{}", "opts": "{}", "timestamp": NOW, "delay": 0, "priority": 0}
        self.client.hset(f"{self.base}:{id}", mapping=whole | fields)

    def failed(self, *ids: str) -> None:
        for number, id in enumerate(ids):
            self.add(id, finishedOn=NOW - 60_000 + number, failedReason="no route")
            self.client.zadd(f"{self.base}:failed", {id: NOW - 60_000 + number})

    def dump(self) -> Mapping[bytes, object]:
        """Everything but the fence."""
        found = (key for key in self.client.keys("*") if not key.startswith(b"unstall:fence:"))
        return {key: self.client.dump(key) for key in found}


def act(what: Action, id: str, state: JobState, options: ActionOptions = _PROVEN, **seen: Any) -> Attempt:
    """One act on one job; which later epoch it met."""

    def attempt(target: Target) -> Rival | None:
        (done,) = operator(target.flavour).on_jobs(what, target, [ExpectedJob(id, state, **seen)], options, NOW)
        return _told(done)

    return attempt


def turn(what: Action) -> Attempt:
    def attempt(target: Target) -> Rival | None:
        try:
            done = operator(target.flavour).on_queue(what, target, ActionOptions(), NOW)
        except Fenced as error:
            return error.met
        return _told(done)

    return attempt


def take_away(what: Action, **options: Any) -> Attempt:
    def attempt(target: Target) -> Rival | None:
        taken = operator(target.flavour).take_away(what, target, ActionOptions(**options), NOW, budget=100)
        assert (taken.fenced is None) == bool(taken.removed), taken
        return taken.fenced

    return attempt


def put_back(by_hand: Target) -> Attempt:
    """Of a job that somebody without an epoch takes away first."""
    ours = operator(by_hand.flavour)
    (removed,) = ours.on_jobs(Action.REMOVE, by_hand, [ExpectedJob("waits", JobState.WAITING)], _PROVEN, NOW)
    assert isinstance(removed.kept, UndoCopy)
    kept = removed.kept

    def attempt(target: Target) -> Rival | None:
        try:
            return _told(ours.put_back(target, kept, NOW))
        except Fenced as error:
            return error.met

    return attempt


def lead(target: Target) -> Rival | None:
    try:
        operator(target.flavour).fence(target)
    except Fenced as error:
        return error.met
    return None


def _told(done: ScriptOutcome) -> Rival | None:
    if done.fenced is None:
        assert done.outcome is Outcome.DONE, done
        return None
    assert done.outcome is Outcome.REFUSED
    assert str(Fenced(done.fenced)) == done.why
    return done.fenced


ATTEMPTS: Mapping[str, Attempt] = {
    "requeue": act(Action.REQUEUE, "alone", JobState.ACTIVE),
    "fail": act(Action.FAIL, "lost", JobState.ACTIVE),
    "fail directly": act(Action.FAIL, "lost", JobState.ACTIVE, ActionOptions(is_late=True, directly=True)),
    "release": act(Action.RELEASE, "locked", JobState.ACTIVE, token="t:1"),
    "release and requeue": act(Action.RELEASE, "bound", JobState.ACTIVE, ActionOptions(requeue=True), token="t:1"),
    "retry": act(Action.RETRY, "1", JobState.FAILED),
    "promote": act(Action.PROMOTE, "later", JobState.DELAYED),
    "remove": act(Action.REMOVE, "waits", JobState.WAITING),
    "clean": take_away(Action.CLEAN, state=JobState.FAILED),
    "drain": take_away(Action.DRAIN, delayed=True),
    "pause": turn(Action.PAUSE),
    "lead": lead,
}


class Overtaken:
    """A wire on which another scheduler begins to lead right behind the n-th script that was carried out.

    Those that only read do not count.
    """

    def __init__(self, wire: CommandClient, client: redis.Redis, base: str, behind: int, epoch: int) -> None:
        self._wire, self._client, self._base = wire, client, base
        self._left, self._epoch = behind, epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def call(self, commands: Sequence[Command]) -> list[Any]:
        return [reply for command in commands for reply in self._one(command)]

    def _one(self, command: Command) -> list[Any]:
        replies = self._wire.call([command])
        if command[0] in _SCRIPT and command[1] not in _READING and not isinstance(replies[0], Exception):
            self._left -= 1
            if not self._left:
                hold(self._client, self._base, self._epoch)
        return replies
