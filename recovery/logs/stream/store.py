"""Reads the lines that monitors ship to the state store: one stream of parcels a server, read over one loop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import redis
import redis.asyncio

from recovery.domain import identifiers
from recovery.errors import NotReady, StoreError
from recovery.logs.stream.positions import Id, format_id, mark_of, parse_id
from recovery.shared_clock import steady
from recovery.stores.redis import redis_errors
from recovery.stores.redis.redis_errors import ReplyTooLarge
from recovery.stores.state import state_keys

log = logging.getLogger(__name__)

SERVERS_LIMIT = 500  # as many as the page of servers shows; those beyond shipped longest ago
COUNT_LIMIT = 1 << 20  # lines that an entry may say it has
LABELS_LIMIT = 32  # labels of a set that are looked at
LABELS_BYTES = 64 * 1024  # of a set as JSON: monitors write some hundred
VALUE_LIMIT = 300  # characters of a name or a value
LEFT_OUT_FOR = 600.0  # seconds for which a stream is not read that is none, or holds an entry too large to be read
_FOREIGN = "WRONGTYPE"  # a monitor may write what it likes under the names of its own keys
_TURNS = 10  # a server may begin to ship between two questions; ten in a row do not
FIELDS = [b"labels", b"count", b"first", b"last", b"body"]  # in the order in which monitors write them

Row = tuple[bytes, Sequence[bytes]]  # as the store gives an entry: its id; its fields, each before its value


class ShippedEntry(NamedTuple):
    """Parcel as it lies in the stream, still compressed. A search may pass over a million of them, so its fields are
    parsed when they are read.
    """

    order: tuple[Id, str]  # its id and the mark of its server
    server: bytes
    told: Sequence[bytes]  # the values of FIELDS
    passed: int = 0  # it stands for so many without what is looked for, and has no body (sifting.py)

    @property
    def id(self) -> Id:
        return self.order[0]

    @property
    def mark(self) -> str:
        return self.order[1]

    @property
    def labels(self) -> Mapping[str, str]:
        return labels_of(self.server, short(self.told[0]))

    @property
    def size(self) -> int:
        """Returns how many lines it says it has."""
        return max(0, min(_whole(self.told[1]), COUNT_LIMIT))

    @property
    def first(self) -> int:
        return _whole(self.told[2])

    @property
    def last(self) -> int:
        return _whole(self.told[3], 1 << 63)

    @property
    def body(self) -> bytes:
        return self.told[4]


@dataclass(frozen=True, slots=True)
class ShippedStream:
    """State of a server's stream. Without entries `first` is None."""

    first: Id | None
    last: Id
    length: int
    added: int  # ever


@dataclass(frozen=True, slots=True)
class StreamsHead:
    """State at one moment: the store's clock (ms), who ships (and when each last did), and how far each has come."""

    now: int
    servers: Mapping[bytes, int]
    streams: Mapping[bytes, ShippedStream]
    back_at: int  # when by that clock it first answered again after it had been away; 0: it never was


@dataclass(frozen=True, slots=True)
class NewerEntries(StreamsHead):
    """Entries that came after some points, in order; of a server in `cut` there is more behind its last one."""

    entries: Mapping[bytes, Sequence[ShippedEntry]]
    cut: frozenset[bytes]


