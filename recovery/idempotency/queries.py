"""Lists idempotency keys for the page and the shell: newest first, in windows, never all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import redis

from recovery.domain.idempotency import IdempotencyState, KeyClaim
from recovery.domain.identifiers import decode_name, encode_name, slug, unslug
from recovery.errors import Garbled
from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

SIZE = 50  # rows of one page
WINDOW = 500  # keys of one read: a third of a millisecond of the store
LOOKED = 10_000  # keys that one page examines for matches; after that it offers to continue
PREVIEW = 2_048  # bytes of a result that a row may show; a longer one is on its own page

_NEVER = float("-inf")
_EVER = float("inf")


class IdempotencyCursor(NamedTuple):
    """Cursor of a page: the last key of the page before, and when it was claimed or completed."""

    at: float
    key: bytes

    @classmethod
    def parse(cls, written: str) -> IdempotencyCursor | None:
        """Parses a cursor of a URL; None for an invalid one."""
        at, dot, key = written.partition(".")
        try:
            return cls(float(int(at)), encode_name(unslug(key))) if dot else None
        except (ValueError, OverflowError):
            return None

    def __str__(self) -> str:
        return f"{int(self.at)}.{slug(decode_name(self.key))}"


@dataclass(frozen=True, slots=True)
class IdempotencyFilter:
    """Filter of the list. `state` None: any. `match`: a literal part of the key."""

    state: IdempotencyState | None = None
    match: str = ""
    after: IdempotencyCursor | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyRow:
    """Idempotency key of the list. `result` None: there is none, or it is too long for a row; `size`: its bytes."""

    claim: KeyClaim
    size: int = 0
    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyListing:
    """Page of the list. `next`: cursor of the following page; None after the last. `looked`: keys examined."""

    now: int
    rows: tuple[IdempotencyRow, ...]
    next: IdempotencyCursor | None
    looked: int


@dataclass(frozen=True, slots=True)
class IdempotencyCounts:
    keys: int
    claimed: int
    expired: int
    bytes: int  # of results

    @property
    def completed(self) -> int:
        return max(0, self.keys - self.claimed - self.expired)


def counts(store: redis.Redis) -> IdempotencyCounts:
    """Counts all keys by state, and the bytes of results. Raises StoreError."""
    now = clock(store)
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        pipeline.hlen(state_keys.IDEMPOTENCY_RECORDS)
        pipeline.zcount(state_keys.IDEMPOTENCY_HELD, f"({now}", "+inf")
        pipeline.zcount(state_keys.IDEMPOTENCY_HELD, "-inf", now)
        pipeline.hget(state_keys.IDEMPOTENCY_COUNTS, "bytes")
        keys, claimed, expired, size = pipeline.execute()
    try:
        return IdempotencyCounts(keys, claimed, expired, int(size or 0))
    except ValueError as error:
        raise Garbled(redis_errors.target_of(store), "a number of the ledger is none") from error


def clock(store: redis.Redis) -> int:
    """Returns the store's time in ms. Raises StoreError."""
    with redis_errors.guarded(store):
        seconds, micros = store.time()
    return seconds * 1000 + micros // 1000


def listing(store: redis.Redis, wanted: IdempotencyFilter) -> IdempotencyListing:
    """Returns one page of matching keys. A key equal to `match` comes first, however old it is. Raises StoreError."""
    now = clock(store)
    found: list[tuple[IdempotencyCursor, KeyClaim]] = []
    exact = _exact(store, wanted, now)
    looked, last, is_done = 0, wanted.after, True
    for place, claim in _walk(store, wanted, now):
        if looked >= LOOKED or len(found) >= SIZE:
            is_done = False
            break
        looked, last = looked + 1, place
        if claim and _fits(claim, wanted) and claim != exact:
            found.append((place, claim))
    claims = [*([exact] if exact else []), *(claim for _, claim in found)]
    return IdempotencyListing(now, _rows(store, claims), None if is_done else last, looked)


