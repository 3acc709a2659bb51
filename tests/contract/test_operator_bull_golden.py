"""What Bull 3.29 and 4.16 did to their keys, done by us: the keys end the same, and the same is published."""

from __future__ import annotations

import pytest

from recovery.backends.base import Target
from recovery.backends.bull.operator import BullOperator
from recovery.domain.actions.types import Action, ActionOptions, Outcome
from recovery.domain.jobs import JobState
from tests.contract import golden
from tests.contract.golden import Case, Rule
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

NOW = 1_795_000_200_000
OPERATOR = BullOperator()

NEWER_STALL = Rule(
    "a failure is finished",
    "Bull before 4.12.6 writes no finishedOn when a job stalls too often",
    lambda key, ours, theirs: (
        key == f"{golden.BASE}:1"
        and {**(ours or {"v": {}})["v"], "finishedOn": ""} == {**theirs["v"], "finishedOn": ""}
    ),
)
HEEDS_REMOVAL = Rule(
    "removeOnFail is heeded",
    "Bull before 4.12.6 does not, and leaves such jobs in `failed` for ever",
    lambda key, ours, theirs: key in (f"{golden.BASE}:1", f"{golden.BASE}:failed") and ours is None,
)
STAYS_PAUSED = Rule(
    "a retried job of a paused queue waits in `paused`",
    "Bull before 4.10.4 pushes it to `wait`, where workers find it in spite of the pause",
    lambda key, ours, theirs: key in (f"{golden.BASE}:wait", f"{golden.BASE}:paused"),
)
KEEPS_PRIORITY = Rule(
    "a retried job keeps its priority",
    "the library pushes it behind all others and leaves it out of `priority`",
    lambda key, ours, theirs: key in (f"{golden.BASE}:wait", f"{golden.BASE}:priority"),
)
RULES = {
    ("bull3", "stalled_overlimit_plain"): (NEWER_STALL,),
    ("bull3", "stalled_overlimit_removeOnFail_1"): (NEWER_STALL,),
    ("bull3", "stalled_overlimit_removeOnFail_age"): (NEWER_STALL,),
    ("bull3", "stalled_overlimit_removeOnFail_true"): (HEEDS_REMOVAL,),
    ("bull3", "retry_failed_paused"): (STAYS_PAUSED,),
    ("bull3", "promote_paused"): (STAYS_PAUSED,),
    ("bull3", "retry_failed_prio"): (KEEPS_PRIORITY,),
    ("bull4", "retry_failed_prio"): (KEEPS_PRIORITY,),
}


def _cases(*prefixes: str) -> list[Case]:
    return [case for file in ("bull3", "bull4") for case in golden.cases(file, *prefixes) if case.returned != "n/a"]


def _name(case: Case) -> str:
    return f"{case.file}-{case.name}"


ACTS = {
    "stalled_requeue": (Action.REQUEUE, "stalled", ActionOptions(is_late=True)),
    "stalled_overlimit": (Action.FAIL, "stalled", ActionOptions(is_late=True)),
    "retry_failed": (Action.RETRY, "failed", ActionOptions()),
    "promote": (Action.PROMOTE, "", ActionOptions()),
    "remove": (Action.REMOVE, "", ActionOptions(is_late=True)),
}


@pytest.mark.parametrize("case", _cases(*ACTS), ids=_name)
def test_a_job_ends_as_the_library_leaves_it(case: Case, store: Store, pipe: Pipe) -> None:
    act, which, options = next(entry for prefix, entry in ACTS.items() if case.name.startswith(prefix))
    golden.replay(store, case)
    jobs = [case.seen(id) for id in (case.ids(which) if which else ["1"])]
    with golden.publishing(store) as published:
        done = OPERATOR.on_jobs(act, Target(pipe, case.ref, case.flavour), jobs, options, NOW)
    assert golden.differences(store, case, RULES.get((case.file, case.name), ())) == {}
    assert [(channel.replace("@unstall", "@<token>"), text) for channel, text in published] == list(case.published)
    wanted = Outcome.REFUSED if case.error else Outcome.DONE
    assert {one.outcome for one in done} == {wanted}


@pytest.mark.parametrize("case", _cases("pause", "resume"), ids=_name)
def test_a_queue_is_paused_and_resumed_as_the_library_does(case: Case, store: Store, pipe: Pipe) -> None:
    golden.replay(store, case)
    act = Action.PAUSE if case.name == "pause" else Action.RESUME
    with golden.publishing(store) as published:
        done = OPERATOR.on_queue(act, Target(pipe, case.ref, case.flavour), ActionOptions(), NOW)
    assert done.outcome is Outcome.DONE
    assert golden.differences(store, case) == {}
    assert published == list(case.published)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("clean_failed", ActionOptions(state=JobState.FAILED)),
        ("clean_wait", ActionOptions(state=JobState.WAITING)),
        ("clean_active_mixed", ActionOptions(state=JobState.ACTIVE, is_late=True)),
    ],
)
def test_a_clean_takes_what_the_library_takes(name: str, options: ActionOptions, store: Store, pipe: Pipe) -> None:
    for case in _cases(name):
        golden.replay(store, case)
        removed = OPERATOR.take_away(Action.CLEAN, Target(pipe, case.ref, case.flavour), options, NOW, budget=100)
        assert (removed.removed, removed.is_finished) == (len(case.returned), True)
        assert golden.differences(store, case) == {}


def test_a_drain_takes_the_delayed_jobs_whole(store: Store, pipe: Pipe) -> None:
    """The library leaves their hashes behind for ever."""
    for case in _cases("drain"):
        golden.replay(store, case)
        target = Target(pipe, case.ref, case.flavour)
        removed = OPERATOR.take_away(Action.DRAIN, target, ActionOptions(delayed=True), NOW, budget=100)
        delayed = {f"{golden.BASE}:{id}" for id in case.ids("delayed")}
        assert delayed
        assert removed.removed == len(case.ids("wait")) + len(delayed)
        assert set(golden.differences(store, case)) == delayed
        assert not store.client.exists(*delayed)
