"""What the monitors ship holds to the contract of a source of log lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from recovery.logs.base import LogReader
from tests.contract.log_source import Bench, LogSourceContract, Raw
from tests.support.logs.log_writer import LogWriter
from tests.support.logs.shipped import Sources, settle, sources_of
from tests.support.stores.stores import Store


class StreamBench(Bench):
    """Both origins are containers of servers of their own."""

    label = "container"
    values = ("mail", "report")

    def __init__(self, store: Store, sources: Sources) -> None:
        super().__init__()
        self._sources = sources
        self._writers = [LogWriter(store, "eu-1"), LogWriter(store, "eu-2")]

    async def write(self, lines: Sequence[Raw], origin: int = 0) -> None:
        writer = self._writers[origin]
        for start in range(0, len(lines), 30):
            some = lines[start : start + 30]
            writer.ship([(at, text.encode()) for at, text in some], container=self.values[origin])
        settle(writer.store)

    async def forget(self) -> None:
        for writer in self._writers:
            writer.forget()

    def make(self) -> LogReader:
        return self._sources.new()


class TestStream(LogSourceContract):
    @pytest.fixture
    async def bench(self, state_store: Store) -> AsyncIterator[StreamBench]:
        async with sources_of(state_store) as sources:
            yield StreamBench(state_store, sources)
