"""Which files of this machine are read: those under the roots, and nothing that leads elsewhere."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recovery.errors import AccessDenied
from recovery.logs.files import FilesSource
from recovery.logs.files.safe_open import NotAPlainFile, open_under
from tests.support.logs.log_files import ALL, add, after, here, newest, spec, told
from tests.support.patience import promptly

NOBODY = 65534


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[FilesSource]:
    made = FilesSource(spec(tmp_path, server="eu-1"))
    yield made
    await made.close()


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


async def test_only_files_whose_names_fit_are_read_and_hidden_and_packed_ones_are_not(
    source: FilesSource, tmp_path: Path
) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("app.log", "deep/er/two.log", "notes.txt", ".hidden.log", "app.log.2.gz"):
        add(tmp_path / name, name)
    assert sorted(await newest(source)) == ["app.log", "deep/er/two.log"]
    page = await source.search(ALL)
    assert {line.labels["file"] for line in page.lines} == {"app.log", "deep/er/two.log"}
    assert {line.labels["server"] for line in page.lines} == {"eu-1"}


async def test_a_link_that_leads_out_of_the_roots_is_refused_and_said(
    source: FilesSource, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    add(outside / "secret.log", "never shown")
    add(tmp_path / "app.log", "shown")
    (tmp_path / "leak.log").symlink_to(outside / "secret.log")
    (tmp_path / "dots.log").symlink_to(f"../{outside.name}/secret.log")
    (tmp_path / "folder").symlink_to(outside)
    page = await source.search(ALL)
    assert told(page.lines) == ["shown"]
    assert page.gap
    assert "leak.log: is a link to a folder outside" in page.gap.reason
    assert "dots.log: is a link to a folder outside" in page.gap.reason


async def test_a_link_within_the_roots_shows_its_file_once(source: FilesSource, tmp_path: Path) -> None:
    add(tmp_path / "app-7.log", "one")
    (tmp_path / "current.log").symlink_to("app-7.log")
    page = await source.search(ALL)
    assert told(page.lines) == ["one"]
    assert page.lines[0].labels["file"] == "app-7.log"
    assert page.gap is None


def test_what_becomes_a_link_after_it_was_found_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    add(tmp_path / "outside" / "app.log", "never shown")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "app.log").symlink_to(tmp_path / "outside" / "app.log")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        open_under(str(root), str(root / "folder" / "app.log"))
    with pytest.raises(NotAPlainFile):
        open_under(str(root), str(root / "app.log"))


async def test_a_pipe_is_neither_read_nor_waited_for(source: FilesSource, tmp_path: Path) -> None:
    add(tmp_path / "app.log", "one")
    os.mkfifo(tmp_path / "pipe.log")
    with promptly(2.0):
        page = await source.search(ALL)
    assert told(page.lines) == ["one"]
    assert page.gap
    assert "pipe.log: is not a file" in page.gap.reason
    with pytest.raises(NotAPlainFile):
        open_under(str(tmp_path), str(tmp_path / "pipe.log"))


async def test_a_file_that_cannot_be_read_is_said_and_others_are_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        add(root / "app.log", "one")
        add(root / "closed.log", "two")
        (root / "closed.log").chmod(0)
        source = FilesSource(spec(root))
        with as_nobody():
            page = await source.search(ALL)
            assert (await after(source, await here(source)))[2] == [], "a search told it"
        assert told(page.lines) == ["one"]
        assert page.gap
        assert "closed.log: cannot be read: Permission denied. Give the user of the web process" in page.gap.reason
        (root / "app.log").unlink()
        with as_nobody(), pytest.raises(AccessDenied) as refused:
            await source.search(ALL)
        assert "Give the user of the web process read access" in refused.value.advice
        await source.close()


async def test_a_file_that_becomes_unreadable_is_said_to_who_reads_on() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        add(root / "app.log", "one")
        source = FilesSource(spec(root))
        with as_nobody():
            _, place, _ = await after(source, await here(source))
        add(root / "closed.log", "two")
        (root / "closed.log").chmod(0)
        with as_nobody():
            gaps = (await after(source, place))[2]
        assert "closed.log: cannot be read" in gaps[0].reason
        await source.close()


async def test_a_root_that_is_not_there_is_said(tmp_path: Path) -> None:
    source = FilesSource(spec(tmp_path / "nowhere"))
    with pytest.raises(AccessDenied, match="the folder does not exist") as refused:
        await source.labels(0, time.time_ns())
    assert "roots" in refused.value.advice
    (tmp_path / "nowhere").mkdir()
    add(tmp_path / "nowhere" / "app.log", "there")
    assert await newest(source) == ["there"]
    await source.close()
