"""Reads workers from CLIENT LIST: which connections are workers, and of which queue.

The libraries name a worker's connection after its queue: `prefix:base64(queue)`, since BullMQ 5.3 with `:w:<name>`
behind when the worker has a name. The Python and Elixir ports write `prefix:queue` as it is. QueueEvents end in `:qe`.
Bull up to 4.0 names all three connections of a worker and the Python port all of them; only the one that waits for
jobs is counted.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.domain.queues.types import Worker

_NAMED = b":w:"
_EVENTS = b":qe"
_LINE_BYTES = 4096  # of one connection; a longer one bears a name that is no queue's
# What the last command of a connection tells of it, without a container's subcommand (`client|setname`).
_WAITS = frozenset({b"bzpopmin", b"brpoplpush", b"blmove", b"brpop", b"blpop", b"bzmpop"})
_STARTS = frozenset({b"info", b"client", b"hello", b"auth", b"select", b"ping", b"null", b""})
_FIELD = re.compile(rb"(?:^| )([a-z-]+)=([^ ]*)")


@dataclass(frozen=True, slots=True)
class _Connection:
    id: bytes
    address: bytes
    name: bytes
    age: int
    idle: int
    command: bytes

    @property
    def host(self) -> bytes:
        return self.address.rpartition(b":")[0]


def parse(listing: bytes, refs: Iterable[QueueRef], *, db: int | None = None) -> tuple[Worker, ...]:
    """Returns the workers of these queues. `db` leaves out those that work in another database of the same server."""
    known = _names(refs)
    groups: defaultdict[tuple[bytes, bytes, QueueRef, bytes, bool], list[_Connection]] = defaultdict(list)
    for connection in _connections(listing, db):
        found = _owner(connection.name, known)
        if found is not None:
            ref, name, is_port = found
            groups[connection.host, connection.name, ref, name, is_port].append(connection)
    return tuple(
        _worker(ref, name, connection)
        for (_, _, ref, name, is_port), group in groups.items()
        for connection in (_of_port(group) if is_port else _of_library(group))
    )


def count(workers: Sequence[Worker], ref: QueueRef) -> int:
    return sum(worker.queue == ref for worker in workers)


def bases(listing: bytes, *, db: int | None = None) -> set[str]:
    """Returns bases that connection names may stand for: candidates, because any program may have named itself so."""
    heads = {_head(connection.name) for connection in _connections(listing, db)}
    return {decode_name(base) for head in heads if b":" in head for base in _meanings(head)}


def _connections(listing: bytes, db: int | None) -> Iterator[_Connection]:
    """Yields the named connections: of thousands of clients most are producers, and those have no name."""
    for line in listing.splitlines():
        if b" name= " in line or b" name=" not in line or len(line) > _LINE_BYTES:
            continue
        fields = dict(_FIELD.findall(line))
        if not fields.get(b"name") or (db is not None and fields.get(b"db") != b"%d" % db):
            continue
        yield _Connection(
            id=fields.get(b"id", b""),
            address=fields.get(b"addr", b""),
            name=fields[b"name"],
            age=_seconds(fields.get(b"age")),
            idle=_seconds(fields.get(b"idle")),
            command=fields.get(b"cmd", b"").lower(),
        )


def _seconds(written: bytes | None) -> int:
    return int(written) if written and written.isdigit() and len(written) < 12 else 0


def _names(refs: Iterable[QueueRef]) -> dict[bytes, tuple[QueueRef, bool]]:
    """Returns every name by which a worker may call these queues; True where it is the queue's name as it stands.

    Prefix and queue may both hold colons, so each colon may be the one between them.
    """
    names: dict[bytes, tuple[QueueRef, bool]] = {}
    for ref in refs:
        base = encode_name(ref.base)
        names.setdefault(base, (ref, True))
        for position in (match.start() for match in re.finditer(b":", base)):
            names[base[: position + 1] + b64encode(base[position + 1 :])] = (ref, False)
    return names


def _owner(name: bytes, known: dict[bytes, tuple[QueueRef, bool]]) -> tuple[QueueRef, bytes, bool] | None:
    """Returns the queue, the worker's own name, and whether a port wrote it. A queue's name may itself hold `:w:`."""
    start = len(name)
    while start >= 0:
        found = known.get(name[:start])
        if found is not None:
            return found[0], name[start + len(_NAMED) :], found[1]
        start = name.rfind(_NAMED, 0, start + len(_NAMED) - 1)  # two of them may share a colon
    return None


def _of_library(group: list[_Connection]) -> list[_Connection]:
    """Returns one connection a worker: the one that waits for jobs, or has not begun to. It never runs a script."""
    return [connection for connection in group if _fetches(connection)]


def _fetches(connection: _Connection) -> bool:
    command = connection.command.partition(b"|")[0]
    return command in _WAITS or command in _STARTS


def _of_port(group: list[_Connection]) -> list[_Connection]:
    """Returns one connection a worker of a port. Every connection of such a worker bears its name: the one that waits
    for jobs, the one for everything else, and any number that its pool opens beside that (for a line of a job's log,
    say). So the one that waits, or has not begun to, is the worker; at its start both have not begun to.
    """
    waiting = sorted(filter(_fetches, group), key=lambda connection: connection.command not in _WAITS)
    return waiting[: (len(group) + 1) // 2] or group[:1]


def _worker(ref: QueueRef, name: bytes, connection: _Connection) -> Worker:
    return Worker(
        queue=ref,
        name=decode_name(name),
        address=decode_name(connection.address),
        age=connection.age,
        idle=connection.idle,
        command=decode_name(connection.command),
        connection=decode_name(connection.id),
    )


def _head(name: bytes) -> bytes:
    """Returns a connection's name without what follows the queue's."""
    return name.partition(_NAMED)[0].removesuffix(_EVENTS)


def _meanings(head: bytes) -> Iterator[bytes]:
    """Yields the name as it stands, and with its last part decoded where that gives a readable name."""
    yield head
    prefix, _, encoded = head.rpartition(b":")
    try:
        queue = b64decode(encoded, validate=True)
        readable = queue.decode().isprintable()
    except (NotBase64, UnicodeDecodeError):
        return
    if queue and readable and b64encode(queue) == encoded:
        yield prefix + b":" + queue
