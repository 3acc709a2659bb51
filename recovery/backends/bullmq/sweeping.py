"""Cleans and drains: removes many jobs, in steps of which each does a bounded part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, Target
from recovery.backends.bullmq import calls, keepsakes, kin
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.kin import Relative, Unreached
from recovery.backends.bullmq.versions import LAYOUT, Traits
from recovery.backends.shared import decode, fence
from recovery.backends.shared.refusals import insist
from recovery.connections.scripts import Part
from recovery.domain.acting import Act, Kept, Options, Removed
from recovery.domain.jobs import State
from recovery.errors import Fenced, Unsupported

_WINDOW = 500  # ids looked at in one round trip
_SCORE = b"score"
# What a job's age is taken from, as the library does it: of several fields the first that is set.
_AGES: dict[State, tuple[bytes, ...]] = {
    State.COMPLETED: (_SCORE,),
    State.FAILED: (_SCORE,),
    State.DELAYED: (b"processedOn", b"timestamp"),
    State.PRIORITIZED: (b"timestamp",),
    State.WAITING: (b"finishedOn", b"processedOn", b"timestamp"),
    State.PAUSED: (b"finishedOn", b"processedOn", b"timestamp"),
    State.ACTIVE: (b"finishedOn", b"processedOn", b"timestamp"),
}
_DRAINED = (State.WAITING, State.PAUSED, State.PRIORITIZED)
_LISTS = (State.WAITING, State.PAUSED, State.ACTIVE)
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


def take_away(act: Act, target: Target, traits: Traits, options: Options, now: int, *, budget: int) -> Removed:
    """Removes the oldest first. What is locked, too young, or a scheduler's next run is passed over, and without
    `Options.other_queues` a job for which a parent in another queue waits.

    `Options.limit` is for what is still to come: the caller lowers it by what is gone before the next step. When
    another scheduler leads the step ends, with what it took until then.
    """
    states, cutoff = _wanted(act, options, now)
    spot = _Spot.parse(options.cursor)
    most = min(budget, options.limit) if options.limit else budget
    sweep = _Sweep(target, traits, now, cutoff, most, others=options.other_queues)
    try:
        spot, has_all = sweep.over(states, spot)
        if act is Act.CLEAN and (sweep.removed or not options.cursor):
            calls.run(target, "tell-cleaned", [BullMQKeys(target.ref.base).events], [sweep.removed])
    except Fenced as error:
        return Removed(tuple(sweep.kept), sweep.removed, sweep.skipped, next=options.cursor, fenced=error.met)
    is_finished = has_all or bool(options.limit and sweep.removed >= options.limit)
    return Removed(tuple(sweep.kept), sweep.removed, sweep.skipped, is_finished, "" if is_finished else str(spot))


def _wanted(act: Act, options: Options, now: int) -> tuple[tuple[State, ...], int | None]:
    """Returns the places, and the time when a job must have been there already; None: whatever its age."""
    if act is Act.DRAIN:
        return (*_DRAINED, State.DELAYED) if options.delayed else _DRAINED, None
    if options.state not in _AGES:
        raise Unsupported(_CLEANED)
    return (options.state,), now - max(0, options.older_than)


class _Sweep:
    """Step that removes at most `most` jobs."""

    def __init__(
        self, target: Target, traits: Traits, now: int, cutoff: int | None, most: int, *, others: bool
    ) -> None:
        self._target = target
        self._others = int(others)
        self._keys = BullMQKeys(target.ref.base)
        self._call = (traits.for_script(), now)
        self._cutoff = cutoff
        self._most = most
        self._keep_limit = keepsakes.keep_limit(most)
        self.removed = 0
        self.skipped = 0
        self.kept: list[Kept] = []

    def over(self, states: Sequence[State], spot: _Spot) -> tuple[_Spot, bool]:
        """Returns where it ended, and whether that is the end of the last place."""
        while spot.place < len(states):
            if self.removed >= self._most:
                return spot, False
            ids = self._window(states[spot.place], spot.passed)
            spot = self._take(states[spot.place], ids, spot) if ids else _Spot(spot.place + 1)
        return spot, True

    def _window(self, state: State, passed: int) -> list[bytes]:
        """Returns the next ids, the oldest first: in a list they stand at the tail."""
        key, size = self._keys.named(keepsakes.PLACES[state].encode()), min(_WINDOW, self._most - self.removed)
        if state in _LISTS:
            return self._ids((b"LRANGE", key, -(passed + size), -(passed + 1)))[::-1]
        if self._cutoff is not None and _AGES[state] == (_SCORE,):
            return self._ids((b"ZRANGEBYSCORE", key, b"-inf", self._cutoff, b"LIMIT", passed, size))
        return self._ids((b"ZRANGE", key, passed, passed + size - 1))

    def _ids(self, command: Command) -> list[bytes]:
        (reply,) = self._target.wire.call([command])
        insist(reply, self._target.ref, bytes(command[0]))  # type: ignore[arg-type] # the first word is bytes
        return decode.items(reply)

    def _take(self, state: State, ids: Sequence[bytes], spot: _Spot) -> _Spot:
        """Runs a script for each job of a window that may go, all in one batch; drops what is no job with them.

        Raises Fenced; what was taken before that is counted.
        """
        jobs = [id for id in ids if not LAYOUT.is_marker(id)]
        replies = self._scripts(state, self._old(state, jobs))
        gone = sum(self._removed(reply) for reply in replies if fence.met_by(reply) is None)
        self.removed += gone
        for reply in replies:
            fence.check(reply)
        self.skipped += len(jobs) - gone
        dropped = self._drop(state, [id for id in ids if LAYOUT.is_marker(id)])
        return _Spot(spot.place, spot.passed + len(ids) - gone - dropped)

    def _old(self, state: State, ids: Sequence[bytes]) -> list[bytes]:
        """Returns those that are not too young; the script compares again."""
        if self._cutoff is None or _AGES[state] == (_SCORE,):
            return list(ids)
        asked: list[Command] = [(b"HMGET", self._keys.job(id), *_AGES[state]) for id in ids]
        replies = self._target.wire.call(asked) if asked else []
        return [id for id, reply in zip(ids, replies, strict=True) if _age(state, reply) <= self._cutoff]

    def _scripts(self, state: State, ids: Sequence[bytes]) -> list[Any]:
        lines = kin.lines(self._target, [self._keys.job(id) for id in ids])
        runs = [(id, line) for id in ids if not isinstance(line := lines[self._keys.job(id)], Unreached)]
        return calls.each(self._target, "clean-job", [self._run(state, id, line) for id, line in runs])

    def _run(self, state: State, id: bytes, line: Sequence[Relative]) -> tuple[Sequence[Part], Sequence[Part]]:
        keys = (*calls.queue_keys(self._target.ref.base), self._keys.job(id), *kin.keys_of(line))
        cutoff = "" if self._cutoff is None else self._cutoff
        age = (cutoff, b",".join(_AGES[state]))
        how = (*age, self._keep_limit, self._others)
        return keys, (*self._call, id, keepsakes.PLACES[state], *how, *kin.args_of(line))

    def _removed(self, reply: Any) -> int:
        insist(reply, self._target.ref, b"EVALSHA")
        if decode.octets(reply[0]) != b"done":
            return 0
        self.kept += [kept for one in reply[1:] if (kept := keepsakes.kept_of(one)) is not None]
        return 1

    def _drop(self, state: State, markers: Sequence[bytes]) -> int:
        """Drops entries of BullMQ ≤ 4 that wake workers: there is nothing left to wake them for."""
        key = self._keys.named(keepsakes.PLACES[state].encode())
        return decode.count(calls.run(self._target, "drop-entries", [key], markers)) or 0 if markers else 0


def _age(state: State, reply: Any) -> int:
    """Returns the first time that is set; a job without any of them is as old as can be."""
    return next((decode.integer(field) or 0 for field in decode.fields(reply, len(_AGES[state])) if field), 0)
