"""Logs of very many very short or costly lines: what is read of them at once is bounded in lines and in time."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from recovery.domain import parcels
from recovery.domain.lines import Query
from recovery.domain.parcels import Parcel
from recovery.logs.files import reading
from recovery.logs.files.finding import File
from recovery.logs.judging import Judge, Patience, Wanted
from recovery.logs.places import Spot
from recovery.logs.shipped import Entry

LINES = 100


def entry() -> Entry:
    fields = Parcel(tuple((number + 1, b"line %d" % number) for number in range(LINES))).encode()
    body = fields["body"]
    assert isinstance(body, bytes)
    return Entry(((7, 0), "mark"), b"eu-1", (b"{}", b"100", b"1", b"100", body))


def impatient() -> Judge:
    patience = Patience(60)
    patience.end()
    return Judge(Wanted(Query(), 1_000, patience))


def test_a_parcel_of_a_million_empty_lines_is_refused() -> None:
    body = zlib.compress(b"\n" * 1_000_000, 9)
    assert len(body) < parcels.SURE
    with pytest.raises(ValueError, match="too many lines"):
        parcels.unfolded(body)


def test_a_parcel_as_full_as_a_monitor_packs_it_is_read() -> None:
    rows = b"\n".join([b"1\t"] * 26_214)
    assert parcels.unfolded(zlib.compress(rows)) == rows


def test_an_entry_is_left_in_the_midst_when_time_is_up_and_taken_up_there_forwards() -> None:
    found, spot = [], Spot(0)
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
    size, high, found = 16 * 1024, path.stat().st_size, list[reading.Row]()
    file = os.open(path, os.O_RDONLY)
    try:
        while high:
            start = reading.window(file, 0, high, size)
            rows = list(reading.rows(file, start, high))
            assert 0 < len(rows) <= size // reading.ROW_BYTES + 1
            found[:0], high = rows, start
        assert found == list(reading.rows(file, 0, path.stat().st_size))
    finally:
        os.close(file)


def test_the_timestamp_before_a_line_is_looked_for_in_a_bounded_number_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"2026-11-20T06:00:00Z first\n" + b"\n" * 50_000)
    status = path.stat()
    read = File("k" * 8, str(tmp_path), str(path), "app.log", status.st_size, status.st_mtime_ns)
    file = os.open(path, os.O_RDONLY)
    try:
        assert reading.last_moment(file, read, 500) is not None
        assert reading.last_moment(file, read, status.st_size) is None
    finally:
        os.close(file)
