"""Fences off former leaders and other installations: each script compares its epoch with the newest of its queue, and
its installation with the one that holds the queue, as long as that one's lease.

A script is given the fence as its last two keys, and as its last argument the epoch, the installation and for how long
it holds (lua/write/parts/fence.lua). An operator's action has no epoch: no key of ours is touched then, and none has to
be granted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis

from recovery.backends.base import Target
from recovery.backends.redis_common.keys import Keys
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.actions.types import ExpectedJob, Outcome, Rival, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.scheduler.consoles import LIFE
from recovery.errors import Fenced
from recovery.stores.redis.scripts import Part, script

_RAISE = Path(__file__).parent / "lua" / "write" / "raise-fence.lua"
_WORD = "FENCED "
_EPOCH_DIGITS = 15  # the name of an installation is longer
UNNAMED = "-"  # one that has no name yet


def key_of(base: str) -> bytes:
    """Returns the fence's key, in the same slot as the queue's own keys: the base has the tag."""
    return b"unstall:fence:" + encode_name(base)


def epoch_key_of(base: str, installation: str = "") -> bytes:
    return b"unstall:fence:" + encode_name(f"{installation or UNNAMED}:{base}")


def script_part(target: Target) -> tuple[tuple[Part, Part], Part]:
    """Returns the last keys and the last argument of every script."""
    base = target.ref.base
    if target.epoch is None:
        return (Keys(base).wait, Keys(base).wait), ""
    return (key_of(base), epoch_key_of(base, target.installation)), stamp(target.epoch, target.installation)


def stamp(epoch: int, installation: str) -> str:
    return f"{epoch} {installation or UNNAMED} {LIFE}"


def rival_in(reply: Any) -> Rival | None:
    """Returns the epoch or installation that refused the script; None when it was not refused for that."""
    if not isinstance(reply, redis.ResponseError) or not str(reply).startswith(_WORD):
        return None
    return parse(str(reply).removeprefix(_WORD))


def parse(rival: str) -> Rival:
    return int(rival) if rival.isdecimal() and len(rival) <= _EPOCH_DIGITS else rival


def refusal(job: ExpectedJob, rival: Rival) -> ScriptOutcome:
    return ScriptOutcome(job.id, Outcome.REFUSED, str(Fenced(rival)), job.state, fenced=rival)


def check(reply: Any) -> None:
    """Raises Fenced."""
    if (rival := rival_in(reply)) is not None:
        raise Fenced(rival)


def raise_for(target: Target) -> None:
    """Raises the fence: scripts of earlier epochs are refused here from now on. Raises Fenced when this epoch is the
    earlier, or when another installation holds the queue.
    """
    if target.epoch is None:
        return
    keys, mine = script_part(target)
    try:
        script(_RAISE).run(target.wire, keys, [mine])
    except redis.ResponseError as reply:
        check(reply)
        raise_if_refused(reply, target.ref, b"EVALSHA")
        raise
