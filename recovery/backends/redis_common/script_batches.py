"""Sends scripts that write a few at a time: others are served in between, a lost connection leaves few jobs unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from recovery.backends.base import Target
from recovery.backends.redis_common import fencing
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.actions.types import ExpectedJob, Outcome, ScriptOutcome
from recovery.errors import AccessDenied, StoreError
from recovery.stores.redis.scripts import Part

TOGETHER = 2  # scripts of 50 jobs: about 2 ms of the server, and a hundred jobs of which a lost connection says nothing

PERHAPS = "It may or may not have happened: {error}"
_NO_RIGHT = "no permissions to"  # Redis says so of a command that its user may not call, also inside of a script

Run = tuple[Sequence[Part], Sequence[Part]]


@dataclass(frozen=True, slots=True)
class UnsentScript:
    """Stands in place of a reply to a script that was not sent, because those before it failed."""

    error: Exception


def send_in_batches(
    target: Target, send: Callable[[Sequence[Run]], list[Any]], runs: Sequence[Run], together: int = TOGETHER
) -> list[Any]:
    """Returns the reply to each of `runs`, sent `together` so many at once; the next when all those are answered.

    A connection that is lost is the reply to those that were on their way. When all that were sent together failed,
    none is sent any more. Raises StoreError when no script may run here, or when there was nothing else to send.
    """
    replies: list[Any] = []
    while len(replies) < len(runs):
        some = runs[len(replies) : len(replies) + together]
        try:
            found = send(some)
        except (StoreError, redis.RedisError) as error:
            found = [error] * len(some)
        has_failed = all(isinstance(reply, Exception) for reply in found)
        if has_failed and not replies:
            _raise_for(target, found[0], is_all=len(found) == len(runs))
        replies += found
        if has_failed:
            replies += [UnsentScript(found[0])] * (len(runs) - len(replies))
    return replies


def _raise_for(target: Target, error: Exception, *, is_all: bool) -> None:
    if fencing.rival_in(error) is not None:
        return
    if is_all or isinstance(error, AccessDenied) or _NO_RIGHT in str(error):
        if isinstance(error, redis.ResponseError):
            raise_if_refused(error, target.ref, b"EVALSHA")
        raise error


def failure(seen: ExpectedJob, reply: Any) -> ScriptOutcome | None:
    """Returns the result for one job of a script that failed as a whole; None when the script answered."""
    error = reply.error if isinstance(reply, UnsentScript) else reply
    if (rival := fencing.rival_in(error)) is not None:
        return fencing.refusal(seen, rival)
    if isinstance(reply, UnsentScript):
        return ScriptOutcome(seen.id, Outcome.REFUSED, f"Not tried: {error}", seen.state, is_untried=True)
    return (
        ScriptOutcome(seen.id, Outcome.UNKNOWN, PERHAPS.format(error=error)) if isinstance(error, Exception) else None
    )
