"""Writes log lines to the stream in the state store, in one transaction with the positions of their files.

Each write carries the number of the write before. After a late write of a hung store, or one of a second monitor with
our id, the number differs: then nothing is written, and the stored positions have to be read again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis

from recovery.domain.identifiers import decode_name, encode_name
from recovery.monitor.shipping.journal import KEY as JOURNAL
from recovery.monitor.shipping.positions import ShippedFilePosition
from recovery.monitor.shipping.stream_entries import PackedStreamEntry
from recovery.stores.redis.redis_errors import guarded
from recovery.stores.state import state_keys

# -- retention
# Counts the bytes of a server's stream, and determines from which entry on it is kept. A stream knows how many
# entries it has, not how many bytes. So they are counted here in a few segments (heaps), oldest first, each known by
# its last entry: the stream is trimmed to where the next segment begins.


Id = tuple[int, int]

HEAPS = 32  # segments of what is kept: it is trimmed in steps of three percent


class StreamRetention:
    def __init__(self, keep_bytes: int, keep_ms: int, written: bytes = b"") -> None:
        """Restores the counts; `written` is the last stored result of `encode`."""
        self._keep_bytes, self._keep_ms = keep_bytes, keep_ms
        self._open, self._heaps = _decoded(written)
        self._total = self._open + sum(size for _, size in self._heaps)
        self._last: Id | None = None  # of the newest entry, as far as known

    def add(self, size: int) -> None:
        if self._last and self._open >= self._keep_bytes // HEAPS:
            self._heaps.append((self._last, self._open))
            self._open = 0
        self._open += size
        self._total += size

    def wrote(self, id: bytes) -> None:
        """Takes the id of the last written entry."""
        ms, _, number = id.partition(b"-")
        self._last = int(ms), int(number)

    def first(self, now: int) -> str:
        """Returns the lowest id to keep, and subtracts what lies before it. `now` is the store's time in ms."""
        oldest: Id = max(0, now - self._keep_ms), 0
        while self._heaps and (self._total > self._keep_bytes or self._heaps[0][0] < oldest):
            (ms, number), size = self._heaps.popleft()
            self._total -= size
            oldest = max(oldest, (ms, number + 1))
        return f"{oldest[0]}-{oldest[1]}"

    def encode(self) -> str:
        return json.dumps((self._open, list(self._heaps)), separators=(",", ":"))


def _decoded(written: bytes) -> tuple[int, deque[tuple[Id, int]]]:
    try:
        opened, heaps = json.loads(written)
        return int(opened), deque(((int(ms), int(number)), int(size)) for (ms, number), size in heaps)
    except (ValueError, TypeError):
        return 0, deque()


# -- stream writer


LABEL_SETS = 10_000  # as many as there are files that can be followed
OFFSETS_MS = 8 * 86_400_000  # a monitor that is stopped over a weekend goes on where it was
_DIGITS = 18
# Fields of the hash that are no offsets: a file's field has colons.
_TURN, _PATTERNS, _STOCK = b"turn", b"patterns", b"stock"


class WriteConflict(Exception):
    """Another write came since we read: nothing was written now."""


@dataclass(frozen=True, slots=True)
class ShippedState:
    """Stored positions of this server's files and journal, and the store's time in ms."""

    now: int
    places: Mapping[str, ShippedFilePosition]
    journal: str
    patterns: frozenset[str]