def _exact(store: redis.Redis, wanted: IdempotencyFilter, now: int) -> KeyClaim | None:
    if not wanted.match or wanted.after:
        return None
    with redis_errors.guarded(store):
        packed = cast("bytes | None", store.hget(state_keys.IDEMPOTENCY_RECORDS, cast(Any, encode_name(wanted.match))))
    claim = _decoded(store, encode_name(wanted.match), packed, now)
    return claim if claim and _fits(claim, wanted) else None


def _walk(
    store: redis.Redis, wanted: IdempotencyFilter, now: int
) -> Iterator[tuple[IdempotencyCursor, KeyClaim | None]]:
    """Yields keys, newest first; claims by when they expire, latest first. None: the record was dropped meanwhile."""
    index, low, high = _index(wanted.state, now)
    top, skipped = min(high, wanted.after.at if wanted.after else _EVER), 0
    while True:
        with redis_errors.guarded(store):
            found = store.zrevrangebyscore(index, top, low, start=skipped, num=WINDOW, withscores=True)
            window = [IdempotencyCursor(at, key) for key, at in cast("list[tuple[bytes, float]]", found)]
            packed = cast(
                "list[bytes | None]", store.hmget(state_keys.IDEMPOTENCY_RECORDS, [one.key for one in window] or [b""])
            )
        for place, record in zip(window, packed, strict=False):
            if wanted.after is None or place < wanted.after:
                yield place, _decoded(store, place.key, record, now)
        if len(window) < WINDOW:
            return
        bottom = window[-1].at
        skipped = (skipped if bottom == top else 0) + sum(place.at == bottom for place in window)
        top = bottom


def _index(wanted: IdempotencyState | None, now: int) -> tuple[bytes, float, float]:
    """Returns the index of a state, and its range of scores. Scores are whole ms, so now + 0.5 excludes `now`."""
    if wanted is IdempotencyState.CLAIMED:
        return state_keys.IDEMPOTENCY_HELD, now + 0.5, _EVER
    if wanted is IdempotencyState.EXPIRED:
        return state_keys.IDEMPOTENCY_HELD, _NEVER, now
    return state_keys.IDEMPOTENCY_NEWEST, _NEVER, _EVER


def _decoded(store: redis.Redis, key: bytes, packed: bytes | None, now: int) -> KeyClaim | None:
    """Decodes a claim; None if its retention has ended: one of the next operations drops it."""
    if packed is None:
        return None
    try:
        claim = KeyClaim.decode(decode_name(key), packed, now)
    except ValueError as error:
        raise Garbled(redis_errors.target_of(store), "a record of the ledger is malformed") from error
    return claim if claim.ends > now else None


def _fits(claim: KeyClaim, wanted: IdempotencyFilter) -> bool:
    return wanted.state in (None, claim.state) and wanted.match.casefold() in claim.key.casefold()


def _rows(store: redis.Redis, claims: list[KeyClaim]) -> tuple[IdempotencyRow, ...]:
    """Builds the rows, with results that are short enough to show."""
    done = [encode_name(claim.key) for claim in claims if claim.is_completed]
    with redis_errors.guarded(store):
        sizes = store.pipeline(transaction=False)
        for key in done:
            sizes.hstrlen(state_keys.IDEMPOTENCY_RESULTS, cast(Any, key))
        known = dict(zip(done, cast("list[int]", sizes.execute()), strict=True))
        short = [key for key, size in known.items() if 0 < size <= PREVIEW]
        values = (
            cast("list[bytes | None]", store.hmget(state_keys.IDEMPOTENCY_RESULTS, cast(Any, short))) if short else []
        )
    results = dict(zip(short, values, strict=True))
    return tuple(
        IdempotencyRow(one, known.get(encode_name(one.key), 0), results.get(encode_name(one.key))) for one in claims
    )
