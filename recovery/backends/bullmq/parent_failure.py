"""Finds the jobs that change when a job fails: its parent, and the parents above that fail with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from recovery.backends.base import Command, Target
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.backends.redis_common import decode
from recovery.domain.identifiers import encode_name

_FIELDS = (b"parent", b"parentKey", b"opts", b"deid")
_HIGHEST = 16  # generations above a job; a tree that is higher was not made by hand
_TOO_HIGH = f"It has more than {_HIGHEST} generations above it, which would fail with it."

# What a child's failure does to its parent, the strongest first, with the first version that does so: by a worker,
# and by the stalled check.
_OPTIONS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "fpof": ((3,), (5, 7, 2)),  # it fails, too
    "cpof": ((5, 47), (5, 47)),  # it goes on at once
    "idof": ((5, 2), (5, 7, 5)),  # it does not wait for this child any more, and keeps the reason
    "rdof": ((4,), (5, 12, 6)),  # it does not wait for this child any more
}


@dataclass(frozen=True, slots=True)
class Ancestor:
    """Parent above a job, and what the failure below does to it."""

    option: str
    base: bytes
    id: bytes
    dedup: bytes = b""
    is_last: bool = False  # it has no parent that hears of it

    @property
    def key(self) -> bytes:
        return b"%b:%b" % (self.base, self.id)


@dataclass(frozen=True, slots=True)
class ParentChain:
    """Chain of parents upwards, as far as the failure goes."""

    parents: tuple[Ancestor, ...] = ()
    refusal: str = ""
    is_untold: bool = False  # a worker would have told the parent, this version's stalled check does not


def read_chains(
    target: Target, traits: BullMQTraits, ids: Sequence[str], jobs: Sequence[Mapping[bytes, Any]], *, is_stall: bool
) -> list[ParentChain]:
    """Returns one line a job, from the fields of its hash. One round trip for each generation that fails directly, and
    one that asks which of them have it written down.
    """
    found = [_above(traits, fields, is_stall=is_stall) for fields in jobs]
    climbing = [line for line in found if _goes_on(traits, line)]
    for _ in range(_HIGHEST):
        if not climbing:
            break
        _climb(target, traits, climbing, is_stall=is_stall)
        climbing = [line for line in climbing if _goes_on(traits, line)]
    lengths = _pointing_back(target, [_key(target, id) for id in ids], found)
    return [
        ParentChain(
            tuple(line[:length]),
            _TOO_HIGH if line in climbing and length == len(line) else "",
            is_untold=is_stall and not line and bool(_above(traits, fields, is_stall=False)),
        )
        for line, fields, length in zip(found, jobs, lengths, strict=True)
    ]


def _key(target: Target, id: str) -> bytes:
    return BullMQKeys(target.ref.base).job(encode_name(id))


def _pointing_back(target: Target, jobs: Sequence[bytes], lines: Sequence[Sequence[Ancestor]]) -> list[int]:
    """Returns how many of each line, from the nearest up, have the one below among their dependencies.

    What a job says of its parent may be planted; the parent's own books are not, unless its author may write there.
    """
    links = [
        (b"SISMEMBER", above.key + b":dependencies", below)
        for job, line in zip(jobs, lines, strict=True)
        for below, above in zip((job, *(one.key for one in line)), line, strict=False)
    ]
    replies = iter(target.wire.call(links) if links else ())
    return [len(list(takewhile(bool, [decode.count(next(replies)) == 1 for _ in line]))) for line in lines]


def _goes_on(traits: BullMQTraits, line: Sequence[Ancestor]) -> bool:
    """Returns True if the failure goes further up. From 5.49.2 on a parent fails later, and its own parent then."""
    return bool(line) and line[-1].option == "fpof" and not line[-1].is_last and not traits.has("defers_parents")


def _climb(target: Target, traits: BullMQTraits, climbing: Sequence[list[Ancestor]], *, is_stall: bool) -> None:
    """Adds one more generation to each of these lines."""
    asked: list[Command] = [(b"HMGET", line[-1].key, *_FIELDS) for line in climbing]
    for line, reply in zip(climbing, target.wire.call(asked), strict=True):
        fields = dict(zip(_FIELDS, decode.fields(reply, len(_FIELDS)), strict=True))
        above = _above(traits, fields, is_stall=is_stall)
        line[-1] = replace(line[-1], dedup=decode.octets(fields[b"deid"]) or b"", is_last=not above)
        line.extend(above)


def _above(traits: BullMQTraits, fields: Mapping[bytes, Any], *, is_stall: bool) -> list[Ancestor]:
    """Returns the parent if it hears of the failure: the list has one entry or none."""
    written = decode.mapping(fields.get(b"parent"))
    option = _option(traits, written, is_stall=is_stall) or _option(
        traits, decode.mapping(fields.get(b"opts")), is_stall=is_stall
    )
    place = _place(written, decode.octets(fields.get(b"parentKey")) or b"")
    return [Ancestor(option, *place)] if option and place else []


def _option(traits: BullMQTraits, written: Mapping[str, Any], *, is_stall: bool) -> str:
    chosen = (
        name for name, since in _OPTIONS.items() if written.get(name) is True and traits.number >= since[is_stall]
    )
    return next(chosen, "")


def _place(written: Mapping[str, Any], key: bytes) -> tuple[bytes, bytes] | None:
    """Returns (base, id) of the parent. If what is written does not make its key, that is cut as the library does."""
    base, id = written.get("queueKey"), written.get("id")
    if isinstance(base, str) and isinstance(id, str):
        place = base.encode("utf-8", "replace"), id.encode("utf-8", "replace")
        if b":".join(place) == key:
            return place
    base_bytes, colon, id_bytes = key.rpartition(b":")
    return (base_bytes, id_bytes) if colon else None
