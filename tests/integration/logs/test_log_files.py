"""Log files of this machine: nothing lost or doubled while they grow, turn and vanish, whatever stands in them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recovery.domain.logs.sanitize import LIMIT
from recovery.domain.logs.types import LogQuery
from recovery.domain.redaction.redact import MARK
from recovery.logs.files import FilesSource
from recovery.logs.files.positions import LogFilePosition
from tests.support.logs.log_files import ALL, SECOND, add, after, here, newest, spec, stamped, told


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[FilesSource]:
    made = FilesSource(spec(tmp_path))
    yield made
    await made.close()


# -- files that turn


async def test_a_rotation_by_rename_loses_nothing(source: FilesSource, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    add(log, "one")
    place = await here(source)
    add(log, "two")
    log.rename(tmp_path / "app.log.1")
    add(tmp_path / "app.log.1", "three, by a writer who does not know yet")
    add(log, "four")
    for reader in (source, FilesSource(spec(tmp_path))):
        texts, _, gaps = await after(reader, place)
        assert (texts, gaps) == (["two", "three, by a writer who does not know yet", "four"], [])
    page = await source.search(ALL)
    assert told(page.lines) == ["one", *texts]
    assert {line.labels["file"] for line in page.lines} == {"app.log"}


async def test_a_rotation_by_copy_and_truncation_loses_and_doubles_nothing(source: FilesSource, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    add(log, *(f"old {number}" for number in range(100)))
    place = await here(source)
    add(log, "not read yet")
    (tmp_path / "app.log.1").write_bytes(log.read_bytes())
    log.write_bytes(b"")
    add(log, "new")
    for reader in (source, FilesSource(spec(tmp_path))):
        assert (await after(reader, place))[0] == ["not read yet", "new"]


async def test_a_copy_that_is_seen_before_its_original_is_truncated_is_not_read_again(
    source: FilesSource, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    add(log, "one", "two")
    place = await here(source)
    add(log, "three")
    first, place, _ = await after(source, place)
    (tmp_path / "app.log.1").write_bytes(log.read_bytes())
    again, place, _ = await after(source, place)
    log.write_bytes(b"")
    add(log, "four")
    last, _, _ = await after(source, place)
    assert (first, again, last) == (["three"], [], ["four"])


async def test_a_writer_that_goes_on_where_it_was_leaves_a_hole_that_is_no_line(
    source: FilesSource, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    with log.open("wb") as file:
        file.write(stamped(time.time_ns(), "x" * 100_000))
        file.flush()
        place = await here(source)
        os.truncate(log, 0)
        file.write(stamped(time.time_ns(), "new"))
        file.flush()
        assert (await after(source, place))[0] == ["new"]
        (line,) = (await source.search(ALL)).lines
        assert line.text.startswith("20"), "no zeros before it"


async def test_a_truncated_file_is_read_from_its_beginning_and_that_is_said(
    source: FilesSource, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    add(log, *(f"old {number}" for number in range(100)))
    place = await here(source)
    log.write_bytes(b"")
    texts, place, gaps = await after(source, place)
    assert texts == []
    assert "truncated" in gaps[0].reason
    add(log, "new")
    assert (await after(source, place))[::2] == (["new"], [])


async def test_a_truncated_file_that_begins_with_the_same_line_is_read_anew(
    source: FilesSource, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    log.write_text("> app@1.0.0 start\nlistening\nlistening still\n")
    place = await here(source)
    log.write_text("> app@1.0.0 start\nagain\n")
    page = await source.read(ALL, after=place)
    assert [line.text for line in page.lines] == ["> app@1.0.0 start", "again"]
    assert page.gap


async def test_a_file_that_vanished_unread_is_a_gap_and_one_that_was_read_is_none(
    source: FilesSource, tmp_path: Path
) -> None:
    for name in ("read.log", "unread.log", "stays.log"):
        add(tmp_path / name, name)
    place = await here(source)
    add(tmp_path / "unread.log", "more")
    await newest(source)
    (tmp_path / "read.log").unlink()
    assert (await after(source, place))[::2] == (["more"], [])
    (tmp_path / "unread.log").unlink()
    texts, _, gaps = await after(source, place)
    assert (texts, [gap.reason for gap in gaps]) == ([], ["A file is gone, perhaps before it was read to its end."])


async def test_two_files_with_the_same_first_line_are_two(source: FilesSource, tmp_path: Path) -> None:
    place = await here(source)
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("> app@1.0.0 start\n")
        place = (await after(source, place))[1]
    for name in ("a.log", "b.log"):
        add(tmp_path / name, f"of {name}")
        add(tmp_path / name, f"more of {name}")
    assert sorted((await after(source, place))[0]) == ["more of a.log", "more of b.log", "of a.log", "of b.log"]


# -- order, and many files


async def test_a_line_that_is_written_late_is_neither_lost_nor_read_twice(source: FilesSource, tmp_path: Path) -> None:
    now = time.time_ns()
    add(tmp_path / "a.log", "a0", at=now - SECOND)
    add(tmp_path / "b.log", "b0", at=now - SECOND)
    place = await here(source)
    add(tmp_path / "a.log", "a1", at=now)
    page = await source.read(ALL, after=place)
    add(tmp_path / "b.log", "b1, older", at=now - SECOND // 2)
    texts, _, _ = await after(source, page.after)
    assert (told(page.lines), texts) == (["a1"], ["b1, older"])
    assert (await after(source, page.lines[0].id))[0] == ["b1, older"]
    assert (await after(FilesSource(spec(tmp_path)), page.after))[0] == ["b1, older"]


async def test_what_was_there_is_merged_by_time(source: FilesSource, tmp_path: Path) -> None:
    start = time.time_ns() - 60 * SECOND
    for number in range(40):
        add(tmp_path / f"{number % 4}.log", f"{number}", at=start + number * SECOND)
    texts: list[str] = []
    before = ""
    while not texts or before:
        page = await source.search(LogQuery(start=start), before=before, limit=7)
        texts = told(page.lines) + texts
        before = page.before
    assert texts == [f"{number}" for number in range(40)]


async def test_a_place_in_more_files_than_it_can_name_holds_in_this_process_and_in_the_next(tmp_path: Path) -> None:
    source = FilesSource(spec(tmp_path))
    old = time.time_ns() - 3600 * SECOND
    for number in range(60):
        add(tmp_path / f"{number}.log", f"old {number}", at=old + number)
    place = await here(source)
    wanted = [f"new {number}" for number in range(60)]
    for number in range(60):
        add(tmp_path / f"{number}.log", wanted[number])
    assert sorted((await after(source, place, limit=7))[0]) == sorted(wanted)
    assert sorted((await after(FilesSource(spec(tmp_path)), place, limit=7))[0]) == sorted(wanted)


async def test_a_reader_of_files_that_grow_and_turn_at_random_sees_each_line_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    source = FilesSource(spec(tmp_path))
    logs = [tmp_path / f"{letter}.log" for letter in "abc"]
    for log in logs:
        add(log, f"begun {log.name}")
    place, turns = await here(source), 0
    wanted: list[str] = []
    found: list[str] = []
    for step in range(150):
        log = chance.choice(logs)
        texts = [f"{step}.{number} {'x' * chance.choice((1, 30, 20_000))}" for number in range(chance.randint(1, 4))]
        add(log, *texts)
        wanted += [text[:50] for text in texts]
        if chance.random() < 0.1:
            turns += 1
            log.rename(f"{log}.{turns}")
        if chance.random() < 0.5:
            page = await source.read(ALL, after=place, limit=chance.randint(1, 6))
            assert page.gap is None
            found += [text[:50] for text in told(page.lines)]
            at_line = page.lines and chance.random() < 0.3
            place = page.lines[-1].id if at_line else page.after
    texts, _, gaps = await after(source, place)
    found += [text[:50] for text in texts]
    assert gaps == []
    assert sorted(found) == sorted(wanted)


# -- odd lines


async def test_a_line_of_a_megabyte_is_cut_and_says_how_much_is_missing(source: FilesSource, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    add(log, "before")
    place = await here(source)
    add(log, "x" * 1_000_000, "behind")
    size = len(stamped(time.time_ns(), "x" * 1_000_000)) - 1
    for lines in ((await source.read(ALL, after=place)).lines, (await source.search(ALL)).lines[1:]):
        assert [line.left_out for line in lines] == [size - LIMIT, 0]
        assert len(lines[0].text) == LIMIT
        assert told(lines[1:]) == ["behind"]


async def test_a_line_is_read_when_its_end_is_there(source: FilesSource, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    add(log, "one")
    place = await here(source)
    with log.open("ab") as file:
        file.write(b"half a line, ")
        file.flush()
        assert (await after(source, place))[0] == []
        file.write(b"and its end\n")
    assert [line.text for line in (await source.read(ALL, after=place)).lines] == ["half a line, and its end"]


async def test_a_last_line_without_an_end_is_read_when_nobody_writes_any_more(
    source: FilesSource, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"one\nkilled while writ")
    os.utime(log, (time.time() - 60, time.time() - 60))
    assert [line.text for line in (await source.search(ALL)).lines] == ["one", "killed while writ"]


async def test_a_link_into_what_may_not_be_read_takes_no_other_file_away(source: FilesSource, tmp_path: Path) -> None:
    add(tmp_path / "app.log", "one")
    (tmp_path / "planted.log").symlink_to("/proc/1/root/planted.log")
    assert told((await source.search(ALL)).lines) == ["one"]


async def test_any_bytes_are_text(source: FilesSource, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(bytes(range(256)) * 40 + b"\n\xff\xfe\x00end\n")
    lines = (await source.search(ALL)).lines
    assert lines[-1].text.endswith("end")
    assert all(line.text.isprintable() or "\t" in line.text for line in lines)


async def test_a_file_without_timestamps_has_the_moment_of_its_last_change(source: FilesSource, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\ntwo\n")
    changed = (tmp_path / "app.log").stat().st_mtime_ns
    assert [line.at for line in (await source.search(ALL)).lines] == [changed, changed]


async def test_the_lines_of_a_trace_have_the_moment_of_the_line_before(source: FilesSource, tmp_path: Path) -> None:
    at = time.time_ns() - 60 * SECOND
    log = tmp_path / "app.log"
    log.write_bytes(stamped(at, "ERROR: refused") + b"Traceback (most recent call last):\n  File x\n")
    add(log, "fine", at=at + SECOND)
    assert [line.at for line in (await source.search(ALL)).lines] == [at, at, at, at + SECOND]


async def test_an_hour_long_ago_in_a_large_file_is_found_without_reading_what_came_later(
    source: FilesSource, tmp_path: Path
) -> None:
    start = time.time_ns() - 100_000 * SECOND
    with (tmp_path / "app.log").open("wb") as file:
        file.writelines(stamped(start + number * SECOND, f"line {number} {'.' * 60}") for number in range(100_000))
    page = await source.search(LogQuery(start=start + 500 * SECOND, end=start + 600 * SECOND))
    while page.before and not page.lines:
        page = await source.search(LogQuery(start=start + 500 * SECOND, end=start + 600 * SECOND), before=page.before)
    assert [text.split()[1] for text in told(page.lines)] == [f"{number}" for number in range(500, 600)]
    assert page.looked_at < 10_000


# -- places that nobody gave out


@pytest.mark.parametrize("secret", ["password=hunter2-Kf9x2", "key ghp_16C7e42F292c6912E7710c838347Ae178B4a"])
async def test_a_place_within_a_line_shows_no_part_of_its_secret(
    source: FilesSource, tmp_path: Path, secret: str
) -> None:
    """A reader may send any offset, and begin or end in the midst of what is hidden."""
    log = tmp_path / "app.log"
    add(log, "first", f"login with {secret} done", "third")
    page = await source.search(ALL)
    place, (key, _) = (
        LogFilePosition.parse(page.after),
        next(iter(LogFilePosition.parse(page.lines[0].id).offsets.items())),
    )
    begin = log.read_bytes().index(secret.encode())
    for offset in range(begin, begin + len(secret)):
        forged = str(LogFilePosition(place.at, {key: offset}))
        behind, before = await source.read(ALL, after=forged), await source.search(ALL, before=forged)
        assert (behind.lines[0].text, before.lines[-1].text) == (MARK, MARK), offset
        assert told(behind.lines)[1:] == ["third"]


async def test_a_place_within_a_line_without_a_secret_shows_the_rest_of_it(source: FilesSource, tmp_path: Path) -> None:
    """So it lies where a line had no end yet when it was read."""
    log = tmp_path / "app.log"
    add(log, "first", "second")
    page = await source.search(ALL)
    place, (key, _) = (
        LogFilePosition.parse(page.after),
        next(iter(LogFilePosition.parse(page.lines[0].id).offsets.items())),
    )
    forged = str(LogFilePosition(place.at, {key: log.read_bytes().index(b"cond")}))
    assert [line.text for line in (await source.read(ALL, after=forged)).lines] == ["cond"]
