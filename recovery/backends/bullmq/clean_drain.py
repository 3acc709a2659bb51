"""Cleans and drains: removes many jobs, in steps of which each does a bounded part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, Target
from recovery.backends.bullmq import relatives, scripts, undo_copy
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.relatives import RelativeOutOfReach, RelativeRef
from recovery.backends.bullmq.versions import LAYOUT, BullMQTraits
from recovery.backends.redis_common import decode, fencing
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.actions.types import Action, ActionOptions, RemovalStep, UndoCopy
from recovery.domain.jobs import JobState
from recovery.errors import Fenced, Unsupported
from recovery.stores.redis.scripts import Part

_WINDOW = 500  # ids looked at in one round trip
_SCORE = b"score"
# What a job's age is taken from, as the library does it: of several fields the first that is set.
_AGES: dict[JobState, tuple[bytes, ...]] = {
    JobState.COMPLETED: (_SCORE,),
    JobState.FAILED: (_SCORE,),
    JobState.DELAYED: (b"processedOn", b"timestamp"),
    JobState.PRIORITIZED: (b"timestamp",),
    JobState.WAITING: (b"finishedOn", b"processedOn", b"timestamp"),
    JobState.PAUSED: (b"finishedOn", b"processedOn", b"timestamp"),
    JobState.ACTIVE: (b"finishedOn", b"processedOn", b"timestamp"),
}
_DRAINED = (JobState.WAITING, JobState.PAUSED, JobState.PRIORITIZED)
_LISTS = (JobState.WAITING, JobState.PAUSED, JobState.ACTIVE)
_CLEANED = f"Clean takes one of these states: {', '.join(_AGES)}."


class _Spot(NamedTuple):
    """Progress of the steps: which place, and how many entries were passed over there."""

    place: int = 0
    passed: int = 0

    @classmethod
    def parse(cls, cursor: str) -> _Spot:
        return cls(*map(int, cursor.split(":"))) if cursor else cls()

    def __str__(self) -> str:
        return f"{self.place}:{self.passed}"


def take_away(
    act: Action, target: Target, traits: BullMQTraits, options: ActionOptions, now: int, *, budget: int
) -> RemovalStep:
    """Removes the oldest first. What is locked, too young, or a scheduler's next run is passed over, and without
    `ActionOptions.other_queues` a job for which a parent in another queue waits.

    `ActionOptions.limit` is for what is still to come: the caller lowers it by what is gone before the next step. When
    another scheduler leads the step ends, with what it took until then.
    """
    states, cutoff = _wanted(act, options, now)
    spot = _Spot.parse(options.cursor)
    most = min(budget, options.limit) if options.limit else budget
    sweep = _Sweep(target, traits, now, cutoff, most, others=options.other_queues)
    try:
        spot, has_all = sweep.over(states, spot)
        if act is Action.CLEAN and (sweep.removed or not options.cursor):
            scripts.run(target, "tell-cleaned", [BullMQKeys(target.ref.base).events], [sweep.removed])
    except Fenced as error:
        return RemovalStep(tuple(sweep.kept), sweep.removed, sweep.skipped, next=options.cursor, fenced=error.met)
    is_finished = has_all or bool(options.limit and sweep.removed >= options.limit)
    return RemovalStep(tuple(sweep.kept), sweep.removed, sweep.skipped, is_finished, "" if is_finished else str(spot))


def _wanted(act: Action, options: ActionOptions, now: int) -> tuple[tuple[JobState, ...], int | None]:
    """Returns the places, and the time when a job must have been there already; None: whatever its age."""
    if act is Action.DRAIN:
        return (*_DRAINED, JobState.DELAYED) if options.delayed else _DRAINED, None
    if options.state not in _AGES:
        raise Unsupported(_CLEANED)
    return (options.state,), now - max(0, options.older_than)


class _Sweep:
    """Step that removes at most `most` jobs."""

    def __init__(
        self, target: Target, traits: BullMQTraits, now: int, cutoff: int | None, most: int, *, others: bool
    ) -> None:
        self._target = target
        self._others = int(others)
        self._keys = BullMQKeys(target.ref.base)
        self._call = (traits.for_script(), now)
        self._cutoff = cutoff
        self._most = most
        self._keep_limit = undo_copy.keep_limit(most)
        self.removed = 0
        self.skipped = 0
        self.kept: list[UndoCopy] = []

    def over(self, states: Sequence[JobState], spot: _Spot) -> tuple[_Spot, bool]:
        """Returns where it ended, and whether that is the end of the last place."""
        while spot.place < len(states):
            if self.removed >= self._most:
                return spot, False
            ids = self._window(states[spot.place], spot.passed)
            spot = self._take(states[spot.place], ids, spot) if ids else _Spot(spot.place + 1)
        return spot, True

    def _window(self, state: JobState, passed: int) -> list[bytes]:
        """Returns the next ids, the oldest first: in a list they stand at the tail."""
        key, size = self._keys.named(undo_copy.PLACES[state].encode()), min(_WINDOW, self._most - self.removed)
        if state in _LISTS:
            return self._ids((b"LRANGE", key, -(passed + size), -(passed + 1)))[::-1]
        if self._cutoff is not None and _AGES[state] == (_SCORE,):
            return self._ids((b"ZRANGEBYSCORE", key, b"-inf", self._cutoff, b"LIMIT", passed, size))
        return self._ids((b"ZRANGE", key, passed, passed + size - 1))

    def _ids(self, command: Command) -> list[bytes]:
        (reply,) = self._target.wire.call([command])
        raise_if_refused(reply, self._target.ref, bytes(command[0]))  # type: ignore[arg-type] # the first word is bytes
        return decode.items(reply)

    def _take(self, state: JobState, ids: Sequence[bytes], spot: _Spot) -> _Spot:
        """Runs a script for each job of a window that may go, all in one batch; drops what is no job with them.

        Raises Fenced; what was taken before that is counted.
        """
        jobs = [id for id in ids if not LAYOUT.is_marker(id)]
        replies = self._scripts(state, self._old(state, jobs))
        gone = sum(self._removed(reply) for reply in replies if fencing.rival_in(reply) is None)
        self.removed += gone
        for reply in replies:
            fencing.check(reply)
        self.skipped += len(jobs) - gone
        dropped = self._drop(state, [id for id in ids if LAYOUT.is_marker(id)])
        return _Spot(spot.place, spot.passed + len(ids) - gone - dropped)

    def _old(self, state: JobState, ids: Sequence[bytes]) -> list[bytes]:
        """Returns those that are not too young; the script compares again."""
        if self._cutoff is None or _AGES[state] == (_SCORE,):
            return list(ids)
        asked: list[Command] = [(b"HMGET", self._keys.job(id), *_AGES[state]) for id in ids]
        replies = self._target.wire.call(asked) if asked else []
        return [id for id, reply in zip(ids, replies, strict=True) if _age(state, reply) <= self._cutoff]

    def _scripts(self, state: JobState, ids: Sequence[bytes]) -> list[Any]:
        lines = relatives.read_ancestors(self._target, [self._keys.job(id) for id in ids])
        runs = [(id, line) for id in ids if not isinstance(line := lines[self._keys.job(id)], RelativeOutOfReach)]
        return scripts.run_each(self._target, "clean-job", [self._run(state, id, line) for id, line in runs])

    def _run(self, state: JobState, id: bytes, line: Sequence[RelativeRef]) -> tuple[Sequence[Part], Sequence[Part]]:
        keys = (*scripts.queue_keys(self._target.ref.base), self._keys.job(id), *relatives.keys_of(line))
        cutoff = "" if self._cutoff is None else self._cutoff
        age = (cutoff, b",".join(_AGES[state]))
        how = (*age, self._keep_limit, self._others)
        return keys, (*self._call, id, undo_copy.PLACES[state], *how, *relatives.args_of(line))

    def _removed(self, reply: Any) -> int:
        raise_if_refused(reply, self._target.ref, b"EVALSHA")
        if decode.octets(reply[0]) != b"done":
            return 0
        self.kept += [kept for one in reply[1:] if (kept := undo_copy.parse_copy(one)) is not None]
        return 1

    def _drop(self, state: JobState, markers: Sequence[bytes]) -> int:
        """Drops entries of BullMQ ≤ 4 that wake workers: there is nothing left to wake them for."""
        key = self._keys.named(undo_copy.PLACES[state].encode())
        return decode.count(scripts.run(self._target, "drop-entries", [key], markers)) or 0 if markers else 0


def _age(state: JobState, reply: Any) -> int:
    """Returns the first time that is set; a job without any of them is as old as can be."""
    return next((decode.integer(field) or 0 for field in decode.fields(reply, len(_AGES[state])) if field), 0)