class LogStreamWriter:
    """Stream of one server. Methods raise StoreError; then it is unclear what was written until `known` is called."""

    def __init__(self, store: redis.Redis, server: str, keep_bytes: int, keep_ms: int) -> None:
        self._store, self._server = store, server
        self._keep = keep_bytes, keep_ms
        self._logs, self._labels, self._offsets = (
            of(server) for of in (state_keys.logs, state_keys.log_labels, state_keys.log_offsets)
        )
        self._turn = 0
        self._lists = True  # as far as we know, our user may write the list of shipping servers
        self._stock = StreamRetention(*self._keep)
        self._sets: dict[bytes, int] = {}  # label sets with the time of the last line, newest last

    def known(self) -> ShippedState:
        with guarded(self._store), self._store.pipeline(transaction=True) as pipeline:
            pipeline.time()
            pipeline.hgetall(self._offsets)
            pipeline.hgetall(self._labels)
            pipeline.xlen(self._logs)  # fails if it is no stream, before a position is written without its lines
            (seconds, micros), fields, labels, _ = cast("Any", pipeline.execute())
        self._turn = _whole(fields.pop(_TURN, b""))
        self._stock = StreamRetention(*self._keep, fields.pop(_STOCK, b""))
        self._sets = dict(sorted(((key, _whole(at)) for key, at in labels.items()), key=lambda one: one[1]))
        patterns, journal = fields.pop(_PATTERNS, b""), fields.pop(encode_name(JOURNAL), b"")
        places = {
            decode_name(key): ShippedFilePosition.decode(decode_name(value))
            for key, value in fields.items()
            if key.count(b":") == 2
        }
        return ShippedState(
            now=seconds * 1000 + micros // 1000,
            places={key: place for key, place in places.items() if place is not None},
            journal=decode_name(journal),
            patterns=_patterns(patterns),
        )

    def bring(
        self, parcels: Sequence[PackedStreamEntry], places: Mapping[str, str], gone: Sequence[str], now: int
    ) -> None:
        """Writes lines with the new positions, and deletes those of finished files. `now`: about the store's time (ms).

        Takes three round trips, and one XADD per parcel. Raises Overtaken.
        """
        with guarded(self._store):
            try:
                self._bring(parcels, places, gone, now)
            except redis.exceptions.NoPermissionError:
                if not self._lists:
                    raise
                self._lists, turn = False, self._turn  # the leader finds our keys and lists us
                self.known()
                if self._turn != turn:
                    raise WriteConflict from None
                self._bring(parcels, places, gone, now)

    def _bring(
        self, parcels: Sequence[PackedStreamEntry], places: Mapping[str, str], gone: Sequence[str], now: int
    ) -> None:
        with self._store.pipeline(transaction=True) as pipeline:
            pipeline.watch(self._offsets)  # type: ignore[no-untyped-call] # redis-py's own
            if _whole(cast("Any", pipeline.hget(self._offsets, cast("Any", _TURN)))) != self._turn:
                raise WriteConflict
            pipeline.multi()
            self._write(pipeline, parcels, places, gone, now)
            try:
                replies = pipeline.execute()
            except redis.WatchError as error:
                if isinstance(error.__context__, redis.ConnectionError | redis.TimeoutError):
                    raise error.__context__ from None  # redis-py reports a lost connection as a WatchError too
                raise WriteConflict from error
            except redis.ResponseError as error:
                error.args = (_refusal(error),)
                raise
        self._turn += 1
        if parcels:
            self._stock.wrote(replies[len(parcels) - 1])

    def close(self) -> None:
        self._store.close()

    def _write(
        self,
        pipeline: Any,
        parcels: Sequence[PackedStreamEntry],
        places: Mapping[str, str],
        gone: Sequence[str],
        now: int,
    ) -> None:
        for parcel in parcels:
            pipeline.xadd(self._logs, parcel.fields)
            self._stock.add(parcel.size)
        pipeline.xtrim(self._logs, minid=self._stock.first(now), approximate=False)
        if gone:
            pipeline.hdel(self._offsets, *gone)
        own = {_TURN: self._turn + 1, _STOCK: self._stock.encode()}
        pipeline.hset(self._offsets, mapping=cast("Any", {**places, **own}))
        pipeline.pexpire(self._offsets, max(self._keep[1], OFFSETS_MS))
        self._label(pipeline, parcels, now)
        if self._lists:
            pipeline.zadd(state_keys.SHIPPING, {encode_name(self._server): now})

    def _label(self, pipeline: Any, parcels: Sequence[PackedStreamEntry], now: int) -> None:
        """Updates the label sets that came, and deletes those that no line has any more."""
        came = dict.fromkeys((encode_name(parcel.labels) for parcel in parcels), now)
        for labels in came:
            self._sets.pop(labels, None)
        self._sets.update(came)
        if over := list(self._over(now)):
            for labels in over:
                del self._sets[labels]
            pipeline.hdel(self._labels, *over)
        if came:
            pipeline.hset(self._labels, mapping=came)
            pipeline.pexpire(self._labels, self._keep[1])
            pipeline.pexpire(self._logs, self._keep[1])

    def _over(self, now: int) -> Iterable[bytes]:
        too_many = len(self._sets) - LABEL_SETS
        for number, (labels, at) in enumerate(self._sets.items()):
            if number >= too_many and at >= now - self._keep[1]:
                return
            yield labels


def patterns_field(patterns: Iterable[str]) -> Mapping[str, str]:
    """Returns the configured patterns as a field of the stored hash."""
    return {decode_name(_PATTERNS): json.dumps(sorted(patterns))}


def _refusal(error: redis.ResponseError) -> str:
    """Returns the store's error without the command, which redis-py puts before it and which contains log lines."""
    return str(error).rpartition("of pipeline caused error: ")[2]


def _patterns(read: bytes) -> frozenset[str]:
    try:
        return frozenset(one for one in json.loads(read) if isinstance(one, str))
    except (ValueError, TypeError):
        return frozenset()


def _whole(read: bytes | None) -> int:
    return int(read) if read and read.isdigit() and len(read) <= _DIGITS else 0
