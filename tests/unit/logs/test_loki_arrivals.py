"""The order in which lines of a Loki are handed out: by their own moment, late ones in front of what was read next."""

from __future__ import annotations

from recovery.domain.logs.types import LogQuery
from recovery.logs.loki.batches import LokiBatch
from recovery.logs.loki.client import LokiEntry
from recovery.logs.loki.late_lines import (
    KEPT,
    LATE_KEPT,
    LATE_NS,
    LOOKED_AT_AGAIN,
    ArrivalsCache,
    LokiArrivals,
    place_of,
)
from recovery.logs.loki.positions import LokiPosition, behind, front

SECOND = 10**9
T = 1000 * SECOND


def entry(at: int, text: str = "", stream: str = "a") -> LokiEntry:
    return LokiEntry(at, stream, text or str(at), text, {}, None)


def told(arrivals: LokiArrivals, batch: LokiBatch, begun: LokiPosition) -> list[tuple[int, str]]:
    return [(entry.at, str(place_of((head, entry)))) for head, entry in arrivals.steps(batch, begun)]


def test_a_late_line_lies_in_front_of_all_lines_of_the_moment_that_was_read_next() -> None:
    arrivals = LokiArrivals.begun(T)
    arrivals.add(LokiBatch([entry(T + 1)], T, T + 10))
    arrivals.add(LokiBatch([entry(T + 1), entry(T + 5, "late"), entry(T + 10)], T, T + 20))
    whole = LokiBatch([entry(T + 1), entry(T + 5, "late"), entry(T + 10)], T, T + 20)
    late = f"{T + 10}~{T + 5}.a.late"
    assert told(arrivals, whole, front(T)) == [
        (T + 1, f"{T + 1}.a.{T + 1}"),
        (T + 5, late),
        (T + 10, f"{T + 10}.a.{T + 10}"),
    ]
    assert [at for at, _ in told(arrivals, whole, front(T + 10))] == [T + 5, T + 10]
    assert [at for at, _ in told(arrivals, whole, behind(entry(T + 5, "late").key, front(T + 10).read))] == [T + 10]
    assert told(arrivals, whole, behind(entry(T + 10).key)) == []


def test_what_will_be_late_is_not_told_before_that() -> None:
    arrivals = LokiArrivals.begun(T)
    arrivals.add(LokiBatch([entry(T + 1)], T, T + 10))
    came = LokiBatch([entry(T + 1), entry(T + 5, "late")], T, T + 10)  # as somebody who is behind reads it meanwhile
    assert [at for at, _ in told(arrivals, came, front(T))] == [T + 1]
    assert not arrivals.is_before(came.entries[1], T + 10)
    arrivals.add(LokiBatch(came.entries, T, T + 20))
    assert [at for at, _ in told(arrivals, came, front(T))] == [T + 1]
    assert not arrivals.is_before(came.entries[1], T + 10)  # whoever searched before that look is told of it
    assert arrivals.is_before(came.entries[1], T + 20)


def test_what_is_remembered_is_bounded() -> None:
    arrivals = LokiArrivals.begun(T)
    arrivals.add(LokiBatch([entry(T + number) for number in range(5 * LOOKED_AT_AGAIN)], T, T + SECOND))
    assert arrivals.looked_at_again == LOOKED_AT_AGAIN
    assert arrivals.since == T + 4 * LOOKED_AT_AGAIN
    arrivals.add(LokiBatch([], T + SECOND, T + 2 * LATE_NS))
    assert (arrivals.looked_at_again, arrivals.since) == (0, T + LATE_NS)
    late = [entry(T + LATE_NS + number, "x") for number in range(2 * LATE_KEPT)]
    arrivals.add(LokiBatch(late, arrivals.since, arrivals.head + 1))
    assert len(list(arrivals.steps(LokiBatch([], T, arrivals.head), front(T)))) == LATE_KEPT
    arrivals.add(
        LokiBatch([LokiEntry(arrivals.head, "a", "b", "x" * 2**21, {}, None)], arrivals.head, arrivals.head + 1)
    )
    assert arrivals.last is None
    known = ArrivalsCache()
    for number in range(2 * KEPT):
        known.keep(LogQuery(start=number), arrivals)
    assert [known.get(LogQuery(start=number)) is None for number in (0, KEPT, 2 * KEPT - 1)] == [True, False, False]