class StreamStore:
    def __init__(self, client: redis.asyncio.Redis) -> None:
        """Takes a client of its own: entries come as the store gives them, not as dictionaries."""
        for command in ("XREAD", "XRANGE", "XREVRANGE"):
            client.set_response_callback(command, _as_it_is)
        self._client = client
        self._known: Mapping[bytes, int] = {}
        self._left_out: dict[bytes, float] = {}  # servers whose streams hold what is too large, and until when
        self._is_away = False
        self._back_at = 0

    def was_away(self, since: int) -> bool:
        """Returns True if it failed to answer after this moment by its own clock: it may have come back empty."""
        return self._is_away or since <= self._back_at

    async def servers(self) -> Mapping[bytes, int]:
        """Returns the servers that ship, or did in the last days, and when each last did (ms)."""
        with self._asked():
            rows = await cast(
                "Any", self._client.zrange(state_keys.SHIPPING, 0, SERVERS_LIMIT - 1, desc=True, withscores=True)
            )
        self._known = self._listed(rows)
        return self._known

    async def head(self, names: frozenset[str] | None) -> StreamsHead:
        def each(pipeline: Any, servers: Sequence[bytes]) -> None:
            for server in servers:
                pipeline.xinfo_stream(_key(server))

        now, servers, replies = await self._at_once(names, each)
        return StreamsHead(now, servers, _streams(servers, replies), self._back_at)

    async def newer(
        self, names: frozenset[str] | None, after: Callable[[bytes], Id], count: int, *, with_streams: bool
    ) -> NewerEntries:
        """Reads about `count` entries of all servers. `after` says of any server from where. Streams cost some bytes
        more.
        """
        each_count = 1

        def each(pipeline: Any, servers: Sequence[bytes]) -> None:
            nonlocal each_count
            if servers:
                each_count = share(count, len(servers))
                pipeline.xread({_key(server): format_id(after(server)) for server in servers}, count=each_count)
            for server in servers if with_streams else ():
                pipeline.xinfo_stream(_key(server))

        now, servers, replies = await self._at_once(names, each)
        found = dict(_sound(replies[0])) if replies else {}
        entries = {server: entries_of(server, found.get(_key(server), ())) for server in servers}
        cut = frozenset(server for server in servers if len(entries[server]) >= each_count)
        return NewerEntries(now, servers, _streams(servers, replies[1:]), self._back_at, entries, cut)

    async def older(self, asked: Mapping[bytes, Id], oldest: int, count: int) -> dict[bytes, Sequence[Row]]:
        """Returns the newest entries of each server up to an id, newest first, none from before `oldest` (ms)."""

        def each(pipeline: Any, servers: Sequence[bytes]) -> None:
            for server in servers:
                pipeline.xrevrange(_key(server), format_id(asked[server]), oldest, count)

        readable = [server for server in asked if server not in self._left_out]
        with self._asked():
            pipeline = self._client.pipeline(transaction=False)
            each(pipeline, readable)
            try:
                replies = await pipeline.execute()
            except redis.RedisError as error:
                if not _is_of_one(error):
                    raise
                await self._single_out(readable, each)
                if self._left_out.keys().isdisjoint(readable):
                    raise
                return await self.older(asked, oldest, count)
        return dict.fromkeys(asked, ()) | dict(zip(readable, replies, strict=True))

    async def entry(self, server: bytes, id: Id) -> ShippedEntry | None:
        with self._asked():
            rows = cast("Any", await self._client.xrange(_key(server), format_id(id), format_id(id)))
        return next(iter(entries_of(server, rows)), None)

    async def label_sets(self, limit: int) -> tuple[list[tuple[Mapping[str, str], int]], bool]:
        """Returns the label sets of all servers, each with when (ms) a line last had it; whether some are left out."""
        servers = list(await self.servers())
        found: list[tuple[Mapping[str, str], int]] = []
        with self._asked():
            for server in servers:
                try:
                    found += await self._labels_of(server, limit - len(found))
                except redis.RedisError as error:
                    if not _is_of_one(error):
                        raise
                    self._leave_out(server, error)
        return found[:limit], len(found) >= limit

    async def _labels_of(self, server: bytes, limit: int) -> list[tuple[Mapping[str, str], int]]:
        found: list[tuple[Mapping[str, str], int]] = []
        key, cursor = state_keys.log_labels(identifiers.decode_name(server)), 0
        while len(found) < limit:
            cursor, sets = cast("Any", await self._client.hscan(key, cursor, count=1000))
            found += [(labels_of(server, short(raw)), _whole(at)) for raw, at in sets.items()]
            if not cursor:
                break
        return found

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Guards questions. redis-py sends with `wait_for`, which in Python 3.11 may forget that a task was ended."""
        try:
            with redis_errors.guarded(self._client):
                yield
        except StoreError:
            self._is_away = True
            raise
        task = asyncio.current_task()
        if task and task.cancelling():
            raise asyncio.CancelledError

    async def _at_once(
        self, names: frozenset[str] | None, ask: Callable[[Any, Sequence[bytes]], None]
    ) -> tuple[int, Mapping[bytes, int], list[Any]]:
        """Returns the replies to what is asked of all chosen servers, at one moment that is known.

        Who is asked must be who ships: a server that began in between would be passed over for ever. So the list is
        read together with the rest, and when it is another than was asked, all is asked again.
        """
        servers = choose_servers(self._known, names)
        for _ in range(_TURNS):
            with self._asked():
                pipeline = self._client.pipeline(transaction=True)
                pipeline.time()
                pipeline.zrange(state_keys.SHIPPING, 0, SERVERS_LIMIT - 1, desc=True, withscores=True)
                ask(pipeline, list(servers))
                try:
                    clock, rows, *replies = map(_answer, await pipeline.execute(raise_on_error=False))
                except redis.RedisError as error:
                    if not _is_of_one(error):
                        raise
                    await self._single_out(servers, ask)
                    if self._left_out.keys().isdisjoint(servers):
                        raise
                    servers = {name: at for name, at in servers.items() if name not in self._left_out}
                    continue
            now = clock[0] * 1000 + clock[1] // 1000
            if self._is_away:
                self._is_away, self._back_at = False, now
            self._known = self._listed(rows)
            found = choose_servers(self._known, names)
            if found.keys() == servers.keys():
                return now, servers, replies
            servers = found
        raise NotReady(redis_errors.target_of(self._client), "the list of servers changes faster than it can be read")

    def _listed(self, rows: Iterable[tuple[bytes, float]]) -> Mapping[bytes, int]:
        """Returns the servers that ship, but for those that are left out for now."""
        now = steady()
        self._left_out = {server: until for server, until in self._left_out.items() if until > now}
        return {server: at for server, at in _servers(rows).items() if server not in self._left_out}

    async def _single_out(self, servers: Iterable[bytes], ask: Callable[[Any, Sequence[bytes]], None]) -> None:
        """Finds the servers whose streams cannot be read, by asking each alone: the others' lines are read on."""
        for server in servers:
            pipeline = self._client.pipeline(transaction=False)
            ask(pipeline, [server])
            try:
                for answer in await pipeline.execute(raise_on_error=False):
                    _answer(answer)
            except redis.RedisError as error:
                if not _is_of_one(error):
                    raise
                self._leave_out(server, error)

    def _leave_out(self, server: bytes, error: redis.RedisError) -> None:
        self._left_out[server] = steady() + LEFT_OUT_FOR
        log.warning("skipping the log lines of %s for ten minutes: %s", server_label(server), error)


