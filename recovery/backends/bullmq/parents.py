"""Reads the state of some jobs' parents: there, failed, or gone."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.backends.base import Command, CommandClient
from recovery.backends.bullmq.job_keys import split
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.stuck.context import ParentState

MOST = 500  # parents in one go: children of one flow share theirs


def parents(wire: CommandClient, own: QueueRef, keys: Iterable[str]) -> dict[str, ParentState]:
    """Returns states by full key (`prefix:queue:id`), in three round trips. Beyond MOST, or of no queue: unknown."""
    wanted = [key for key in dict.fromkeys(keys) if key]
    asked = wanted[:MOST]
    if not asked:
        return {}
    found = split(wire, own, [encode_name(key) for key in asked])
    commands: list[Command] = []
    for key in asked:
        job = found[encode_name(key)]
        failed = Keys(job.queue.base).failed if job else encode_name(key)
        commands += [(b"EXISTS", encode_name(key)), (b"ZSCORE", failed, encode_name(job.id) if job else b"")]
    replies = wire.call(commands)
    known = {key: _state(replies[2 * at], replies[2 * at + 1]) for at, key in enumerate(asked)}
    return dict.fromkeys(wanted, ParentState.UNKNOWN) | known


def _state(exists: object, failed: object) -> ParentState:
    is_there = decode.count(exists)
    if is_there is None:
        return ParentState.UNKNOWN
    if not is_there:
        return ParentState.GONE
    return ParentState.ALIVE if failed is None or isinstance(failed, Exception) else ParentState.FAILED
