"""Log files of this machine keep what every source promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from recovery.domain.logs.types import LogLevel, LogQuery
from recovery.logs.base import LogReader
from recovery.logs.files import FilesSource
from tests.contract.log_source import Bench, LogSourceContract, Raw
from tests.support.logs.log_files import spec, stamped
from tests.support.patience import patience


class FilesBench(Bench):
    """Two files under one root."""

    label = "file"
    values = ("first.log", "more/second.log")

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        (root / "more").mkdir()

    async def write(self, lines: Sequence[Raw], origin: int = 0) -> None:
        with (self._root / self.values[origin]).open("ab") as file:
            file.write(b"".join(stamped(at, text) for at, text in lines))

    async def write_trace(self, at: int, texts: Sequence[str]) -> None:
        with (self._root / self.values[0]).open("ab") as file:
            file.write(stamped(at, texts[0]) + "".join(f"{text}\n" for text in texts[1:]).encode())

    def more(self, text: str) -> None:
        """To the first file, without a moment."""
        with (self._root / self.values[0]).open("ab") as file:
            file.write(f"{text}\n".encode())

    async def forget(self) -> None:
        for value in self.values:
            (self._root / value).unlink(missing_ok=True)

    def make(self) -> LogReader:
        return FilesSource(spec(self._root))


class TestFiles(LogSourceContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = FilesBench(tmp_path)
        yield bench
        await bench.close()

    async def test_what_comes_later_of_a_trace_has_its_level_too(self, bench: FilesBench) -> None:
        """A look may end in the midst of a trace."""
        source, errors = bench.source(), LogQuery(levels=frozenset({LogLevel.ERROR}))
        place = (await source.read(LogQuery(), after="")).after
        found: list[str] = []
        for number, text in enumerate(("ERROR: failed", "  at first", "  at second"), 1):
            bench.more(text)
            async with asyncio.timeout(patience(10)):
                while len(found) < number:
                    page = await source.read(errors, after=place)
                    found, place = [*found, *(line.text for line in page.lines)], page.after
        bench.more("INFO: on")
        bench.more("  of it")
        assert found == ["ERROR: failed", "  at first", "  at second"]
        assert [line.text for line in (await source.search(errors)).lines] == found
