"""Finds, from a place, the offset in each file as they lie there now, and what was lost on the way."""

from __future__ import annotations

import os
from collections.abc import Iterable

from recovery.errors import Missing
from recovery.logs.base import LogGap
from recovery.logs.files import line_reader
from recovery.logs.files.discovery import HALF, LogFile
from recovery.logs.files.ordering import FilesView
from recovery.logs.files.positions import LINE, PART, LogFilePosition

UNKNOWN = "This log position is unknown."
NAMED = 5  # files in one sentence


def resume_offsets(place: LogFilePosition, view: FilesView) -> tuple[dict[str, int], LogGap | None]:
    """Returns offsets and what was lost. Raises Missing for a line that is not there any more."""
    if place.kind == LINE:
        return _behind(place, view), None
    offsets: dict[str, int] = {}
    lost: list[str] = []
    for key, offset in place.offsets.items():
        file = _now(key, offset, place, view)
        if file is not None:
            offsets[file.key] = offset
        elif why := _loss(key, offset, view):
            lost.append(why)
    for key, file in view.files.items():
        if key not in offsets and key in view.ends:
            start = view.copies.get(key, file.start)
            offsets[key] = _older(file, view.ends[key], place.at) if place.kind == PART else start
    return offsets, LogGap(_told(lost)) if lost else None


def _now(key: str, offset: int, place: LogFilePosition, view: FilesView) -> LogFile | None:
    """Returns the file itself, or the copy that was made of it before it was truncated."""
    file = view.files.get(key)
    if file is not None:
        return file if offset <= file.size else None
    heirs = (one for one in view.files.values() if one.head == key[HALF:] and one.key not in place.offsets)
    return next((one for one in heirs if one.size >= offset), None)


def _loss(key: str, offset: int, view: FilesView) -> str:
    """Returns words for what may be missing; "" when all of it was read."""
    if key[:HALF] in view.seen.inodes:
        label = next((file.label for file in view.files.values() if file.inode == key[:HALF]), "A file")
        return f"{label} was truncated: its last lines may be missing."
    if view.gone.get(key) == offset:
        return ""
    return "A file is gone, perhaps before it was read to its end."


def _told(lost: Iterable[str]) -> str:
    different = list(dict.fromkeys(lost))
    more = len(different) - NAMED
    return " ".join(different[:NAMED]) + (f" And {more} more." if more > 0 else "")


def _behind(place: LogFilePosition, view: FilesView) -> dict[str, int]:
    """Returns the offsets behind one line, in the order of the ledger."""
    [(asked, end)] = place.offsets.items()
    file = _now(asked, end, LogFilePosition(0), view)
    if file is None or not _ends_line(file, end):
        raise Missing("This line no longer exists.")
    key = file.key
    if end <= view.base.get(key, 0):
        return {
            other: end
            if other == key
            else min(view.base[other], _older(view.files[other], view.base[other], place.at + (other < key)))
            for other in view.ends
        }
    offsets = dict(view.base)
    for segment in view.segments:
        if segment.key == key and segment.end >= end:
            break
        offsets[segment.key] = segment.end
    return offsets | {key: end}


def _ends_line(file: LogFile, end: int) -> bool:
    if end == file.size:
        return True
    try:
        opened = file.open()
    except OSError:
        return False
    try:
        return end > file.start and os.pread(opened, 1, end - 1) == b"\n"
    finally:
        os.close(opened)


def _older(file: LogFile, high: int, moment: int) -> int:
    """Returns the offset behind what is older than a moment."""
    try:
        opened = file.open()
    except OSError:
        return high
    try:
        return line_reader.offset_at(opened, file, high, moment)
    finally:
        os.close(opened)
