"""Retry, promote, remove, clean, drain, pause and resume against what the real BullMQ did with the same keys."""

from __future__ import annotations

import pytest

from recovery.backends.base import Target
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.domain.actions.types import Action, ActionOptions, Outcome
from recovery.domain.jobs import JobState
from tests.contract import golden
from tests.contract.golden import BASE, Case, Rule
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

FILES = ("bullmq3", "bullmq5", "bullmq6")
NOW = 1795000200000
OPERATOR = BullMQOperator()

_PLACES = (f"{BASE}:wait", f"{BASE}:priority", f"{BASE}:prioritized", f"{BASE}:pc")
KEEPS_PRIORITY = Rule(
    "a retried job keeps its priority",
    "before 6.3.5 the library puts it into `wait` before all others; all failed ones at once it does in every version",
    lambda key, ours, theirs: key in _PLACES,
)
DELAY_IS_OVER = Rule(
    "a promoted job keeps its priority, and has no delay",
    "the library's promoteJobs forgets both",
    lambda key, ours, theirs: (
        key in _PLACES or {**(ours or {"v": {}})["v"], "delay": ""} == {**(theirs or {"v": {}})["v"], "delay": ""}
    ),
)
RULES = {
    ("bullmq3", "retry_failed_prio"): (KEEPS_PRIORITY,),
    ("bullmq5", "retry_failed_prio"): (KEEPS_PRIORITY,),
    ("bullmq3", "retry_all_failed"): (KEEPS_PRIORITY,),
    ("bullmq5", "retry_all_failed"): (KEEPS_PRIORITY,),
    ("bullmq6", "retry_all_failed"): (KEEPS_PRIORITY,),
    ("bullmq5", "promote_all"): (DELAY_IS_OVER,),
    ("bullmq6", "promote_all"): (DELAY_IS_OVER,),
}
ACTS = {
    "retry_": (Action.RETRY, "failed"),
    "flow_child_retry": (Action.RETRY, "failed"),
    "promote_all": (Action.PROMOTE, "delayed"),
    "promote_": (Action.PROMOTE, ""),
    "remove_": (Action.REMOVE, ""),
    "flow_child_remove": (Action.REMOVE, "active"),
}


def _cases(*prefixes: str) -> list[Case]:
    return [case for file in FILES for case in golden.cases(file, *prefixes) if case.returned != "n/a"]


def _named(case: Case) -> str:
    return f"{case.file}-{case.name}"


def _target(pipe: Pipe, case: Case) -> Target:
    return Target(pipe, case.ref, case.flavour)


@pytest.mark.parametrize("case", _cases(*ACTS), ids=_named)
def test_a_job_ends_as_the_library_leaves_it(case: Case, store: Store, pipe: Pipe) -> None:
    act, which = next(entry for prefix, entry in ACTS.items() if case.name.startswith(prefix))
    golden.replay(store, case)
    jobs = [case.seen(id) for id in (case.ids(which) if which else ["1"])]
    options = ActionOptions(children=True, other_queues=True)  # as the library does it
    dones = OPERATOR.on_jobs(act, _target(pipe, case), jobs, options, NOW)
    assert golden.differences(store, case, RULES.get((case.file, case.name), ())) == {}
    assert {done.outcome for done in dones} == {Outcome.REFUSED if case.error else Outcome.DONE}


@pytest.mark.parametrize("case", _cases("retry_failed_prio", "retry_all_failed"), ids=_named)
def test_a_retried_job_stands_where_its_priority_belongs(case: Case, store: Store, pipe: Pipe) -> None:
    golden.replay(store, case)
    jobs = [case.seen(id) for id in case.ids("failed")]
    OPERATOR.on_jobs(Action.RETRY, _target(pipe, case), jobs, ActionOptions(), NOW)
    (prioritized,) = (seen.id for seen in jobs if int(case.before[f"{BASE}:{seen.id}"]["v"]["priority"]))
    place = "priority" if case.file == "bullmq3" else "prioritized"
    assert store.client.zrange(f"{BASE}:{place}", 0, -1) == [prioritized.encode()]


@pytest.mark.parametrize("case", _cases("pause", "resume"), ids=_named)
def test_a_queue_is_paused_and_resumed_as_the_library_does(case: Case, store: Store, pipe: Pipe) -> None:
    golden.replay(store, case)
    act = Action.PAUSE if case.name == "pause" else Action.RESUME
    assert OPERATOR.on_queue(act, _target(pipe, case), ActionOptions(), NOW).outcome is Outcome.DONE
    assert golden.differences(store, case) == {}


@pytest.mark.parametrize(
    ("name", "state"),
    [("clean_failed", JobState.FAILED), ("clean_wait", JobState.WAITING), ("clean_active_mixed", JobState.ACTIVE)],
)
def test_a_clean_takes_what_the_library_takes(name: str, state: JobState, store: Store, pipe: Pipe) -> None:
    for case in _cases(name):
        golden.replay(store, case)
        removed = OPERATOR.take_away(Action.CLEAN, _target(pipe, case), ActionOptions(state=state), NOW, budget=100)
        assert sorted(kept.id for kept in removed.jobs) == sorted(case.returned)
        assert (removed.removed, removed.is_finished) == (len(case.returned), True)
        assert golden.differences(store, case) == {}


@pytest.mark.parametrize("case", _cases("drain"), ids=_named)
def test_a_drain_takes_what_the_library_takes(case: Case, store: Store, pipe: Pipe) -> None:
    golden.replay(store, case)
    removed = OPERATOR.take_away(Action.DRAIN, _target(pipe, case), ActionOptions(delayed=True), NOW, budget=100)
    assert removed.is_finished
    assert golden.differences(store, case) == {}


@pytest.mark.parametrize("case", _cases("remove_", "clean_failed", "drain"), ids=_named)
def test_what_was_taken_away_comes_back(case: Case, store: Store, pipe: Pipe) -> None:
    if case.error:
        return
    golden.replay(store, case)
    target, before = _target(pipe, case), golden.compared(golden.dump(store))
    if case.name.startswith("remove_"):
        (done,) = OPERATOR.on_jobs(Action.REMOVE, target, [case.seen("1")], ActionOptions(), NOW)
        taken = [done.kept]
    else:
        act = Action.DRAIN if case.name == "drain" else Action.CLEAN
        options = ActionOptions(state=JobState.FAILED, delayed=True)
        taken = list(OPERATOR.take_away(act, target, options, NOW, budget=100).jobs)
    for kept in reversed(taken):
        assert kept is not None
        assert OPERATOR.put_back(target, kept, NOW).outcome is Outcome.DONE
    assert _lasting(golden.compared(golden.dump(store))) == _lasting(before)


def _lasting(keyspace: golden.Keyspace) -> golden.Keyspace:
    """Without the events, and without what only wakes workers: they may be woken once more."""
    loose = {f"{BASE}:events", f"{BASE}:marker"}
    found = {key: entry for key, entry in keyspace.items() if key not in loose}
    wait = found.get(f"{BASE}:wait", {"v": []})
    return found | {f"{BASE}:wait": wait | {"v": [id for id in wait["v"] if not id.startswith("0:")]}}
