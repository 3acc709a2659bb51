"""Reads the state of some jobs' parents: there, failed, or gone."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.backends.base import Command, Wire
from recovery.backends.bullmq.splitting import split
from recovery.backends.shared import decode
from recovery.backends.shared.keys import Keys
from recovery.domain.refs import QueueRef, raw
from recovery.domain.surroundings import Parent

MOST = 500  # parents in one go: children of one flow share theirs


def parents(wire: Wire, own: QueueRef, keys: Iterable[str]) -> dict[str, Parent]:
    """Returns states by full key (`prefix:queue:id`), in three round trips. Beyond MOST, or of no queue: unknown."""
    wanted = [key for key in dict.fromkeys(keys) if key]
    asked = wanted[:MOST]
    if not asked:
        return {}
    found = split(wire, own, [raw(key) for key in asked])
    commands: list[Command] = []
    for key in asked:
        job = found[raw(key)]
        failed = Keys(job.queue.base).failed if job else raw(key)
        commands += [(b"EXISTS", raw(key)), (b"ZSCORE", failed, raw(job.id) if job else b"")]
    replies = wire.call(commands)
    known = {key: _state(replies[2 * at], replies[2 * at + 1]) for at, key in enumerate(asked)}
    return dict.fromkeys(wanted, Parent.UNKNOWN) | known


def _state(exists: object, failed: object) -> Parent:
    is_there = decode.count(exists)
    if is_there is None:
        return Parent.UNKNOWN
    if not is_there:
        return Parent.GONE
    return Parent.ALIVE if failed is None or isinstance(failed, Exception) else Parent.FAILED
