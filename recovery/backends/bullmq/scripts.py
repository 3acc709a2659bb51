"""Calls the scripts that write: a queue's keys in their order, what was seen, and how a refusal is reported."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import redis

from recovery.backends.base import Target
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.redis_common import decode, fencing, job_location
from recovery.backends.redis_common.layout import QueueContext
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.backends.redis_common.script_batches import TOGETHER, Run, UnsentScript, send_in_batches
from recovery.domain.actions.types import ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState
from recovery.errors import StoreError
from recovery.stores.redis.cluster import ClusterClient
from recovery.stores.redis.cluster_slots import slot
from recovery.stores.redis.scripts import Part, Script, script

# In this order the scripts expect them (lua/write/parts/queue.lua).
QUEUE_KEYS = (
    *(b"wait", b"paused", b"active", b"delayed", b"priority", b"prioritized", b"pc", b"marker", b"meta", b"events"),
    *(b"waiting-children", b"completed", b"failed", b"repeat", b"stalled"),
)
# So many refused jobs are looked for, to say where they are now. Each may take a walk through three lists.
LOOKED_FOR = 25

Answer = str | Exception | UnsentScript

_FOLDER = Path(__file__).parent / "lua" / "write"


def lua(name: str) -> Script:
    return script(_FOLDER / f"{name}.lua")


def queue_keys(base: str) -> tuple[bytes, ...]:
    keys = BullMQKeys(base)
    return tuple(keys.named(suffix) for suffix in QUEUE_KEYS)


def seen_args(seen: ExpectedJob) -> tuple[Part, ...]:
    """Returns what `as-seen.lua` compares."""
    values = (seen.processed_at, seen.attempts, seen.starts, seen.stalls)
    return tuple("" if value is None else value for value in values)


def run(target: Target, name: str, keys: Sequence[Part], args: Sequence[Part]) -> Any:
    """Runs one script, once. Raises StoreError when the store refuses it, Fenced when another scheduler leads."""
    fence_keys, stamp = fencing.script_part(target)
    try:
        return lua(name).run(target.script_wire, [*keys, *fence_keys], [*args, stamp])
    except redis.ResponseError as refusal:
        fencing.check(refusal)
        raise_if_refused(refusal, target.ref, b"EVALSHA")
        raise


def run_each_word(
    target: Target, name: str, runs: Sequence[Run], widths: Sequence[int], together: int = TOGETHER
) -> list[Answer]:
    """Returns one word a job of what the same script said for each (keys, args); `widths` are their numbers of jobs.

    Of one that failed there is that instead of the words; see `script_batches.send_in_batches`, which raises as well.
    """
    replies = send_in_batches(target, partial(run_each, target, name), runs, together)
    return [word for reply, width in zip(replies, widths, strict=True) for word in _answers(reply, width)]


def _answers(reply: Any, width: int) -> Sequence[Answer]:
    return [reply] * width if isinstance(reply, Exception | UnsentScript) else words(reply)


def run_each(target: Target, name: str, runs: Sequence[Run]) -> list[Any]:
    """Runs the same script once for each (keys, args), in one batch: others may be served between two of them.

    An error of one of them is in the list. None is sent twice but those that the server did not know yet.
    """
    fence_keys, stamp = fencing.script_part(target)
    return lua(name).each(target.script_wire, [((*keys, *fence_keys), (*args, stamp)) for keys, args in runs])


def is_elsewhere(target: Target, key: bytes) -> bool:
    """Returns True if a key is in another slot of a cluster: a script reaches only the slot of its own queue."""
    return isinstance(target.wire, ClusterClient) and slot(key) != slot(queue_keys(target.ref.base)[0])


def explain_moved(target: Target, jobs: Sequence[ExpectedJob]) -> dict[str, ScriptOutcome]:
    """Returns refusals for jobs that are not as they were seen, with where they are now if the store still says so."""
    states: dict[str, JobState] = {}
    with suppress(StoreError):  # what the script said is known
        states = _states(target, [seen.id for seen in jobs[:LOOKED_FOR]])
    return {seen.id: _moved(seen, states.get(seen.id, JobState.UNKNOWN)) for seen in jobs}


def _moved(seen: ExpectedJob, state: JobState) -> ScriptOutcome:
    if state is JobState.UNKNOWN:
        return ScriptOutcome(seen.id, Outcome.REFUSED, f"It is not {seen.state} any more.")
    if state is seen.state:
        return ScriptOutcome(seen.id, Outcome.REFUSED, f"It ran since it was shown, and is {state} again.", state)
    return ScriptOutcome(seen.id, Outcome.REFUSED, f"It is {state} now, not {seen.state} any more.", state)


def _states(target: Target, ids: Sequence[str]) -> dict[str, JobState]:
    context = QueueContext(target.ref, BullMQKeys(target.ref.base), LAYOUT)
    commands = [job_location.ask(context, place, encode_name(id)) for id in ids for place in LAYOUT.places]
    replies = target.wire.call(commands) if commands else []
    width = len(LAYOUT.places)
    return {
        id: job_location.location_from(LAYOUT.places, replies[at * width : (at + 1) * width]).state
        for at, id in enumerate(ids)
    }


def words(reply: Any) -> list[str]:
    """Returns what a script answered, one word a job."""
    return [answer.decode("utf-8", "replace") for answer in decode.items(reply)]
