"""The reader of Bull 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.backends.base import Capabilities, Command, CommandClient, Replies
from recovery.backends.bull import versions
from recovery.backends.bull.keys import BullKeys
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.reader import KeyspaceReader
from recovery.backends.redis_common.sample_replies import oldest, problem, single_id
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobFamily, JobState
from recovery.domain.queues.types import JobCounts, LibraryVersion, QueueSample

# -- sample
# Samples one Bull queue: the commands of each snapshot, and what the answers mean.


_WAITING, _ACTIVE, _PAUSED, _DELAYED, _COMPLETED, _FAILED = range(6)
_FLAG, _TAIL, _PAUSED_TAIL, _RUNNING, _DUE, _WATCHDOG, _LIMITER, _ADDED = range(6, 14)


def plan(base: str) -> tuple[Command, ...]:
    """Returns the commands. A thousand queues ask this every two seconds, so each is one that the screen needs."""
    keys = BullKeys(base)
    return (
        (b"LLEN", keys.wait),
        (b"LLEN", keys.active),
        (b"LLEN", keys.paused),
        (b"ZCARD", keys.delayed),
        (b"ZCARD", keys.completed),
        (b"ZCARD", keys.failed),
        (b"EXISTS", keys.paused_flag),
        (b"LINDEX", keys.wait, -1),
        (b"LINDEX", keys.paused, -1),
        (b"LINDEX", keys.active, -1),
        (b"ZRANGE", keys.delayed, 0, 0, b"WITHSCORES"),
        (b"PTTL", keys.watchdog),
        (b"PTTL", keys.limiter),
        (b"GET", keys.counter),
    )


def read(ref: QueueRef, flavour: LibraryVersion, replies: Replies) -> tuple[QueueSample, tuple[str, str]]:
    """Returns the sample. Bull has no set of prioritized jobs, and no children: those are 0, not unknown."""
    due = decode.pairs(replies[_DUE])
    flag = decode.count(replies[_FLAG])
    running = single_id(replies[_RUNNING])
    sample = QueueSample(
        ref=ref,
        flavour=flavour,
        counts=JobCounts(
            waiting=decode.count(replies[_WAITING]),
            active=decode.count(replies[_ACTIVE]),
            prioritized=0,
            delayed=decode.count(replies[_DELAYED]),
            waiting_children=0,
            completed=decode.count(replies[_COMPLETED]),
            failed=decode.count(replies[_FAILED]),
            paused=decode.count(replies[_PAUSED]),
        ),
        is_paused=None if flag is None else flag > 0,
        limited_for=decode.remaining(replies[_LIMITER]),
        next_delayed_at=decode.due(decode.score(due[0][1])) if due else None,
        stalled_check_ttl=decode.remaining(replies[_WATCHDOG]),
        added=decode.integer(replies[_ADDED]),
        error=problem(replies),
    )
    first = oldest((single_id(replies[_TAIL]), single_id(replies[_PAUSED_TAIL])))
    return sample, (first, decode_name(running) if running else "")


# -- reader


class BullReader(KeyspaceReader):
    layout = versions.LAYOUT

    def capabilities(self, flavour: LibraryVersion) -> Capabilities:
        return versions.capabilities(flavour)

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        return plan(ref.base)

    def sample(
        self, ref: QueueRef, flavour: LibraryVersion, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        return read(ref, flavour, replies)

    def following(self, wire: CommandClient, ref: QueueRef, wanted: Sequence[tuple[str, JobState]]) -> None:
        """Returns None: Bull's scripts do not say where a job went, and no read follows them."""

    def family(self, wire: CommandClient, ref: QueueRef, id: str) -> JobFamily:
        """Returns no family: Bull's jobs have neither parents nor children."""
        return JobFamily(None)
