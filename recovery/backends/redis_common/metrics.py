"""Reads finished jobs a minute, as the workers themselves count them (`bull-reference`: metrics)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.queues.time_series import library_minutes

COMMANDS = 4
MINUTES = 14 * 24 * 60  # the libraries' own largest setting keeps two weeks
Minutes = tuple[int | None, ...]


def read(wire: CommandClient, keys: Keys, now: int, minutes: int) -> tuple[Minutes, Minutes] | None:
    """Reads completed and failed, newest closed minute first; None when the workers keep no metrics."""
    minutes = max(0, min(minutes, MINUTES))
    return columns(wire.call(plan(keys, minutes)), now, minutes)


def plan(keys: Keys, minutes: int) -> tuple[Command, ...]:
    """Returns the commands to ask; `COMMANDS` of them, so that many queues fit into one batch."""
    return *_ask(keys, b"completed", minutes), *_ask(keys, b"failed", minutes)


def columns(replies: Sequence[Any], now: int, minutes: int) -> tuple[Minutes, Minutes] | None:
    """Returns what the answers to `plan` say."""
    completed, failed = _column(replies[:2], now, minutes), _column(replies[2:], now, minutes)
    if completed is None and failed is None:
        return None
    return _with_zeros(completed, failed, minutes), _with_zeros(failed, completed, minutes)


def _ask(keys: Keys, outcome: bytes, minutes: int) -> tuple[Command, Command]:
    return (
        (b"HMGET", keys.metrics(outcome), b"count", b"prevTS", b"prevCount"),
        (b"LRANGE", keys.metrics_points(outcome), 0, max(0, minutes - 1)),
    )


def _column(replies: Sequence[Any], now: int, minutes: int) -> Minutes | None:
    meta, points = replies
    count, prev_ts, prev_count = map(decode.integer, decode.fields(meta, 3))
    if count is None or prev_ts is None:
        return None
    deltas = [decode.integer(point) or 0 for point in decode.items(points)]
    return library_minutes(deltas, count=count, prev_ts=prev_ts, prev_count=prev_count or 0, now=now, minutes=minutes)


def _with_zeros(column: Minutes | None, other: Minutes | None, minutes: int) -> Minutes:
    """Returns the column with 0 in place of unknown minutes that the other outcome has. A worker counts both outcomes
    and trims both lists at the same length. So where only the other one reaches, this outcome had not happened yet.
    """
    unknown = (None,) * minutes
    pairs = zip(column or unknown, other or unknown, strict=True)
    return tuple(0 if value is None and beside is not None else value for value, beside in pairs)
