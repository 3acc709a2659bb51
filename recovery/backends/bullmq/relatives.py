"""Looks up a job's relatives before a script that touches them: it is told their queues, and checks the rest.

A full key (`prefix:queue:id`) does not say where its base ends, so the store is asked; see splitting.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, Target
from recovery.backends.bullmq import scripts
from recovery.backends.bullmq.job_keys import split
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.redis_common import decode
from recovery.domain.actions.types import ActionOptions
from recovery.domain.identifiers import JobRef, QueueRef, decode_name, encode_name
from recovery.stores.redis.scripts import Part

# Members of a family that one script takes away. Each may stand in a list that is searched: 200 are some 20 ms.
FAMILY_LIMIT = 200
ANCESTORS = 10  # generations above a job that are looked at
_FIELDS = (b"parentKey", b"parent")
_TOO_MANY = f"It has more than {FAMILY_LIMIT} children and children's children: remove some of them first."


class RelativeRef(NamedTuple):
    key: bytes
    base: bytes
    id: bytes

    def args(self) -> tuple[Part, Part]:
        return self.base, self.id


class JobDescendants(NamedTuple):
    """Children of a job, their children, and so on; `staying` are keys of those that are left alone."""

    found: tuple[RelativeRef, ...] = ()
    staying: tuple[bytes, ...] = ()


NO_DESCENDANTS = JobDescendants()


class RelativeOutOfReach(Exception):
    """Says why a script cannot take a relative along. Raised, or returned for one job among many."""


def read_relatives(
    target: Target, jobs: Sequence[bytes], options: ActionOptions
) -> tuple[dict[bytes, RelativeRef | RelativeOutOfReach | None], dict[bytes, JobDescendants | RelativeOutOfReach]]:
    """Returns the parent of each of these job keys and, when they are asked for, its descendants. Most jobs have
    neither, which one round trip tells of all of them.
    """
    asked = [*_ask_parents(jobs), *(_ask_families(jobs) if options.children else ())]
    replies = target.wire.call(asked) if asked else []
    above, below = replies[: len(jobs)], replies[len(jobs) :]
    families = _families(target, jobs, below, others=options.other_queues) if options.children else {}
    return _parents(target, jobs, above), families


def parents(target: Target, jobs: Sequence[bytes]) -> dict[bytes, RelativeRef | RelativeOutOfReach | None]:
    """Returns the parent of each of these job keys, in one round trip where the jobs name it themselves."""
    return _parents(target, jobs, target.wire.call(_ask_parents(jobs)) if jobs else [])


def _ask_parents(jobs: Sequence[bytes]) -> list[Command]:
    return [(b"HMGET", job, *_FIELDS) for job in jobs]


def _parents(
    target: Target, jobs: Sequence[bytes], replies: Sequence[Any]
) -> dict[bytes, RelativeRef | RelativeOutOfReach | None]:
    fields = {job: decode.fields(reply, len(_FIELDS)) for job, reply in zip(jobs, replies, strict=True)}
    keys = {job: key for job, (named, _) in fields.items() if (key := decode.octets(named))}
    hints = {key: base for job, key in keys.items() if (base := _hint(fields[job][1], key))}
    found = relatives(target, [key for key in keys.values() if key not in hints])
    found |= {
        key: _reached(target, RelativeRef(key, encode_name(base), key[len(encode_name(base)) + 1 :]))
        for key, base in hints.items()
    }
    gone = _gone(target, [key for key, relative in found.items() if isinstance(relative, RelativeOutOfReach)])
    return {job: found[keys[job]] if keys.get(job, b"") not in gone else None for job in jobs}


def _gone(target: Target, keys: Sequence[bytes]) -> set[bytes]:
    """Returns parents that do not exist: then it does not matter where they were. And b"", for a job without one."""
    replies = target.wire.call([(b"EXISTS", key) for key in keys]) if keys else []
    return {b""} | {key for key, reply in zip(keys, replies, strict=True) if decode.count(reply) == 0}


def relatives(target: Target, keys: Sequence[bytes]) -> dict[bytes, RelativeRef | RelativeOutOfReach]:
    """Returns each of these keys as queue and id."""
    found: dict[bytes, RelativeRef | RelativeOutOfReach] = {}
    for key, job in (split(target.wire, target.ref, keys) if keys else {}).items():
        if job is None:
            found[key] = RelativeOutOfReach(f"{decode.prose(key)} belongs to no known queue.")
        else:
            found[key] = _reached(target, RelativeRef(key, encode_name(job.queue.base), encode_name(job.id)))
    return found


def read_ancestors(target: Target, jobs: Sequence[bytes]) -> dict[bytes, tuple[RelativeRef, ...] | RelativeOutOfReach]:
    """Returns for each job its parent, that one's parent, and so on."""
    found: dict[bytes, tuple[RelativeRef, ...] | RelativeOutOfReach] = dict.fromkeys(jobs, ())
    tips = {job: job for job in jobs}
    for _ in range(ANCESTORS):
        above = parents(target, list(dict.fromkeys(tips.values())))
        for job, tip in tips.items():
            parent, line = above[tip], found[job]
            if isinstance(parent, RelativeOutOfReach):
                found[job] = parent
            elif parent is not None and not isinstance(line, RelativeOutOfReach):
                found[job] = (*line, parent)
        tips = {job: parent.key for job, tip in tips.items() if isinstance(parent := above[tip], RelativeRef)}
        if not tips:
            break
    return found


