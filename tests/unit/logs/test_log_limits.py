"""Logs of very many very short or costly lines: what is read of them at once is bounded in lines and in time."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from recovery.domain.logs import line_batches
from recovery.domain.logs.line_batches import LineBatch
from recovery.domain.logs.types import LogQuery
from recovery.logs.files import line_reader
from recovery.logs.files.discovery import LogFile
from recovery.logs.stream.matching import MatchRequest, SearchDeadline, StreamMatcher
from recovery.logs.stream.positions import StreamPosition
from recovery.logs.stream.store import ShippedEntry

LINES = 100


def entry() -> ShippedEntry:
    fields = LineBatch(tuple((number + 1, b"line %d" % number) for number in range(LINES))).encode()
    body = fields["body"]
    assert isinstance(body, bytes)
    return ShippedEntry(((7, 0), "mark"), b"eu-1", (b"{}", b"100", b"1", b"100", body))


def impatient() -> StreamMatcher:
    patience = SearchDeadline(60)
    patience.end()
    return StreamMatcher(MatchRequest(LogQuery(), 1_000, patience))


def test_a_parcel_of_a_million_empty_lines_is_refused() -> None:
    body = zlib.compress(b"\n" * 1_000_000, 9)
    assert len(body) < line_batches.SURE
    with pytest.raises(ValueError, match="too many lines"):
        line_batches.decompress_rows(body)


def test_a_parcel_as_full_as_a_monitor_packs_it_is_read() -> None:
    rows = b"\n".join([b"1\t"] * 26_214)
    assert line_batches.decompress_rows(zlib.compress(rows)) == rows


def test_an_entry_is_left_in_the_midst_when_time_is_up_and_taken_up_there_forwards() -> None:
    found, spot = [], StreamPosition(0)
    for _ in range(LINES):
        judged = impatient().forwards([entry()], spot)
        assert 0 < len(judged.lines) < LINES
        found += judged.lines
        assert judged.spot is not None
        spot = judged.spot
        if len(found) >= LINES:
            break
    assert [line.text for line in found] == [f"line {number}" for number in range(LINES)]


def test_an_entry_is_left_in_the_midst_when_time_is_up_and_taken_up_there_backwards() -> None:
    found, spot = [], None
    for _ in range(LINES):
        judged = impatient().backwards([entry()], spot)
        assert 0 < len(judged.lines) < LINES
        found += judged.lines
        spot = judged.spot
        if len(found) >= LINES:
            break
    assert [line.text for line in found] == [f"line {number}" for number in reversed(range(LINES))]


@pytest.mark.parametrize("line", [b"\n", b"a\n", b"a" * 63 + b"\n", b"a" * 200 + b"\n"])
@pytest.mark.parametrize("end", [b"", b"without an end"])
def test_windows_of_a_file_hold_a_bounded_number_of_lines_and_each_once(
    tmp_path: Path, line: bytes, end: bytes
) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(line * 5_000 + end)
    size, high, found = 16 * 1024, path.stat().st_size, list[line_reader.FileLine]()
    file = os.open(path, os.O_RDONLY)
    try:
        while high:
            start = line_reader.window(file, 0, high, size)
            rows = list(line_reader.rows(file, start, high))
            assert 0 < len(rows) <= size // line_reader.ROW_BYTES + 1
            found[:0], high = rows, start
        assert found == list(line_reader.rows(file, 0, path.stat().st_size))
    finally:
        os.close(file)


def test_the_timestamp_before_a_line_is_looked_for_in_a_bounded_number_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"2026-11-20T06:00:00Z first\n" + b"\n" * 50_000)
    status = path.stat()
    read = LogFile("k" * 8, str(tmp_path), str(path), "app.log", status.st_size, status.st_mtime_ns)
    file = os.open(path, os.O_RDONLY)
    try:
        assert line_reader.last_moment(file, read, 500) is not None
        assert line_reader.last_moment(file, read, status.st_size) is None
    finally:
        os.close(file)
