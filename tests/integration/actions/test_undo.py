"""What was taken away comes back: within a day, within a budget, and as an act of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery.actions import runner, undo_store
from recovery.domain.actions.types import Action, Outcome, UndoCopy
from recovery.domain.identifiers import decode_name
from recovery.domain.jobs import JobState
from recovery.errors import BadOrder, Forbidden, Missing
from recovery.reads.audit import queries as book
from recovery.stores.state import state_keys
from tests.support.acting import ADMIN, MAIL, OPERATOR, VIEWER, Bench
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db


def remove(bench: Bench, *ids: str) -> int:
    """The number of the intent."""
    results = runner.perform(bench.order(Action.REMOVE, *ids))
    assert [result.outcome for result in results] == [Outcome.DONE] * len(ids)
    assert all(result.can_restore for result in results)
    return (results[0].audit or 0) - 1


def queue(bench: Bench) -> dict[bytes, object]:
    """All but the events, which tell of both."""
    return {key: value for key, value in bench.dump().items() if not key.endswith(b":events")}


def test_a_removed_job_comes_back_to_its_place(bench: Bench) -> None:
    bench.failed("1", "2", "3")
    bench.client.rpush("bull:mail:2:logs", "a line")
    before = queue(bench)
    number = remove(bench, "2")
    assert bench.ids(JobState.FAILED) == ["1", "3"]
    assert undo_store.counts([number, 99]) == {number: 1}
    (result,) = runner.restore(number, OPERATOR, "the wrong one")
    assert (result.job, result.outcome) == ("2", Outcome.DONE)
    assert queue(bench) == before
    newest, _ = book.entries().lines
    assert (newest.act, newest.actor, newest.tally) == ("restore", "otto", {"done": 1})
    assert book.entry(newest.number).entry.body["restores"] == number


def test_neighbours_that_went_together_come_back_in_their_order(bench: Bench) -> None:
    bench.waiting("1", "2", "3", "4")
    before = queue(bench)
    number = remove(bench, "2", "3")
    runner.restore(number, ADMIN, "the wrong ones")
    assert bench.ids(JobState.WAITING) == ["4", "3", "2", "1"]
    assert queue(bench)[b"bull:mail:wait"] == before[b"bull:mail:wait"]


def test_it_comes_back_once(bench: Bench) -> None:
    bench.failed("1")
    number = remove(bench, "1")
    runner.restore(number, ADMIN, "the wrong one")
    with pytest.raises(Missing, match="no undo copy any more"):
        runner.restore(number, ADMIN, "again")


def test_one_of_several_can_be_restored(bench: Bench) -> None:
    bench.failed("1", "2")
    number = remove(bench, "1", "2")
    runner.restore(number, OPERATOR, "this one", ("2",))
    assert bench.ids(JobState.FAILED) == ["2"]
    assert undo_store.counts([number]) == {number: 1}


def test_an_id_that_is_in_use_again_is_refused(bench: Bench) -> None:
    bench.failed("1")
    number = remove(bench, "1")
    bench.waiting("1")
    (result,) = runner.restore(number, ADMIN, "the wrong one")
    assert result.outcome is Outcome.REFUSED
    assert undo_store.counts([number]) == {number: 1}


def test_who_may_not_act_may_not_restore(bench: Bench) -> None:
    bench.failed("1", "2")
    number = remove(bench, "1", "2")
    with pytest.raises(Forbidden):
        runner.restore(number, VIEWER, "please", ("1",))
    with pytest.raises(Forbidden, match="many jobs at once"):
        runner.restore(number, OPERATOR, "please")
    with pytest.raises(BadOrder):
        runner.restore(number, ADMIN, " ")


def test_an_entry_that_took_nothing_away_restores_nothing(bench: Bench) -> None:
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    with pytest.raises(Missing):
        runner.restore(1, ADMIN, "undo it")


def test_a_drain_is_undone(bench: Bench) -> None:
    bench.waiting("1", "2", "3")
    before = queue(bench)
    (result,) = runner.perform(bench.order(Action.DRAIN))
    assert (result.outcome, result.can_restore, bench.ids(JobState.WAITING)) == (Outcome.DONE, True, [])
    assert [line.number for line in book.actions_on_job(bench.ref.job("2"))] == [1]
    runner.restore(1, ADMIN, "the wrong queue")
    assert queue(bench)[b"bull:mail:wait"] == before[b"bull:mail:wait"]


def test_a_clean_takes_what_is_old_enough(bench: Bench) -> None:
    bench.failed("old", at=now_ms() - 3_600_000)
    bench.failed("new")
    order = bench.order(Action.CLEAN, state=JobState.FAILED, older_than=600_000)
    (result,) = runner.perform(order)
    assert (result.outcome, bench.ids(JobState.FAILED)) == (Outcome.DONE, ["new"])
    assert [fate.id for fate in book.entry(1).jobs] == ["", "old"]
    (again,) = runner.perform(order)
    assert again.outcome is Outcome.UNCHANGED


def test_a_clean_of_so_many_takes_no_more(bench: Bench) -> None:
    bench.failed(*(str(number) for number in range(7)))
    runner.perform(bench.order(Action.CLEAN, state=JobState.FAILED, limit=3))
    assert len(bench.ids(JobState.FAILED)) == 4


def test_without_a_state_store_it_is_said_that_there_is_no_way_back(bench: Bench) -> None:
    bench.failed("1")
    order = bench.order(Action.REMOVE, "1")
    bench.state.stop()
    try:
        preview = runner.preview(order)
        assert preview.needs_name
        assert "cannot be undone" in preview.risk
        (result,) = runner.perform(order)
    finally:
        bench.state.start()
    assert (result.outcome, result.can_restore) == (Outcome.DONE, False)
    assert "cannot be restored" in result.why
    assert "state store" in book.entry(1).undo


def job(id: str, size: int = 1000) -> UndoCopy:
    return UndoCopy(id, JobState.FAILED, (("", b"\x00" * size),), "1.5", "", size)


def test_what_is_kept_reads_as_it_was_written() -> None:
    odd = UndoCopy(
        decode_name(b"\xff:1"), JobState.WAITING, (("", b"\xfe\x00"), (":logs", b"")), "", decode_name(b"\xfd"), 2
    )
    packed = undo_store.pack(9, MAIL, odd, 7)
    assert undo_store.unpack(9, MAIL, odd.id, packed, undo_store.digest(packed)) == (7, odd)


def test_the_oldest_make_room_when_the_budget_is_spent(bench: Bench) -> None:
    now = now_ms()
    for number in (1, 2, 3):
        holding = undo_store.save_copies(number, MAIL, [job("1")], now + number, budget=3500)
    assert holding.forgotten == (1,)
    assert undo_store.counts([1, 2, 3]) == {2: 1, 3: 1}


def test_more_than_the_budget_at_once_is_said(bench: Bench) -> None:
    holding = undo_store.save_copies(1, MAIL, [job("1"), job("2"), job("3")], now_ms(), budget=3 * 1024)
    assert holding.ids == {"1", "2"}
    assert "cannot be kept" in holding.trouble


def test_nothing_is_kept_for_longer_than_a_day(bench: Bench) -> None:
    undo_store.save_copies(1, MAIL, [job("1")], now_ms())
    ttls: Callable[[bytes], int] = bench.state.client.pttl  # type: ignore[assignment]
    assert all(
        0 < ttls(key) <= undo_store.LIFE_MS
        for key in (state_keys.undo_copies(1), state_keys.UNDO_ENTRIES, state_keys.UNDO_SIZES)
    )
