"""Plans the commands that read one queue at a tick: fewer where keys do not exist, and an idle queue only every other
tick.

Most keys of a queue are not there at most times: no delayed jobs, nothing paused, nothing at all. One `EXISTS` over all
keys that were not there at the last answer says that they still are not; what they would have answered is known then.
When one of them is there, the whole queue is asked in the same tick. So each answer is as complete as that of a queue
that is always asked everything.

A queue is idle when nothing is active, no worker is connected, and its answers have not changed for some ticks. Its
numbers are carried over a tick, with the time when they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.backends.base import Command, QueueReader
from recovery.domain.queues.types import QueueSample
from recovery.scanners.collect.oldest_job_ages import OldestJob
from recovery.scanners.discovery.known_queues import KnownQueue
from recovery.stores.redis.client import EncodedBatch
from recovery.stores.redis.reply_limits import OversizedReply, UnreadReply

CALM = 5  # equal answers of one queue in a row, until it counts as idle
IDLE_MS = 4_000  # a change in an idle queue is seen within this time
SKIPPED_MS = 60_000  # a queue with a key that is too long to be read: the server copies all of it for each question
_NEAR = 1_500  # ms: a tick that comes a little late does not find what it could have asked before
_UNREAD = frozenset({OversizedReply, UnreadReply})
_FEWEST = 2  # keys that are not there: one EXISTS in place of one command gains nothing

# Answer of each command for a key that does not exist. A hash may lack the fields, so HMGET is always sent.
_NOTHING: dict[bytes, Any] = {
    b"LLEN": 0,
    b"ZCARD": 0,
    b"EXISTS": 0,
    b"LINDEX": None,
    b"GET": None,
    b"LRANGE": [],
    b"ZRANGE": [],
    b"PTTL": -2,
}


@dataclass(slots=True)
class QueueReadPlan:
    """A queue between two ticks: the commands to be sent next, and the last answers."""

    known: KnownQueue
    reader: QueueReader
    number: int  # its place in the list of queues
    commands: tuple[Command, ...] = ()
    whole: EncodedBatch = field(init=False)
    request: EncodedBatch = field(init=False)
    sample: QueueSample | None = None
    heads: tuple[OldestJob, OldestJob] | None = None
    _asked: Sequence[int] | None = None  # indexes of commands that are sent; None: all of them
    _blank: list[Any] = field(init=False)  # the answers of a queue of which no key is there
    _last: Sequence[Any] = ()
    _alike: int = 0
    _spares: bool = True  # off where the server refuses EXISTS with several keys
    _skipped_until: int = 0

    def __post_init__(self) -> None:
        self.commands = self.reader.sample_plan(self.known.ref)
        self.whole = self.request = EncodedBatch(self.commands)
        self._blank = [_NOTHING.get(_name(command)) for command in self.commands]

    def skip(self, replies: Sequence[Any], now: int) -> str:
        """Returns why this queue is skipped for a while; "" when no answer of it was too long."""
        if _UNREAD.isdisjoint(map(type, replies)):  # called a thousand times a snapshot, and nearly always true
            return ""
        refused = next(reply for reply in replies if type(reply) in _UNREAD)
        if not isinstance(refused, UnreadReply):
            self._skipped_until = now + SKIPPED_MS
        self._ask_all()
        return f"skipped: {refused}"

    def skip_slow(self, error: str, now: int) -> str:
        """Skips a queue for a while that made the server too slow to answer in time; returns why."""
        self._skipped_until = now + SKIPPED_MS
        self._ask_all()
        return f"skipped: {error}, while the other queues of this deployment were read"

    def is_due(self, now: int, tick: int) -> bool:
        """Returns True if the queue is to be read at this tick; idle ones take turns, so that each tick reads half."""
        if self.sample is not None and now < self._skipped_until <= now + SKIPPED_MS:
            return False
        if self.sample is None or self.sample.read_at is None or not self._is_idle(self.sample):
            return True
        is_turn = (self.number + tick) % 2 == 0
        return is_turn or not 0 <= now - self.sample.read_at < IDLE_MS - _NEAR

    def _is_idle(self, sample: QueueSample) -> bool:
        return self._alike >= CALM and sample.counts.active == 0 and not sample.workers and not sample.error

    def answers(self, replies: Sequence[Any]) -> Sequence[Any] | None:
        """Returns an answer for each command of the queue; None if a missing key exists now, so all have to be sent."""
        if self._asked is None:
            return replies
        if replies[0] != 0:
            self._spares = self._spares and type(replies[0]) is int
            self._ask_all()
            return None
        filled = self._blank.copy()
        for place, reply in zip(self._asked, replies[1:], strict=True):
            filled[place] = reply
        return filled

    def learn(self, answers: Sequence[Any]) -> None:
        """Takes note of the answers, for the next tick."""
        self._alike = self._alike + 1 if list(answers) == list(self._last) else 0
        if self._alike == 0:
            self._plan(answers)
        self._last = answers

    def _plan(self, answers: Sequence[Any]) -> None:
        here = {
            command[1]
            for command, reply, nothing in zip(self.commands, answers, self._blank, strict=True)
            if _name(command) not in _NOTHING or isinstance(reply, Exception) or reply != nothing
        }
        away = tuple(dict.fromkeys(command[1] for command in self.commands if command[1] not in here))
        asked = [place for place, command in enumerate(self.commands) if command[1] in here]
        if not self._spares or len(away) < _FEWEST:
            self._ask_all()
        elif asked != self._asked:
            self._asked = asked
            self.request = EncodedBatch([(b"EXISTS", *away), *(self.commands[place] for place in asked)])

    def _ask_all(self) -> None:
        self._asked, self.request = None, self.whole


def _name(command: Command) -> bytes:
    name = command[0]
    return name if isinstance(name, bytes) else b""
