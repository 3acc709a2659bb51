"""The contract of sources, kept with a Loki as its documentation describes it. …_real.py: with a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LOKI, LogSource
from recovery.logs.loki import LokiSource
from tests.contract.log_source import Bench, LogSourceContract, Raw
from tests.support.logs.loki_double import LokiDouble


class DoubleBench(Bench):
    label = "container"
    values = ("mail-1", "mail-2")
    keeps_traces = False

    def __init__(self, double: LokiDouble) -> None:
        super().__init__()
        self._double = double

    async def write(self, lines: Sequence[Raw], origin: int = 0) -> None:
        self._double.push({"app": "mail", self.label: self.values[origin]}, *lines)

    async def forget(self) -> None:
        self._double.forget()

    def make(self) -> LokiSource:
        return LokiSource(LogSource("loki", "Loki", LOKI, HttpEndpoint(self._double.url), timeout=30), settled=0)


@pytest.fixture
def double() -> Iterator[LokiDouble]:
    with LokiDouble() as running:
        yield running


class TestLoki(LogSourceContract):
    @pytest.fixture
    async def bench(self, double: LokiDouble) -> AsyncIterator[Bench]:
        bench = DoubleBench(double)
        yield bench
        await bench.close()
