"""What is written to files arrives once, whatever happens to the files: renamed, copied, emptied, deleted, replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.monitor.shipping import file_tail, file_watcher
from recovery.stores.state import state_keys
from tests.support.logs.shipping import SERVER, Driven, append, arrived, offsets, texts
from tests.support.stores.stores import Store


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    append(path, "old line that was there before we came, which nobody asked for")
    return path


@pytest.fixture
def shipping(state_store: Store, log: Path) -> Iterator[Driven]:
    made = Driven(state_store, log.parent / "*.log")
    made.turn()
    yield made
    made.die()


def test_a_file_is_followed_from_its_end_at_first(shipping: Driven, state_store: Store, log: Path) -> None:
    append(log, "first", "second")
    shipping.turn()
    assert texts(state_store) == ["first", "second"]
    (labels,) = {tuple(sorted(line.labels.items())) for line in arrived(state_store)}
    assert labels == (("file", str(log)), ("server", SERVER), ("source", "file"))
    assert state_store.client.zscore(state_keys.SHIPPING, SERVER) > 1_600_000_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a link to somebody else")
def test_what_somebody_else_has_put_a_link_to_is_not_shipped(
    shipping: Driven, state_store: Store, log: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("etc") / "shadow"
    append(secret, "root:hash")
    log.with_name("planted.log").symlink_to(secret)
    os.lchown(log.with_name("planted.log"), 65534, 65534)
    append(log, "well")
    shipping.turn(2)
    append(secret, "daemon:hash")
    shipping.turn()
    assert texts(state_store) == ["well"]
    assert any("belongs to another user" in said for said in shipping.said)


def test_a_line_is_shipped_when_its_end_is_there(shipping: Driven, state_store: Store, log: Path) -> None:
    append(log, b"half of ")
    shipping.turn()
    assert texts(state_store) == []
    append(log, b"a line\r\nnext")
    shipping.turn()
    assert texts(state_store) == ["half of a line"]


def test_a_rotation_by_rename_loses_nothing(shipping: Driven, state_store: Store, log: Path) -> None:
    for number in range(4):
        append(log, f"{number} before")
        if number % 2:
            shipping.turn()
        log.rename(log.with_name(f"app.log.{number}"))
        append(log.with_name(f"app.log.{number}"), f"{number} late, to who has it open")
        append(log, f"{number} new file")
        shipping.turn()
    wanted = [f"{number} {text}" for number in range(4) for text in ("before", "late, to who has it open", "new file")]
    assert sorted(texts(state_store)) == sorted(wanted)


def test_a_file_in_which_long_nothing_happened_is_found_under_its_new_name(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    shipping.turn(2, after=file_watcher.WARM + 1)
    log.rename(log.with_name("app.log.1"))
    append(log.with_name("app.log.1"), "late, to who has it open")
    shipping.turn()
    assert texts(state_store) == ["late, to who has it open"]


def test_a_rotation_by_copy_and_truncation_loses_and_doubles_nothing(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    append(log, *(f"{number} was shipped" for number in range(10)))
    shipping.turn()
    append(log, "not shipped when it is copied")
    shutil.copy(log, log.with_name("app-1.log"))  # it fits the pattern, too
    os.truncate(log, 0)
    append(log, "after")
    shipping.turn(5)
    wanted = [*(f"{number} was shipped" for number in range(10)), "not shipped when it is copied", "after"]
    assert sorted(texts(state_store)) == sorted(wanted)


def test_a_copy_that_stands_there_before_its_original_is_emptied_is_not_shipped_again(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    append(log, *(f"{number} was shipped" for number in range(10)))
    shipping.turn()
    shutil.copy(log, log.with_name("app-1.log"))
    shipping.turn(5)
    os.truncate(log, 0)
    shipping.turn(5)
    assert len(texts(state_store)) == 10


def test_a_truncated_file_begins_anew(shipping: Driven, state_store: Store, log: Path) -> None:
    append(log, "one", "two")
    shipping.turn()
    log.write_bytes(b"three\n")
    shipping.turn()
    log.write_bytes(b"longer than all that was in it before, so that its size tells nothing, " * 5 + b"\n")
    shipping.turn()
    assert [text[:6] for text in texts(state_store)] == ["one", "two", "three", "longer"]


def test_a_deleted_file_is_read_to_its_end_and_let_go(shipping: Driven, state_store: Store, log: Path) -> None:
    append(log, "one")
    shipping.turn()
    append(log, "two", b"without an end")
    log.unlink()
    shipping.turn(1)
    shipping.turn(1, after=file_tail.QUIET + 1)
    assert texts(state_store) == ["one", "two", "without an end"]
    shipping.turn(2, after=file_watcher.GONE_FOR + 1)
    assert [key for key in offsets(state_store) if b":" in key] == []
    assert [name for name in _open_files() if str(log) in name] == []


def test_the_last_line_of_a_deleted_file_is_not_cut_while_it_is_still_written(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    with log.open("ab", buffering=0) as writer:
        log.unlink()
        shipping.turn(1)
        writer.write(b"half of ")
        shipping.turn(1, after=file_tail.QUIET + 1)
        writer.write(b"a line\n")
        shipping.turn(1)
    assert texts(state_store) == ["half of a line"]


def test_new_files_are_found_and_read_from_their_beginning(shipping: Driven, state_store: Store, log: Path) -> None:
    append(log.with_name("new.log"), "first of all")
    append(log.with_name("other.txt"), "not asked for")
    shipping.turn()
    assert texts(state_store) == ["first of all"]


def test_an_inode_that_was_given_to_another_file_is_another_file(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    append(log, "one line that is long enough to be known again by its beginning")
    shipping.turn()
    inode = log.stat().st_ino
    shipping.die()
    log.unlink()
    other = log.with_name("other.log")
    text = "another file, with other words in the place of those that were there"
    for number in range(50):  # a file system gives the number away again, sooner or later, or never
        append(other, text)
        if other.stat().st_ino == inode:
            break
        other.rename(log.with_name(f"kept-{number}"))
    else:
        append(other, text)
    again = Driven(state_store, log.parent / "*.log")
    again.turn()
    assert texts(state_store)[1:] == [text]


def test_what_happened_while_nobody_was_there_is_caught_up_with(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    append(log, "one")
    shipping.turn()
    shipping.die()
    append(log, "two")
    log.rename(log.with_name("app.log.1"))
    append(log, "three")
    log.rename(log.with_name("app.log.0"))
    append(log, "four")
    append(log.with_name("born.log"), "five")
    again = Driven(state_store, log.parent / "*.log")
    again.turn()
    append(log.with_name("app.log.1"), "six")
    again.turn()
    # What was born and renamed out of the pattern in the meantime was never seen by anybody.
    assert sorted(texts(state_store)) == sorted(["one", "two", "four", "five", "six"])


def test_a_file_that_was_emptied_while_nobody_was_there_is_read_from_its_copy_and_anew(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    append(log, *(f"{number} was shipped" for number in range(10)))
    shipping.turn()
    shipping.die()
    append(log, "not shipped yet")
    shutil.copy(log, log.with_name("app.log.1"))
    os.truncate(log, 0)
    append(log, "anew")
    again = Driven(state_store, log.parent / "*.log")
    again.turn(5)
    assert sorted(texts(state_store)[10:]) == ["anew", "not shipped yet"]


def test_any_bytes_arrive_as_they_are(shipping: Driven, state_store: Store, log: Path) -> None:
    lines = [b"\xff\xfe\x00 no text", b"", b"\x1b[31mred\x1b[0m", b"tab\tand\x00zero", b"\xc3("]
    append(log, *(line + b"\n" for line in lines), b"windows\r\n")
    shipping.turn()
    assert [line.text for line in arrived(state_store)] == [*lines, b"windows"]


def test_a_line_of_a_megabyte_is_cut_and_says_so(shipping: Driven, state_store: Store, log: Path) -> None:
    whole = b"x" * (1 << 20)
    append(log, whole[: 1 << 19])
    shipping.turn()
    append(log, whole[1 << 19 :], b"\n", "after")
    shipping.turn()
    long, after = arrived(state_store)
    assert (len(long.text) + long.left_out, after.text) == (1 << 20, b"after")
    assert len(long.text) < 64 * 1024


def test_lines_have_their_own_time_and_a_trace_that_of_its_first_line(
    shipping: Driven, state_store: Store, log: Path
) -> None:
    append(log, "2024-05-06T07:08:09.5Z boom", "  at x.js:1", '{"time":1714979290000,"msg":"json"}')
    shipping.turn()
    first, trace, json = arrived(state_store)
    assert (first.at, trace.at, json.at) == (1714979289500000000, 1714979289500000000, 1714979290000000000)


def test_a_file_that_nobody_may_read_is_said_once_and_holds_up_no_other(
    shipping: Driven, state_store: Store, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = log.with_name("closed.log")
    opens = os.open

    def refuse(path: object, *arguments: int, **more: int) -> int:
        if Path(str(path)).name == closed.name:
            raise PermissionError(13, "Permission denied")
        return opens(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)  # whoever runs the tests may be root, whom no right stops
    append(closed, "secret")
    append(log, "open")
    shipping.turn(40)
    assert texts(state_store) == ["open"]
    assert len(shipping.said) == 1
    assert "closed.log cannot be read" in shipping.said[0]
    monkeypatch.undo()
    shipping.turn(20)
    assert texts(state_store) == ["open", "secret"]


def test_thousands_of_files_are_followed_with_few_of_them_open(state_store: Store, tmp_path: Path) -> None:
    for number in range(600):
        append(tmp_path / f"{number}.log", "old")
    shipping = Driven(state_store, tmp_path / "*.log")
    shipping.turn()
    before = len(_open_files())
    for number in range(600):
        append(tmp_path / f"{number}.log", f"new {number}")
    shipping.turn(10)
    assert sorted(texts(state_store)) == sorted(f"new {number}" for number in range(600))
    assert before <= 300
    assert len(_open_files()) <= 300
    shipping.die()


def _open_files() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return [name for name in found if ".log" in name]
