"""Reads the job that was added while a deduplicated one ran, to be made when that ends (keepLastIfActive, 5.72)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recovery.backends.base import TEXT_LIMIT, Command, Target
from recovery.backends.bullmq import scripts
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.json_numbers import whole
from recovery.domain.identifiers import encode_name
from recovery.stores.redis.scripts import Part


@dataclass(frozen=True, slots=True)
class Follower:
    """Job to be made: `options` as they are written, b"" when no job follows; what stands in them, parsed."""

    options: bytes = b""
    delay: int = 0
    priority: int = 0
    push: str = "LPUSH"
    ttl: int | None = None  # ms that its deduplication key lives; None: until it ends
    dedup: bytes = b""
    books: bytes = b""  # where its parent would write it down
    is_far: bool = False  # its parent's books lie in another slot
    is_foreign: bool = False  # or in another queue
    is_readable: bool = True

    def arguments(self) -> tuple[Part, ...]:
        """Returns the arguments as `parts/read-failing.lua` takes them."""
        ttl: Part = "" if self.ttl is None else self.ttl
        return self.options, self.delay, self.priority, self.push, ttl, self.dedup, self.books


NONE = Follower()


def read(target: Target, traits: BullMQTraits, ids: Sequence[bytes]) -> list[Follower]:
    """Reads one follower for each deduplication id (b"" for none), in two round trips."""
    keys = [BullMQKeys(target.ref.base).named(b"dn:" + id) if id and traits.has("keeps_next") else b"" for id in ids]
    asked: list[Command] = [(b"HSTRLEN", key, b"opts") for key in keys if key]
    sizes = iter(target.wire.call(asked) if asked else ())
    known = [(decode.count(next(sizes)) or 0) if key else 0 for key in keys]
    wanted: list[Command] = [
        (b"HMGET", key, b"opts", b"pdk") for key, size in zip(keys, known, strict=True) if 0 < size <= TEXT_LIMIT
    ]
    replies = iter(target.wire.call(wanted) if wanted else ())
    return [_follower(target, next(replies) if size <= TEXT_LIMIT else None) if size else NONE for size in known]


def _follower(target: Target, reply: Any) -> Follower:
    written, books = decode.fields(reply, 2)
    options = decode.from_json(written)
    if not isinstance(options, dict):
        return Follower(is_readable=False)
    key = decode.octets(books) or b""
    own = encode_name(target.ref.base) + b":"
    dedup = options.get("de")
    dedup = dedup if isinstance(dedup, dict) else {}
    ttl = None if dedup.get("keepLastIfActive") else whole(dedup.get("ttl"))
    name = dedup.get("id")
    return Follower(
        decode.octets(written) or b"",
        max(whole(options.get("delay")) or 0, 0),
        max(whole(options.get("priority")) or 0, 0),
        "RPUSH" if options.get("lifo") else "LPUSH",
        ttl if ttl and ttl > 0 else None,
        name.encode("utf-8", "replace") if isinstance(name, str) else b"",
        key,
        is_far=scripts.is_elsewhere(target, key) if key else False,
        is_foreign=bool(key) and not (key.startswith(own) and key.endswith(b":dependencies")),
    )
