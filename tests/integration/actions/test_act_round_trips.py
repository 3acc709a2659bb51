"""One act waits for its Redis at most four times: at 80 ms a round trip that is a third of a second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.actions import runner
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.types import VerdictKind
from recovery.reads.stuck import observations
from recovery.reads.stuck.observations import JobObservation
from recovery.stores.registry import registry
from tests.support.acting import MAIL, Bench
from tests.support.counting import round_trips
from tests.support.stuck.samples import BULLMQ
from tests.support.stuck.watching import bull, now_ms

pytestmark = pytest.mark.django_db
MOST = 4
BULL = LibraryVersion(QueueLibrary.BULL, 4)
FLAVOURS = {"bullmq5": BULLMQ, "bull4": BULL}


def orphan(bench: Bench, flavour: LibraryVersion, id: str) -> None:
    """Proven: seen without a lock two minutes ago, and as it is now."""
    at = now_ms() - 90_000
    bench.orphan(id, processedOn=at, ats=1 if flavour is BULLMQ else None)
    signature = (at, 1 if flavour is BULLMQ else None, 0, 0)
    mark = JobObservation(VerdictKind.ORPHAN, at, at, now_ms() - 120_000, signature)
    observations.save(registry().state(), MAIL, {id: mark}, ())


def held(bench: Bench, flavour: LibraryVersion, id: str) -> None:
    bench.held(id)


def failed(bench: Bench, flavour: LibraryVersion, id: str) -> None:
    bench.failed(id)
    if flavour is not BULLMQ:
        bench.client.hdel(f"{bench.base}:{id}", "atm")


def delayed(bench: Bench, flavour: LibraryVersion, id: str) -> None:
    bench.delayed(id)


ACTS = {
    "requeue": (Action.REQUEUE, orphan, {}),
    "fail": (Action.FAIL, orphan, {}),
    "fail directly": (Action.FAIL, orphan, {"directly": True}),
    "remove an orphan": (Action.REMOVE, orphan, {}),
    "release": (Action.RELEASE, held, {"force": True}),
    "retry": (Action.RETRY, failed, {}),
    "remove": (Action.REMOVE, failed, {}),
    "promote": (Action.PROMOTE, delayed, {}),
}


@pytest.mark.parametrize("library", FLAVOURS)
@pytest.mark.parametrize("named", ACTS)
def test_an_act_on_one_job_by_its_id_is_at_most_four_round_trips(
    bench: Bench, library: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the API and the shell do it: the job as it is now, and the act."""
    act, make, options = ACTS[named]
    flavour = FLAVOURS[library]
    if flavour is BULL:
        bull(bench.client, bench.base)
    for id in ("first", "1"):
        make(bench, flavour, id)
    bench.look(flavour)
    runner.perform(bench.order(act, "first", **options))  # by now the server knows the scripts
    with round_trips(monkeypatch) as sent:
        (result,) = runner.perform(bench.order(act, "1", **options))
    assert (result.outcome, result.why) == (Outcome.DONE, result.why)
    assert len(sent) <= MOST, sent


@pytest.mark.parametrize("library", FLAVOURS)
def test_to_say_what_an_act_would_do_is_one_round_trip(
    bench: Bench, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flavour = FLAVOURS[library]
    if flavour is BULL:
        bull(bench.client, bench.base)
    orphan(bench, flavour, "1")
    bench.look(flavour)
    order = bench.order(Action.REQUEUE, "1")
    runner.preview(order)
    with round_trips(monkeypatch) as sent:
        assert runner.preview(replace(order)).can == 1
    assert len(sent) == 1, sent
