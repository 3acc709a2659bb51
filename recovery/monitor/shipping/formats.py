"""Formats of log files: plain lines, or Docker's JSON around them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Protocol

from recovery.domain.logs.line_batches import CutLine, Raw
from recovery.domain.logs.timestamps import LineClock, line_timestamp
from recovery.monitor.shipping.line_reader import LINE, cut

FILE, DOCKER = "file", "docker"
_CONFIG_LIMIT = 4 << 20  # bytes of what Docker writes about a container
_DETAILS = "config.v2.json"

Labels = tuple[tuple[str, str], ...]
Group = tuple[Labels, list[Raw]]


class LineFormat(Protocol):
    """Format of one file. `clock` goes on from the time of the last line; `back` is the offset of incomplete lines."""

    clock: LineClock
    back: int | None
    limit: int  # bytes of a line in the file

    def take(self, lines: Sequence[bytes], start: int, now: int) -> list[Group]:
        """Returns the lines by their labels; `start` is the offset of the first one in the file."""

    def rewind(self, shipped: int) -> None:
        """Prepares to read again from `back` on; lines that ended before the offset `shipped` are left out."""


@dataclass(slots=True)
class PlainFormat:
    labels: Labels
    clock: LineClock = field(default_factory=LineClock)
    back: int | None = None
    limit: int = LINE

    def take(self, lines: Sequence[bytes], start: int, now: int) -> list[Group]:
        del start
        read = self.clock.read
        # A file with a hole at its beginning was truncated while its writer kept its offset.
        return [(self.labels, [(read(line, now), _bare(line)) for line in lines])]

    def rewind(self, shipped: int) -> None:
        del shipped
        self.back = None


def _size(line: bytes) -> int:
    return len(line) + (line.left_out if isinstance(line, CutLine) else 0)


def _bare(line: bytes) -> bytes:
    if line[-1:] == b"\r" and type(line) is bytes:
        line = line[:-1]
    return line.lstrip(b"\0") if line[:1] == b"\0" and type(line) is bytes else line


@dataclass(slots=True)
class PartialLine:
    """Line of a container whose end was not read yet; `offset` is that of its first part."""

    offset: int
    at: int | None
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, part: bytes) -> None:
        kept = min(self.size, LINE)
        self.size += len(part)
        if kept < LINE:
            self.parts.append(part[: LINE - kept])

    def whole(self) -> bytes:
        return cut(b"".join(self.parts), self.size)


@dataclass(slots=True)
class DockerFormat:
    """Docker's lines like `{"log":"text\\n","stream":"stdout","time":"…Z"}`. A long one comes in several parts, all but
    the last without a newline, and those of two streams may be mixed.
    """

    labels: Labels
    clock: LineClock = field(default_factory=LineClock)
    back: int | None = None
    limit: int = 6 * LINE  # as many bytes has a control character in JSON
    _shipped: int = 0
    _begun: dict[str, PartialLine] = field(default_factory=dict)

    def take(self, lines: Sequence[bytes], start: int, now: int) -> list[Group]:
        found: dict[str, list[Raw]] = {}
        for line in lines:
            self._one(line, start, now, found)
            start += _size(line) + 1
        self.back = min((one.offset for one in self._begun.values()), default=None)
        return [((*self.labels, *((("stream", stream),) if stream else ())), raws) for stream, raws in found.items()]

    def rewind(self, shipped: int) -> None:
        self._shipped = shipped
        self._begun.clear()
        self.back = None

    def _one(self, line: bytes, start: int, now: int, found: dict[str, list[Raw]]) -> None:
        text, stream, at = _unfolded(line)
        if not stream:
            whole = cut(line, _size(line))
        else:
            begun = self._begun.setdefault(stream, PartialLine(start, at))
            begun.add(text.removesuffix(b"\n"))
            if not text.endswith(b"\n"):
                return
            del self._begun[stream]
            whole, at = _bare(begun.whole()), begun.at
        if start >= self._shipped:
            found.setdefault(stream, []).append((self.clock.told(at, now), whole))


def _unfolded(line: bytes) -> tuple[bytes, str, int | None]:
    """Returns text, stream and time. A line that is not Docker's JSON is taken as it stands, with no stream."""
    try:
        read = json.loads(line)
        text, stream = read["log"], str(read.get("stream", "stdout"))[:20]
        return (
            text.encode("utf-8", "surrogatepass"),
            stream,
            line_timestamp(b'{"time":"%b"' % str(read.get("time")).encode()),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return line, "", None


def format_of(kind: str, path: str, server: str) -> LineFormat:
    """Returns the format for a file of this kind, with the labels of all its lines."""
    if kind == DOCKER:
        return DockerFormat((("server", server), ("source", DOCKER), *_container(PurePath(path).parent)))
    return PlainFormat((("server", server), ("source", FILE), ("file", path_label(path))))


def path_label(path: str) -> str:
    """Returns a path as text for a label: paths may contain any bytes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _container(folder: PurePath) -> Labels:
    details = _details(Path(folder, _DETAILS))
    name, config = details.get("Name"), details.get("Config")
    image = config.get("Image") if isinstance(config, dict) else None
    named = name.lstrip("/") if isinstance(name, str) and name.strip("/") else path_label(folder.name)[:12]
    return (("container", named), ("image", image)) if isinstance(image, str) and image else (("container", named),)


def _details(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            read = json.loads(file.read(_CONFIG_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
