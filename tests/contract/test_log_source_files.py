"""Log files of this machine keep what every source promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from recovery.logs.base import Source
from recovery.logs.files import FilesSource
from tests.contract.log_source import Bench, LogSourceContract, Raw
from tests.log_files import spec, stamped


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

    async def forget(self) -> None:
        for value in self.values:
            (self._root / value).unlink(missing_ok=True)

    def make(self) -> Source:
        return FilesSource(spec(self._root))


class TestFiles(LogSourceContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = FilesBench(tmp_path)
        yield bench
        await bench.close()
