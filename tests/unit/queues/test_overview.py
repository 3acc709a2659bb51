from __future__ import annotations

import pytest

from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample, Snapshot
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import MINUTE
from recovery.reads.queues.overview import CHUNK, OverviewColumn, OverviewQuery, group_of, view
from tests.support.stuck.samples import NOW, abandoned, counts, queue, rates, snapshot


def names(found: Snapshot, **asked: str) -> list[str]:
    return [row.sample.ref.base for row in view(found, OverviewQuery.parse(asked)).rows]


WORLD = snapshot(
    queue("bull:mail", counts=counts(waiting=5, failed=2)),
    queue("bull:video", counts=counts(active=1), workers=None),
    abandoned("bull:jobs"),
    queue("app:eu:mail", deployment="eu", is_paused=True, flavour=LibraryVersion(QueueLibrary.BULL, 4)),
)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("mail", ["app:eu:mail", "bull:mail"]),
        ("MAIL bull:", ["bull:mail"]),
        ("-mail", ["bull:jobs", "bull:video"]),
        ("state:failed", ["bull:mail"]),
        ("state:paused", ["app:eu:mail"]),
        ("state:waiting", ["bull:mail"]),
        ("workers:none", ["bull:jobs"]),
        ("workers:unknown", ["bull:video"]),
        ("workers:some", ["app:eu:mail", "bull:mail"]),
        ("deployment:eu", ["app:eu:mail"]),
        ("flavour:bull", ["app:eu:mail"]),
        ("flavour:bullmq-5 mail", ["bull:mail"]),
        ("-flavour:bullmq", ["app:eu:mail"]),
        ("bull:mail", ["bull:mail"]),
        ("-", []),
    ],
)
def test_the_filter_finds_what_its_words_say(written: str, found: list[str]) -> None:
    assert names(WORLD, q=written, sort="name") == found


def test_a_filter_that_is_not_understood_says_so_and_finds_nothing() -> None:
    found = view(WORLD, OverviewQuery(filter="state:stuk"))
    assert found.rows == ()
    assert "state:stuk" in found.problem
    assert "failed" in found.problem


def test_the_worst_stands_first() -> None:
    world = snapshot(
        queue("bull:a"),
        queue("bull:full", counts=counts(waiting=900)),
        queue("bull:late", counts=counts(waiting=1), oldest_waiting_at=NOW - 60 * MINUTE),
        queue("bull:broken", error="WRONGTYPE"),
        abandoned(),
    )
    assert names(world) == ["bull:jobs", "bull:broken", "bull:late", "bull:a", "bull:full"]


def test_numbers_move_no_row() -> None:
    before = snapshot(queue("bull:a", counts=counts(waiting=17)), queue("bull:b", counts=counts(failed=19)))
    after = snapshot(queue("bull:a", counts=counts(failed=900)), queue("bull:b", counts=counts(waiting=0)))
    assert names(before) == names(after) == ["bull:a", "bull:b"]


@pytest.mark.parametrize("column", list(OverviewColumn))
@pytest.mark.parametrize("sign", ["", "-"])
def test_every_column_sorts_and_unknown_stands_last(column: OverviewColumn, sign: str) -> None:
    unknown = QueueSample(queue("bull:unknown").ref)
    known = queue(
        "bull:known", counts=counts(waiting=1, active=1, delayed=1, failed=1), oldest_waiting_at=NOW, rates=rates(1, 1)
    )
    found = names(snapshot(unknown, known), sort=f"{sign}{column}")
    assert sorted(found) == ["bull:known", "bull:unknown"]
    if column not in (OverviewColumn.NAME, OverviewColumn.WORST):
        assert found[-1] == "bull:unknown"


def test_the_oldest_wait_sorts_by_age() -> None:
    world = snapshot(queue("bull:young", oldest_waiting_at=NOW - 1), queue("bull:old", oldest_waiting_at=NOW - MINUTE))
    assert names(world, sort="-oldest") == ["bull:old", "bull:young"]


def test_a_second_click_turns_the_order() -> None:
    asked = OverviewQuery.parse({"sort": "-failed", "q": "mail"})
    assert asked.by(OverviewColumn.FAILED).url() == "?q=mail&sort=failed"
    assert asked.by(OverviewColumn.NAME).url() == "?q=mail&sort=name"


