"""Parts of shipping by themselves: patterns, lines of a growing file, how much is kept, when to try again."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.logs.line_batches import CutLine
from recovery.monitor.shipping import file_patterns, line_reader, shipper
from recovery.monitor.shipping.line_reader import LineReader
from recovery.monitor.shipping.positions import FileFingerprint, ShippedFilePosition
from recovery.monitor.shipping.shipper import ShippingBackoff
from recovery.monitor.shipping.stream_writer import HEAPS, StreamRetention

KEEP = 1 << 20


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.log", "b.txt", ".hidden.log", "x/c.log", "x/y/d.log", "x/y/d.log.gz", "x/.git/e.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "x" / "loop").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*.log", {"a.log"}),
        ("a.log", {"a.log"}),
        ("?.[lt]*", {"a.log", "b.txt"}),
        (".*.log", {".hidden.log"}),
        ("*/*.log", {"x/c.log"}),
        ("x/*/d.log*", {"x/y/d.log", "x/y/d.log.gz"}),
        ("**/*.log", {"a.log", "x/c.log", "x/y/d.log"}),
        ("x/**", {"x/c.log", "x/y", "x/y/d.log", "x/y/d.log.gz", "x/loop"}),
        ("none/*.log", set()),
        ("a.log/*.log", set()),
    ],
)
def test_a_pattern_finds_what_fits_it(tree: Path, glob: str, names: set[str]) -> None:
    found = {str(Path(path).relative_to(tree)) for path in file_patterns.matching_paths(f"{tree}/{glob}")}
    assert found == names


@given(
    lines=st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=30),
    rest=st.binary(max_size=20).filter(lambda rest: b"\n" not in rest),
    steps=st.lists(st.integers(min_value=1, max_value=60), max_size=40),
    limit=st.integers(min_value=1, max_value=16),
)
def test_a_file_that_grows_in_any_steps_gives_its_lines_each_once(
    lines: list[bytes], rest: bytes, steps: list[int], limit: int
) -> None:
    whole = b"".join(line + b"\n" for line in lines) + rest
    one, found = LineReader(limit=limit), []
    with tempfile.TemporaryFile(buffering=0) as out, pytest.MonkeyPatch.context() as patch:
        file = out.fileno()
        patch.setattr(line_reader, "CHUNK", 16)
        for step in [*steps, len(whole)]:
            piece, whole = whole[:step], whole[step:]
            out.write(piece)
            found += one.read(file)
            while one.is_behind:
                found += one.read(file)
        found += one.read(file, is_over=True)
        while one.is_behind:
            found += one.read(file, is_over=True)
    wanted = [*lines, *([rest] if rest else [])]
    assert [bytes(line) for line in found] == [line[:limit] for line in wanted]
    assert [line.left_out if isinstance(line, CutLine) else 0 for line in found] == [
        max(0, len(line) - limit) for line in wanted
    ]


@given(path=st.text(st.characters()), numbers=st.lists(st.integers(min_value=0), min_size=6, max_size=6))
def test_a_place_survives_being_written(path: str, numbers: list[int]) -> None:
    offset, at, *prints = numbers
    place = ShippedFilePosition(path, offset, at, FileFingerprint(*prints), back=None if offset % 2 else offset // 2)
    assert ShippedFilePosition.decode(place.encode()) == place


@pytest.mark.parametrize("written", ["", "[]", "{}", '["a",-1,0,0,0,0,0,null]', "[1,2,3,4,5,6,7,8]", "[[[["])
def test_what_is_no_place_is_none(written: str) -> None:
    assert ShippedFilePosition.decode(written) is None


@given(sizes=st.lists(st.integers(min_value=1000, max_value=KEEP // 8), min_size=1, max_size=150))
def test_what_is_kept_is_bounded_and_nothing_is_dropped_before(sizes: list[int]) -> None:
    stock, kept = StreamRetention(KEEP, 1 << 60), []
    sizes = [*sizes, *[KEEP // 10] * 15]
    for number, size in enumerate(sizes, 1):
        stock.add(size)
        kept.append((number, size))
        first, _ = map(int, stock.first(0).split("-"))
        kept = [one for one in kept if one[0] >= first]
        stock.wrote(b"%d-0" % number)
        assert sum(size for _, size in kept) <= KEEP + KEEP // HEAPS + KEEP // 8
        if number % 7 == 0:  # as after a restart
            stock = StreamRetention(KEEP, 1 << 60, stock.encode().encode())
    assert sum(size for _, size in kept) >= min(sum(sizes), KEEP - 3 * KEEP // 8)


def test_the_books_are_closed_on_what_is_too_old() -> None:
    stock = StreamRetention(KEEP, 1000)
    for moment in range(10):
        stock.add(KEEP // HEAPS)
        stock.wrote(b"%d-5" % (moment * 1000))
    assert stock.first(5000) == "4000-0"
    assert stock.first(20_000) == "19000-0"
    assert stock.encode() == f"[{KEEP // HEAPS},[]]"


@pytest.mark.parametrize("written", [b"", b"x", b"[]", b'{"a":1}', b"[1,[[1,2]]]"])
def test_books_that_nobody_can_read_are_begun_anew(written: bytes) -> None:
    assert StreamRetention(KEEP, 1000, written).encode() == "[0,[]]"


def test_attempts_grow_rarer_and_are_said_once() -> None:
    tries, now, said = ShippingBackoff(), 0.0, 0
    pauses = []
    for _ in range(12):
        said += tries.failed("away", now)
        pauses.append(tries.try_at - now)
        now = tries.try_at
    assert said == 1
    assert max(pauses) <= shipper.LONGEST_PAUSE
    assert min(pauses[6:]) >= shipper.LONGEST_PAUSE / 2
    assert pauses[0] <= shipper.SHORTEST_PAUSE
    assert tries.succeeded()
    assert not tries.succeeded()
