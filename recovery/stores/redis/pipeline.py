"""Encodes a batch of commands as the bytes that go over the wire, made once and sent again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import hiredis

Command = tuple[bytes | str | int, ...]

# Replies to 1,000 small reads are about 6 KB and half a millisecond of the server's time. More in one go would not
# be faster (measured: 500 to 4,000 are alike), but would grow the server's reply buffer; and a batch in several
# chunks is decoded while the server works on (`Wire.parts`).
CHUNK = 1000


class CommandChunk(NamedTuple):
    """Bytes to send at once, and how many replies they bring."""

    sent: bytes
    replies: int

    @classmethod
    def joined(cls, chunks: Sequence[CommandChunk]) -> CommandChunk:
        return cls(b"".join(chunk.sent for chunk in chunks), sum(chunk.replies for chunk in chunks))


class NodeBatch(NamedTuple):
    """Commands of a batch for one node; `places` are their positions in the whole."""

    node: Hashable
    places: tuple[int, ...]
    chunks: tuple[CommandChunk, ...]


class EncodedBatch:
    """Batch of commands that keeps its bytes. Immutable for its user; the split over a cluster is remembered inside."""

    __slots__ = ("_chunks", "_split", "commands")

    def __init__(self, commands: Iterable[Command]) -> None:
        self.commands = tuple(commands)
        self._chunks: tuple[CommandChunk, ...] | None = None
        self._split: tuple[object, tuple[NodeBatch, ...]] | None = None

    @classmethod
    def joined(cls, batches: Iterable[EncodedBatch]) -> EncodedBatch:
        """Joins several batches into one, from the bytes that each of them keeps."""
        batches = list(batches)
        whole = cls(chain.from_iterable(batch.commands for batch in batches))
        pieces = [chunk for batch in batches for chunk in batch.chunks]
        whole._chunks = tuple(map(CommandChunk.joined, _filled(pieces)))
        return whole

    def __len__(self) -> int:
        return len(self.commands)

    @property
    def chunks(self) -> tuple[CommandChunk, ...]:
        """Chunks of the whole batch, for one server."""
        if self._chunks is None:
            self._chunks = chunked(self.commands)
        return self._chunks

    def split(self, topology: object, owner: Callable[[Command], Hashable]) -> tuple[NodeBatch, ...]:
        """Splits the batch by node, anew only when the topology is another object than last time."""
        kept = self._split
        if kept is None or kept[0] is not topology:
            kept = self._split = (topology, _parts(self.commands, owner))
        return kept[1]


def _filled(pieces: Iterable[CommandChunk]) -> Iterator[list[CommandChunk]]:
    """Yields as many pieces together as a chunk holds."""
    taken: list[CommandChunk] = []
    room = CHUNK
    for piece in pieces:
        if taken and piece.replies > room:
            yield taken
            taken, room = [], CHUNK
        taken.append(piece)
        room -= piece.replies
    if taken:
        yield taken


def chunked(commands: Sequence[Command]) -> tuple[CommandChunk, ...]:
    starts = range(0, len(commands), CHUNK)
    return tuple(_chunk(commands[start : start + CHUNK]) for start in starts)


def _chunk(commands: Sequence[Command]) -> CommandChunk:
    return CommandChunk(b"".join(map(packed, commands)), len(commands))


def packed(command: Command) -> bytes:
    try:
        return _pack(command)
    except UnicodeEncodeError:  # a name with bytes that are no UTF-8, kept by surrogateescape
        return _pack(tuple(_raw(part) for part in command))


def _pack(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub knows one-part commands only
    return packed


def _raw(part: bytes | str | int) -> bytes | int:
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


def _parts(commands: Sequence[Command], owner: Callable[[Command], Hashable]) -> tuple[NodeBatch, ...]:
    places: dict[Hashable, list[int]] = {}
    for place, command in enumerate(commands):
        places.setdefault(owner(command), []).append(place)
    return tuple(
        NodeBatch(node, tuple(found), chunked([commands[place] for place in found])) for node, found in places.items()
    )