def _ask_families(jobs: Sequence[bytes]) -> list[Command]:
    return [(b"EXISTS", *(job + name for name in _SIZE)) for job in jobs]


def _families(
    target: Target, jobs: Sequence[bytes], replies: Sequence[Any], *, others: bool
) -> dict[bytes, JobDescendants | RelativeOutOfReach]:
    found: dict[bytes, JobDescendants | RelativeOutOfReach] = {}
    for job, reply in zip(jobs, replies, strict=True):
        try:
            found[job] = descendants(target, job, others=others) if decode.count(reply) else NO_DESCENDANTS
        except RelativeOutOfReach as reason:
            found[job] = reason
    return found


def descendants(target: Target, job: bytes, *, others: bool) -> JobDescendants:
    """Returns all children that name the job as their parent, the children that name those, and so on.

    What is merely written down with a job may have been planted there. Children in other queues stay where they are,
    with all below them, unless `others` are meant. Raises Unreached when there are too many, or one is out of reach.
    """
    found: dict[bytes, RelativeRef] = {}
    staying: dict[bytes, None] = {}
    level = [job]
    while level:
        keys = _pointing_back(target, _children(target, level))
        keys = [key for key in keys if key not in found and key not in staying and key != job]
        if len(found) + len(staying) + len(keys) > FAMILY_LIMIT:
            raise RelativeOutOfReach(_TOO_MANY)
        level = []
        for key, relative in relatives(target, keys).items():
            if not others and (
                isinstance(relative, RelativeOutOfReach) or relative.base != encode_name(target.ref.base)
            ):
                staying[key] = None
            elif isinstance(relative, RelativeOutOfReach):
                raise relative
            else:
                found[key] = relative
                level.append(key)
    return JobDescendants(tuple(found.values()), tuple(staying))


def _pointing_back(target: Target, written: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Returns, of these (child, job), the children whose own `parentKey` is the job."""
    asked: list[Command] = [(b"HMGET", child, b"parentKey") for child, _ in written]
    replies = target.wire.call(asked) if asked else []
    pairs = zip(written, replies, strict=True)
    return list(dict.fromkeys(child for (child, job), reply in pairs if decode.fields(reply, 1)[0] == job))


def _children(target: Target, jobs: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Returns all that are listed as children of these jobs, each with its job; the sizes are asked first."""
    books = [(job, name) for job in jobs for name in _LISTING]
    sizes = target.wire.call([(_SIZE[name], job + name) for job, name in books])
    if sum(decode.count(size) or 0 for size in sizes) > FAMILY_LIMIT:
        raise RelativeOutOfReach(_TOO_MANY)
    kept = [book for book, size in zip(books, sizes, strict=True) if decode.count(size)]
    asked: list[Command] = [(*_LISTING[name][:1], job + name, *_LISTING[name][1:]) for job, name in kept]
    replies = target.wire.call(asked) if asked else []
    return [(key, job) for (job, _), reply in zip(kept, replies, strict=True) for key in decode.items(reply)]


_SIZE = {b":dependencies": b"SCARD", b":processed": b"HLEN", b":failed": b"HLEN", b":unsuccessful": b"ZCARD"}
_LISTING: Mapping[bytes, tuple[bytes | int, ...]] = {
    b":dependencies": (b"SMEMBERS",),
    b":processed": (b"HKEYS",),
    b":failed": (b"HKEYS",),
    b":unsuccessful": (b"ZRANGE", 0, -1),
}


def _reached(target: Target, relative: RelativeRef) -> RelativeRef | RelativeOutOfReach:
    if scripts.is_elsewhere(target, relative.key):
        return RelativeOutOfReach(f"{decode.prose(relative.key)} lives on another node of the cluster.")
    return relative


def _hint(parent: Any, key: bytes) -> str:
    """Returns the parent's base, where the job's own JSON names it apart from the id."""
    queue, id = map(decode.mapping(parent).get, ("queueKey", "id"))
    if not isinstance(queue, str) or not isinstance(id, str):
        return ""
    return queue if f"{queue}:{id}".encode("utf-8", "replace") == key else ""


def own_key(target: Target, id: str) -> bytes:
    return BullMQKeys(target.ref.base).job(encode_name(id))


def ref_of(target: Target, relative: RelativeRef) -> JobRef:
    return QueueRef(target.ref.deployment, decode_name(relative.base)).job(decode_name(relative.id))


def keys_of(relatives: Sequence[RelativeRef]) -> tuple[bytes, ...]:
    return tuple(relative.key for relative in relatives)


def args_of(relatives: Sequence[RelativeRef]) -> tuple[Part, ...]:
    return tuple(part for relative in relatives for part in relative.args())