def share(count: int, servers: int) -> int:
    """Returns how many entries to ask of each, so that there are about so many of all."""
    return max(1, count // servers)


def choose_servers(servers: Mapping[bytes, int], names: frozenset[str] | None) -> Mapping[bytes, int]:
    if names is None:
        return servers
    return {server: at for server, at in servers.items() if server_label(server) in names}


def server_label(server: bytes) -> str:
    """Returns a server's name as the value of a label."""
    return _clean(identifiers.decode_name(server))


def entries_of(server: bytes, rows: Iterable[Row]) -> Sequence[ShippedEntry]:
    mark = mark_of(server)
    return [ShippedEntry((parse_id(id), mark), server, _told(fields)) for id, fields in rows]


def short(raw: bytes) -> bytes:
    """Returns a set of labels to be read and remembered; of one that no monitor writes, an empty one."""
    return raw if len(raw) <= LABELS_BYTES else b"{}"


@lru_cache(maxsize=4096)
def labels_of(server: bytes, raw: bytes) -> Mapping[str, str]:
    """Returns a set of labels, the same object for the same set. Its server is always the one that shipped it."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = {}
    pairs = list(found.items())[:LABELS_LIMIT] if isinstance(found, dict) else []
    kept = {_clean(name): _clean(value) for name, value in pairs if isinstance(value, str)}
    return MappingProxyType(kept | {"server": server_label(server)})


def _key(server: bytes) -> bytes:
    return state_keys.logs(identifiers.decode_name(server))


def _told(fields: Sequence[bytes]) -> Sequence[bytes]:
    """Returns the fields. What lacks one gets an empty body: it cannot be decompressed; that is said (judging.py)."""
    if fields[::2] == FIELDS:
        return fields[1::2]
    read = dict(zip(fields[::2], fields[1::2], strict=False))
    return [read.get(name, b"") for name in FIELDS]


def _streams(servers: Iterable[bytes], replies: Iterable[Any]) -> Mapping[bytes, ShippedStream]:
    found = ((server, _stream(reply)) for server, reply in zip(servers, replies, strict=False))
    return {server: stream for server, stream in found if stream}


def _stream(reply: Any) -> ShippedStream | None:
    if reply is None:
        return None
    first = reply.get("first-entry")
    length, added = int(reply["length"]), reply.get("entries-added")
    return ShippedStream(
        first=parse_id(first[0]) if first else None,
        last=parse_id(reply["last-generated-id"]),
        length=length,
        added=length if added is None else int(added),  # Redis before 7 does not count them
    )


def _is_of_one(error: redis.RedisError) -> bool:
    """Returns True if what one server has written is to blame: the others' lines are read on."""
    return isinstance(error, ReplyTooLarge) or (isinstance(error, redis.ResponseError) and _FOREIGN in str(error))


def _answer(reply: Any) -> Any:
    """Returns a reply; None for a stream that is not there (all of it expired); any other refusal is raised."""
    if isinstance(reply, redis.ResponseError) and "no such key" in str(reply):
        return None
    if isinstance(reply, Exception):
        raise reply
    return reply


def _as_it_is(response: Any, **kwargs: Any) -> Any:
    return response


def _sound(reply: Any) -> Iterable[tuple[bytes, Any]]:
    return ((key, rows) for key, rows in reply or ())


def _servers(rows: Iterable[tuple[bytes, float]]) -> Mapping[bytes, int]:
    return {name: int(at) for name, at in rows}


def _whole(raw: bytes | None, otherwise: int = 0) -> int:
    try:
        return otherwise if raw is None else int(raw)
    except ValueError:
        return otherwise


def _clean(text: str) -> str:
    """Returns a text as a person may see it. Half of a surrogate pair is legal in JSON and nowhere else."""
    return identifiers.printable(text[:VALUE_LIMIT].encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
