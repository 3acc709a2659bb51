"""Detects which library keeps a queue, and which generation: signs weighed against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from recovery.backends import detection_evidence
from recovery.backends.base import Command, CommandClient, Replies
from recovery.backends.bull.keys import BullKeys
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.detection_evidence import JOB_FIELDS, EvidenceWeight, VersionEvidence
from recovery.backends.redis_common import decode
from recovery.domain.identifiers import printable
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, Worker
from recovery.stores.redis.reply_limits import OversizedReply, UnreadReply

_ID_DIGITS = 32  # a counter is short; a long string under this name is no queue's
_DEFAULT = ("bull:", "{bull}:")
_JOBS_READ = 4  # the newest of each kind tell the generation; more would tell the same
_TYPES = {
    "wait": b"list",
    "active": b"list",
    "paused": b"list",
    "completed": b"zset",
    "failed": b"zset",
    "delayed": b"zset",
}
_NAMES = (
    *("id", "meta", *_TYPES, "events", "waiting_children", "prioritized", "pc", "marker", "metrics", "watchdog"),
    *("paused_flag", "limited", "tail", "head", "oldest_active", "last_completed", "last_failed", "first_delayed"),
)
_HEADS = ("oldest_active", "last_failed", "last_completed", "tail", "first_delayed")

PRO = "BullMQ Pro keeps grouped jobs in keys that are not public, so nothing here is changed."
OVERSIZED = "Its content cannot be read, so nothing here is changed: {}."
UNREAD = LibraryVersion(read_only="Its library was not detected: too many answers of other queues were too long.")
HIDDEN = "The ACL hides the keys that tell Bull from BullMQ, so nothing here is changed."


def detect_plan(base: str) -> tuple[Command, ...]:
    """Returns the commands to ask of a base that may be a queue; in the order of `_NAMES`. Nothing above O(log n)."""
    keys, bull = BullMQKeys(base), BullKeys(base)
    return (
        (b"GETRANGE", keys.counter, 0, _ID_DIGITS),
        (b"HMGET", keys.meta, b"version", b"opts.maxLenEvents", b"paused"),
        *((b"TYPE", keys.named(name.encode())) for name in _TYPES),
        (b"EXISTS", keys.events),
        (b"EXISTS", keys.waiting_children),
        (b"EXISTS", keys.prioritized),
        (b"EXISTS", keys.priority_counter),
        (b"TYPE", keys.marker),
        (b"EXISTS", keys.metrics(b"completed")),
        (b"EXISTS", keys.watchdog),
        (b"EXISTS", bull.paused_flag),
        (b"EXISTS", bull.limited),
        (b"LRANGE", keys.wait, -2, -1),
        (b"LINDEX", keys.wait, 0),
        (b"LINDEX", keys.active, -1),
        (b"ZREVRANGE", keys.completed, 0, 0),
        (b"ZREVRANGE", keys.failed, 0, 0),
        (b"ZRANGE", keys.delayed, 0, 0),
    )


def closer_plan(base: str, replies: Replies) -> tuple[Command, ...]:
    """Returns the commands that read a few of its jobs, whose fields tell more."""
    seen = _seen(replies)
    ids = dict.fromkeys(id for name in _HEADS for id in decode.items(_listed(seen[name])) if not id.startswith(b"0:"))
    return tuple((b"HMGET", BullMQKeys(base).job(id), *JOB_FIELDS) for id in islice(ids, _JOBS_READ))


def identify(
    wire: CommandClient, bases: Sequence[str], workers: Mapping[str, Sequence[Worker]]
) -> list[LibraryVersion | None]:
    """Returns the flavours of many bases in two round trips; None where there is no queue."""
    first = _chunks(wire, [detect_plan(base) for base in bases])
    closer = _chunks(wire, [closer_plan(base, replies) for base, replies in zip(bases, first, strict=True)])
    return [
        detect(replies, workers.get(base, ()), jobs=jobs, base=base)
        for base, replies, jobs in zip(bases, first, closer, strict=True)
    ]


def detect(replies: Replies, workers: Sequence[Worker], *, jobs: Replies = (), base: str = "") -> LibraryVersion | None:
    """Returns the flavour that the answers to `detect_plan` (and `closer_plan`) show; None: this is not a queue."""
    if oversized := [reply for reply in (*replies, *jobs) if isinstance(reply, OversizedReply)]:
        is_unread = all(isinstance(reply, UnreadReply) for reply in oversized)
        return (
            UNREAD
            if is_unread
            else LibraryVersion(evidence=(str(oversized[0]),), read_only=OVERSIZED.format(oversized[0]))
        )
    seen = _seen(replies)
    if not _is_queue(seen, workers, base):
        return None
    written = decode.prose(decode.fields(seen["meta"], 3)[0])
    found = [
        *detection_evidence.from_workers(workers),
        *detection_evidence.from_keys(seen),
        *detection_evidence.from_jobs(jobs),
    ]
    found += [
        sign
        for sign in (detection_evidence.from_version(written), detection_evidence.from_pause(seen))
        if sign is not None
    ]
    if written and not detection_evidence.version(written):
        return _foreign(written, found)
    if not any(sign.library is not QueueLibrary.UNKNOWN for sign in found):
        return _without_signs(seen, found)
    if not any(sign.library is QueueLibrary.BULLMQ for sign in found):
        return _bull(seen, found)
    return _bullmq(found, detection_evidence.version(written))


def _is_queue(seen: Mapping[str, Any], workers: Sequence[Worker], base: str) -> bool:
    """Returns True if BullMQ wrote `meta`, a worker waits on it, or keys of the right types stand beside the counter.

    A counter alone is any program's (`user:id`), and yet all that is left of an idle Bull queue; so it counts only
    under the prefix that the libraries take by default.
    """
    if "::relay" in base:  # messages between BullMQ workers, no jobs
        return False
    version, events_limit, _ = decode.fields(seen["meta"], 3)
    if version is not None or events_limit is not None or workers:
        return True
    counter = decode.octets(seen["id"])
    kinds = {name: decode.octets(seen[name]) for name in _TYPES}
    if (
        not counter
        or not counter.isdigit()
        or any(kind not in (None, b"none", _TYPES[name]) for name, kind in kinds.items())
    ):
        return False
    has_more = any(decode.count(seen[name]) for name in ("events", "watchdog", "paused_flag"))
    return has_more or any(kind == _TYPES[name] for name, kind in kinds.items()) or base.startswith(_DEFAULT)


def _foreign(written: str, found: Sequence[VersionEvidence]) -> LibraryVersion:
    is_pro = written.startswith("bullmq-pro")
    reason = (
        PRO
        if is_pro
        else f"meta.version is {printable(written)[:80]}, which is not a known BullMQ: nothing here is changed."
    )
    evidence = (f"meta.version = {printable(written)[:80]}", *(sign.text for sign in found))
    return LibraryVersion(QueueLibrary.PRO if is_pro else QueueLibrary.UNKNOWN, None, "", evidence, reason)


def _without_signs(seen: Mapping[str, Any], found: Sequence[VersionEvidence]) -> LibraryVersion:
    """Returns Bull if neither `meta` nor `events` is there: BullMQ always leaves one. Unknown if we may not look."""
    if any(isinstance(seen[name], Exception) for name in ("meta", "events")):
        return LibraryVersion(evidence=tuple(sign.text for sign in found), read_only=HIDDEN)
    return _bull(seen, [*found, detection_evidence.bull("neither meta nor events, which BullMQ always writes → Bull")])


def _bull(seen: Mapping[str, Any], found: Sequence[VersionEvidence]) -> LibraryVersion:
    evidence = [sign.text for sign in found]
    if decode.count(seen["metrics"]):
        return LibraryVersion(QueueLibrary.BULL, detection_evidence.BULL[1], "", (*evidence, "metrics → Bull ≥ 4.7"))
    return LibraryVersion(
        QueueLibrary.BULL, detection_evidence.BULL[0], "", tuple(evidence), upto=detection_evidence.BULL[1]
    )


def _bullmq(found: Sequence[VersionEvidence], version: str) -> LibraryVersion:
    """Narrows the majors by the heaviest signs first; of equals, the lower: an action must suit the oldest at work."""
    low, high, is_mixed = detection_evidence.OLDEST, detection_evidence.ANY, False
    ordered = sorted(found, key=lambda sign: (-sign.weight, sign.high))
    for sign in ordered:
        if sign.library is QueueLibrary.BULL:
            is_mixed = True
        elif sign.high < low or sign.low > high:
            is_mixed = is_mixed or sign.weight > EvidenceWeight.LEFT_BEHIND
        else:
            low, high = max(low, sign.low), min(high, sign.high)
    newest = max(low, min(high, detection_evidence.NEWEST))
    return LibraryVersion(
        QueueLibrary.BULLMQ,
        None if (low, newest) == (detection_evidence.OLDEST, detection_evidence.NEWEST) else low,
        version,
        tuple(sign.text for sign in ordered),
        f"BullMQ {low} is newer than the supported versions: nothing is changed."
        if low > detection_evidence.NEWEST
        else "",
        is_mixed,
        newest if newest > low else None,
    )


def _seen(replies: Replies) -> dict[str, Any]:
    """Returns the answers by name. TYPE and LINDEX come as bytes or str, depending on the client."""
    return {
        name: decode.octets(reply) if isinstance(reply, str) else reply
        for name, reply in zip(_NAMES, replies, strict=True)
    }


def _listed(reply: Any) -> Any:
    return reply if isinstance(reply, (list, tuple)) else [reply]


def _chunks(wire: CommandClient, plans: Sequence[tuple[Command, ...]]) -> list[Replies]:
    """Sends all plans in one batch and cuts the answers to where they belong."""
    commands = [command for plan in plans for command in plan]
    answers = iter(wire.call(commands) if commands else ())
    return [tuple(islice(answers, len(plan))) for plan in plans]
