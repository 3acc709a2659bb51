"""Signs that tell one generation of Bull or BullMQ from another, each with its meaning (`bull-reference` §6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from recovery.backends.redis_common import decode
from recovery.domain.queues.types import QueueLibrary, Worker

OLDEST, NEWEST = 3, 6  # majors of BullMQ that we know
BULL = (3, 4)
ANY = 99  # a major that is still to come

_VERSION = re.compile(r"bullmq:((\d{1,3})\.\d{1,4}(\.\d{1,4})?[\w.+-]{0,20})")


class EvidenceWeight(IntEnum):
    """Weight of a sign where two do not agree."""

    LEFT_BEHIND = 1  # an older version may have left it
    WRITTEN = 2  # a producer wrote it, perhaps long ago
    AT_WORK = 3  # workers do it now: they decide what the scripts do


@dataclass(frozen=True, slots=True)
class VersionEvidence:
    """Observed sign: the majors it allows, of which library, and the sentence for the queue page."""

    text: str
    library: QueueLibrary
    low: int
    high: int
    weight: EvidenceWeight = EvidenceWeight.LEFT_BEHIND


def bullmq(
    text: str, low: int = OLDEST, high: int = ANY, weight: EvidenceWeight = EvidenceWeight.LEFT_BEHIND
) -> VersionEvidence:
    return VersionEvidence(text, QueueLibrary.BULLMQ, low, high, weight)


def bull(text: str, low: int = BULL[0], weight: EvidenceWeight = EvidenceWeight.LEFT_BEHIND) -> VersionEvidence:
    return VersionEvidence(text, QueueLibrary.BULL, low, BULL[1], weight)


def from_keys(seen: Mapping[str, Any]) -> Iterator[VersionEvidence]:
    """Yields the signs that existing keys give."""
    if seen["marker"] == b"zset":
        yield bullmq("marker set → BullMQ ≥ 5", low=5)
    if decode.count(seen["prioritized"]) or decode.count(seen["pc"]):
        yield bullmq("prioritized set or its counter → BullMQ ≥ 4", low=4)
    if any(id.startswith(b"0:") for id in (*decode.items(seen["tail"]), *decode.items([seen["head"]]))):
        yield bullmq("`0:` markers among the waiting ids → BullMQ 3 or 4", high=4)
    if decode.count(seen["events"]):
        yield bullmq("events stream → BullMQ")
    if decode.fields(seen["meta"], 3)[1] is not None:
        yield bullmq("meta has opts.maxLenEvents → BullMQ")
    if decode.count(seen["waiting_children"]):
        yield bullmq("waiting-children set → BullMQ")
    yield from _of_bull(seen)


def _of_bull(seen: Mapping[str, Any]) -> Iterator[VersionEvidence]:
    if decode.count(seen["paused_flag"]):
        yield bull("meta-paused → Bull")
    if decode.count(seen["limited"]):
        yield bull("limiter:index → Bull")


def from_version(written: str) -> VersionEvidence | None:
    """Returns the sign of meta.version, which the constructor of a BullMQ `Queue` writes."""
    found = _VERSION.fullmatch(written)
    if found is None:
        return None
    major = int(found[2])
    return bullmq(f"meta.version = {written} (written by a producer)", major, major, EvidenceWeight.WRITTEN)


def version(written: str) -> str:
    found = _VERSION.fullmatch(written)
    return found[1] if found else ""


def from_workers(workers: Sequence[Worker]) -> Iterator[VersionEvidence]:
    """Yields the signs of the command that workers block on."""
    commands = [worker.command for worker in workers]
    if many := commands.count("bzpopmin"):
        yield bullmq(f"workers wait with bzpopmin ({many}) → BullMQ ≥ 5", low=5, weight=EvidenceWeight.AT_WORK)
    if many := commands.count("brpoplpush"):
        text = f"workers wait with brpoplpush ({many}) → Bull, or BullMQ ≤ 4"
        yield VersionEvidence(text, QueueLibrary.UNKNOWN, OLDEST, 4, EvidenceWeight.AT_WORK)


JOB_FIELDS = (b"ats", b"atm", b"pb", b"stc", b"defa", b"rjk", b"parentKey", b"retriedOn")


def from_jobs(replies: Sequence[Any]) -> Iterator[VersionEvidence]:
    """Yields the signs that the fields of some of its jobs give."""
    present = {
        field.decode()
        for reply in replies
        for field, value in zip(JOB_FIELDS, decode.fields(reply, len(JOB_FIELDS)), strict=True)
        if value is not None
    }
    if newer := sorted(present & {"ats", "atm", "pb", "stc", "defa"}):
        yield bullmq(f"jobs have {', '.join(newer)} → BullMQ ≥ 5", low=5)
    if shared := sorted(present & {"rjk", "parentKey"}):
        yield bullmq(f"jobs have {', '.join(shared)} → BullMQ")
    if "retriedOn" in present:
        yield bull("jobs have retriedOn → Bull")


def from_pause(seen: Mapping[str, Any]) -> VersionEvidence | None:
    """Returns a sign if the queue is paused and yet has jobs in `wait`: only BullMQ ≥ 6 leaves them there."""
    is_paused = decode.fields(seen["meta"], 3)[2] is not None
    has_jobs = any(not id.startswith(b"0:") for id in decode.items(seen["tail"]))
    if not is_paused or not has_jobs or decode.count(seen["paused_flag"]):
        return None
    return bullmq("paused, with jobs left in wait → BullMQ ≥ 6", low=6, weight=EvidenceWeight.WRITTEN)
