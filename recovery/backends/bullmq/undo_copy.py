"""Keeps an undo copy of a job that is removed, so that it can be restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recovery.backends.redis_common import decode
from recovery.domain.actions.types import UndoCopy
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState
from recovery.stores.redis.scripts import Part

# Of one job. What is bigger blocks the server for milliseconds while it is packed, and fills the place for all others.
KEEP_LIMIT = 1024 * 1024
# Of all jobs of one call together: they are in memory here at the same time.
KEEP_TOTAL = 32 * 1024 * 1024

# The list or set of each state, as the scripts name it. A job of no known state is looked for in all of them.
PLACES = {
    JobState.WAITING: "wait",
    JobState.PAUSED: "paused",
    JobState.PRIORITIZED: "prioritized",
    JobState.DELAYED: "delayed",
    JobState.WAITING_CHILDREN: "waiting-children",
    JobState.ACTIVE: "active",
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.UNKNOWN: "",
}
_STATES = {place: state for state, place in PLACES.items()}
_HEAD = 6  # id, place, score, neighbour, the parent that waited for it, size; then suffix and dump of each key


def keep_limit(jobs: int) -> int:
    """Returns how many bytes of each job are kept when one call removes so many."""
    return min(KEEP_LIMIT, KEEP_TOTAL // max(1, jobs))


def parse_copy(reply: Any) -> UndoCopy | None:
    """Returns one job as `keepsake.lua` answers it; None when it was too big, or there was nothing of it but an id."""
    parts = decode.items(reply)
    if len(parts) <= _HEAD:
        return None
    id, place, score, before, parent, size = map(decode.name, parts[:_HEAD])
    dumps = tuple(zip(map(decode.name, parts[_HEAD::2]), parts[_HEAD + 1 :: 2], strict=True))
    return UndoCopy(id, _STATES[place], dumps, score, before, int(size), parent)


def is_too_big(reply: Any) -> bool:
    """Returns True if there was something to keep, and it was more than the limit."""
    return decode.items(reply)[_HEAD - 1] == b"-1"


def parent_of(reply: Any) -> bytes:
    """Returns the key of the parent that waited for the job; b"" when none did."""
    return decode.items(reply)[4]


def restore_args(kept: UndoCopy) -> Sequence[Part]:
    """Returns suffix and dump of each key, as `restore-job.lua` takes them."""
    return [part for suffix, dump in kept.dumps for part in (encode_name(suffix), dump)]