@pytest.mark.parametrize(
    "wrong", [{"sort": "colour"}, {"group": "mail"}, {"from": "-1"}, {"from": "9e9"}, {"from": "³"}]
)
def test_an_address_with_nonsense_opens_the_plain_page(wrong: dict[str, str]) -> None:
    assert OverviewQuery.parse(wrong) == OverviewQuery()


def test_groups_stand_together_where_their_worst_stands() -> None:
    world = snapshot(queue("app:eu:a"), queue("app:us:a"), queue("app:eu:b"), abandoned("app:us:jobs"))
    assert names(world, group=":") == ["app:us:jobs", "app:us:a", "app:eu:a", "app:eu:b"]


@pytest.mark.parametrize(("label", "group"), [("bull:mail:eu", "bull:mail"), ("mail", "")])
def test_a_group_is_what_stands_before_the_last_part(label: str, group: str) -> None:
    assert group_of(label, ":") == group


def test_chunks_hold_every_row_once() -> None:
    world = snapshot(*(queue(f"bull:q{index:04d}") for index in range(2 * CHUNK + 30)))
    seen: list[str] = []
    start: int | None = 0
    while start is not None:
        asked = OverviewQuery(start=start)
        found = view(world, asked)
        seen += [row.sample.ref.base for row in found.rows]
        start = found.following(asked)
    assert seen == sorted(sample.ref.base for sample in world.queues)


def test_totals_sum_what_is_known_and_count_what_is_not() -> None:
    totals = view(
        snapshot(queue(counts=counts(waiting=5, prioritized=2)), queue("bull:x", error="no")), OverviewQuery()
    ).totals
    assert (totals.waiting, totals.workers, totals.unknown) == (7, 2, 1)


def test_a_total_of_nothing_known_is_unknown() -> None:
    assert view(snapshot(queue(error="no")), OverviewQuery()).totals.waiting is None


def test_a_silent_deployment_greys_its_own_rows_only() -> None:
    world = snapshot(queue("bull:a"), queue("bull:b", deployment="eu"), silent="eu")
    reasons = {row.sample.ref.base: row.reason for row in view(world, OverviewQuery()).rows}
    assert reasons == {"bull:a": "", "bull:b": "connection refused"}


def test_a_chosen_deployment_is_all_there_is() -> None:
    found = view(WORLD, OverviewQuery(deployment="eu"))
    assert ([row.sample.ref.base for row in found.rows], found.total, found.totals.paused) == (["app:eu:mail"], 1, 1)
    assert OverviewQuery(deployment="eu").by(OverviewColumn.NAME).url() == "?deployment=eu&sort=name"


# -- what is stuck


def inbox(*tallies: StuckTally, checked_at: int = NOW) -> StuckInbox:
    return StuckInbox(checked_at, queues=tallies)


JOBS, MAIL = abandoned("bull:jobs", 12), queue("bull:mail")


def test_what_is_stuck_is_counted_from_the_last_look() -> None:
    looked = inbox(StuckTally(JOBS.ref, {VerdictKind.ABANDONED: 12, VerdictKind.RUNNING: 3, VerdictKind.UNLOCKED: 1}))
    found = view(snapshot(JOBS, MAIL), OverviewQuery.parse({"sort": "-stuck"}), looked)
    assert [(row.sample.ref.base, row.stuck) for row in found.rows] == [("bull:jobs", 13), ("bull:mail", 0)]
    assert found.totals.stuck == 13


@pytest.mark.parametrize(
    "looked",
    [
        None,
        inbox(checked_at=NOW - 30_001),
        inbox(),
        inbox(StuckTally(JOBS.ref, {VerdictKind.ABANDONED: 12}, error="WRONGTYPE")),
    ],
    ids=["nobody looked", "long ago", "not at this one", "it could not be read"],
)
def test_what_nobody_looked_at_is_unknown_and_no_zero(looked: StuckInbox | None) -> None:
    found = view(snapshot(JOBS), OverviewQuery(), looked)
    assert found.rows[0].stuck is None
    assert found.totals.stuck is None
