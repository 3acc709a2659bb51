"""What units say in systemd's journal arrives once: by the real journalctl where one can be made, else a stand-in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from recovery.monitor.shipping import subprocess_tail
from recovery.monitor.shipping.journal import parse_entry
from tests.support.logs.journal import Journal, remote
from tests.support.logs.shipping import SERVER, Driven, append, arrived, offsets, texts
from tests.support.stores.stores import Store
from tests.support.waiting import until


@pytest.fixture(params=["stand-in", "systemd"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    is_real = request.param == "systemd"
    if is_real and not remote():
        pytest.skip("systemd-journal-remote is not installed")
    made = Journal(tmp_path, is_real=is_real)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    made.write("long before we came", at=1_700_000_000_000_000)
    return made


@pytest.fixture
def drive(state_store: Store) -> Iterator[Callable[..., Driven]]:
    made: list[Driven] = []

    def driven(**chosen: str) -> Driven:
        made.append(Driven(state_store, **chosen))
        made[-1].turn(1)
        return made[-1]

    yield driven
    for one in made:
        one.die()


def test_an_entry_has_its_unit_level_and_time(
    journal: Journal, drive: Callable[..., Driven], state_store: Store
) -> None:
    shipping = drive(journal="worker")
    at = time.time_ns() // 1000
    journal.write("plain", at=at)
    journal.write("of another unit", "ssh.service")
    journal.write("grave", at=at + 1, PRIORITY="3")
    journal.write(b"no \xff text\nin two lines", at=at + 2)
    journal.write("Main process exited", "init.scope", at=at + 3, UNIT="worker.service", _PID="1", PRIORITY="4")
    _until(shipping, lambda: len(texts_of(state_store)) >= 5)
    own = {"server": SERVER, "source": "journal", "unit": "worker.service"}
    found = sorted(arrived(state_store), key=lambda line: line.at)
    assert [(line.text, line.labels) for line in found] == [
        (b"plain", own),
        (b"grave", {**own, "level": "error"}),
        (b"no \xff text", own),
        (b"in two lines", own),
        (b"Main process exited", {**own, "level": "warn"}),
    ]
    assert found[0].at == at * 1000


def test_units_by_pattern_include_those_that_begin_later(
    journal: Journal, drive: Callable[..., Driven], state_store: Store
) -> None:
    shipping = drive(journal="mail-*")
    journal.write("no", "other.service")
    journal.write("yes", "mail-2.service")
    _until(shipping, lambda: texts(state_store) == ["yes"])


def test_it_goes_on_behind_the_last_entry_after_a_restart(
    journal: Journal, drive: Callable[..., Driven], state_store: Store
) -> None:
    shipping = drive(journal="worker")
    journal.write("one")
    _until(shipping, lambda: texts(state_store) == ["one"])
    shipping.die()
    journal.write("two")
    again = drive(journal="worker")
    journal.write("three")
    _until(again, lambda: texts(state_store) == ["one", "two", "three"])


def test_before_the_first_entry_it_begins_where_it_once_began(
    journal: Journal, drive: Callable[..., Driven], state_store: Store
) -> None:
    shipping = drive(journal="worker")
    assert offsets(state_store)[b"journal"].startswith(b"@")
    shipping.die()
    journal.write("while nobody was there")
    _until(drive(journal="worker"), lambda: texts(state_store) == ["while nobody was there"])


def test_journalctl_is_started_again_when_it_ends(
    journal: Journal, drive: Callable[..., Driven], state_store: Store
) -> None:
    shipping = drive(journal="worker")
    journal.write("one")
    _until(shipping, lambda: texts(state_store) == ["one"])
    for child in psutil.Process().children():
        if "--follow" in child.cmdline():
            child.kill()
    journal.write("two")
    _until(shipping, lambda: texts(state_store) == ["one", "two"])


def test_a_store_that_was_away_gets_each_entry_once(
    journal: Journal, drive: Callable[..., Driven], state_store: Store
) -> None:
    shipping = drive(journal="worker")
    journal.write("one")
    _until(shipping, lambda: texts(state_store) == ["one"])
    state_store.pause()
    journal.write("two")
    shipping.turn(1)
    state_store.resume()
    journal.write("three")
    _until(shipping, lambda: texts(state_store) == ["one", "two", "three"])


def test_without_journalctl_files_are_shipped_and_it_is_said_once(
    drive: Callable[..., Driven], state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shipping = drive(journal="worker", files=str(tmp_path / "*.log"))
    append(tmp_path / "a.log", "here")
    _until(shipping, lambda: bool(shipping.said) and texts(state_store) == ["here"])
    for _ in range(100):
        shipping.turn(1)
    assert shipping.said == ["journalctl: No such file or directory"]


def test_a_line_that_never_ends_is_left_out_and_takes_no_memory() -> None:
    said: list[str] = []
    shower = subprocess_tail.SubprocessTail(said.append)
    command = ["sh", "-c", "echo a; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo b; exec sleep 60"]
    lines: list[bytes] = []
    until(lambda: lines.extend(shower.read(0.0, lambda: command)) or len(lines) == 2)
    shower.stop()
    assert lines == [b"a", b"b"]
    assert "skipped" in said[0]


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b'{"MESSAGE":null}', ()),
        (b'{"MESSAGE":[104,105,300,"x"]}', (b"hi",)),
        (b'{"MESSAGE":["one",[116,119,111]]}', (b"one", b"two")),
        (b'{"PRIORITY":"99","__REALTIME_TIMESTAMP":"soon"}', ()),
        (b'{"MESSAGE":{}}', ()),
        (b'{"MESSAGE":"\\ud800"}', (b"?",)),
    ],
)
def test_an_odd_entry_has_what_can_be_read_of_it(written: bytes, lines: tuple[bytes, ...]) -> None:
    entry = parse_entry(written)
    assert entry is not None
    assert (entry.lines, entry.level, entry.at, entry.unit) == (lines, None, None, "none")


@pytest.mark.parametrize("written", [b"", b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_entry_is_none(written: bytes) -> None:
    assert parse_entry(written) is None


def texts_of(store: Store) -> list[bytes]:
    return [line.text for line in arrived(store)]


def _until(shipping: Driven, condition: Callable[[], bool]) -> None:
    def turned() -> bool:
        shipping.turn(1)
        return condition()

    until(turned, 30)
