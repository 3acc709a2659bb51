"""What keeps a scheduler that leads no more from changing anything: each script meets the newest epoch of its queue.

A script is given the fence as its last key and the epoch as its last argument (lua/write/parts/fence.lua). Who acts by
hand has no epoch: no key of ours is touched then, and none has to be granted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis

from recovery.backends.base import Target
from recovery.backends.shared.keys import Keys
from recovery.backends.shared.refusals import insist
from recovery.connections.scripts import Part, script
from recovery.domain.acting import Done, Outcome, Seen
from recovery.domain.refs import raw
from recovery.errors import Fenced

_RAISE = Path(__file__).parent / "lua" / "write" / "raise-fence.lua"
_WORD = "FENCED "


def key_of(base: str) -> bytes:
    """In the same slot as the queue's own keys: the base has the tag."""
    return b"unstall:fence:" + raw(base)


def part_of(target: Target) -> tuple[Part, Part]:
    """The last key and the last argument of every script."""
    if target.epoch is None:
        return Keys(target.ref.base).wait, ""
    return key_of(target.ref.base), target.epoch


def met_by(reply: Any) -> int | None:
    """The later epoch that the script met, when it was refused for that."""
    if not isinstance(reply, redis.ResponseError) or not str(reply).startswith(_WORD):
        return None
    return int(float(str(reply).removeprefix(_WORD)))


def refusal(job: Seen, epoch: int) -> Done:
    return Done(job.id, Outcome.REFUSED, str(Fenced(epoch)), job.state, fenced=epoch)


def check(reply: Any) -> None:
    """Raises Fenced."""
    if (epoch := met_by(reply)) is not None:
        raise Fenced(epoch)


def raise_for(target: Target) -> None:
    """From now on scripts of earlier epochs are refused here. Raises Fenced when this one is the earlier."""
    if target.epoch is None:
        return
    key, epoch = part_of(target)
    try:
        script(_RAISE).run(target.wire, [key], [epoch])
    except redis.ResponseError as reply:
        check(reply)
        insist(reply, target.ref, b"EVALSHA")
        raise
