"""Many who read one Loki along, while lines come in any order: each sees each line once, all in the same order."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LOKI, LogSource
from recovery.domain.logs.types import LogQuery
from recovery.logs.loki import LokiSource
from recovery.logs.loki import source as module
from recovery.logs.loki.positions import LokiPosition, before, behind, front
from tests.support.logs.loki_double import LokiDouble

ALL = LogQuery(labels=(("app", frozenset(("mail",))),))
STREAMS = ({"app": "mail"}, {"app": "mail", "pod": "1"}, {"app": "mail", "pod": "2"})


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[LokiDouble]:
    monkeypatch.setattr(module, "_FRESH_NS", 0)
    with LokiDouble() as running:
        yield running


@dataclass(slots=True)
class Reader:
    place: str
    shown: list[str] = field(default_factory=list)  # by its search
    told: list[str] = field(default_factory=list)

    async def read(self, source: LokiSource, limit: int) -> bool:
        page = await source.read(ALL, after=self.place, limit=limit)
        assert page.gap is None
        assert len(page.lines) <= limit
        self.told += [line.text for line in page.lines]
        self.place = page.lines[-1].id if page.lines and limit % 2 and not page.is_end else page.after
        return page.is_end


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))])
async def test_each_reader_sees_each_line_once_however_late_it_comes(double: LokiDouble, seed: int) -> None:
    chance = random.Random(seed)
    source = LokiSource(LogSource("loki", "Loki", LOKI, HttpEndpoint(double.url), timeout=30), settled=0)
    start = time.time_ns()
    readers = [Reader((await source.read(ALL, after="")).after)]
    start = max(start, LokiPosition.parse(readers[0].place).read.at)  # type: ignore[union-attr]
    written: list[str] = []
    for _ in range(50):
        await readers[0].read(source, 1000)  # one who keeps up, as a feed does
        for _ in range(chance.randrange(5)):
            text = f"line {len(written)}"
            at = chance.choice((time.time_ns(), chance.randint(start, time.time_ns()), start + chance.randrange(3)))
            double.push(chance.choice(STREAMS), (at, text))
            written.append(text)
        if chance.random() < 0.1:
            page = await source.search(LogQuery(ALL.labels, start=start))
            readers.append(Reader(page.after, [line.text for line in page.lines]))
            assert page.is_end
        await chance.choice(readers).read(source, chance.choice((1, 2, 3, 1000)))
    for reader in readers:
        while not await reader.read(source, chance.choice((1, 4, 1000))):
            pass
        assert sorted((*reader.shown, *reader.told)) == sorted(written)
        assert reader.told == [text for text in readers[0].told if text in reader.told]
    await source.close()


def test_a_place_means_the_same_when_it_was_written_down() -> None:
    key = (1763500000000000000, "0123456789ab", "ba9876543210")
    late = behind(key, front(key[0] + 5).read)
    for place in (front(7), behind(key), before(key), late):
        assert LokiPosition.parse(str(place)) == place
    assert (late.is_late, behind(key).is_late) == (True, False)
    for text in ("", "~", "1~", "~1", "1.2.3", f"{behind(key)}~~1", " 1", "1" * 20, "1~2~3", f"{behind(key)}x"):
        assert LokiPosition.parse(text) is None
