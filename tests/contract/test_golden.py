"""The golden cases themselves: they load as they are, and a difference is seen."""

from __future__ import annotations

import pytest

from tests.contract import golden
from tests.contract.golden import BASE, Case, Rule
from tests.support.stores.stores import Store

CASES = [case for file in golden.FILES for case in golden.cases(file)]


@pytest.fixture
def case() -> Case:
    (case,) = golden.cases("bullmq6", "stalled_requeue_plain")
    return case


def test_every_case_loads_as_it_is_written(valkey: Store) -> None:
    for case in CASES:
        golden.replay(valkey, case)
        loaded = golden.dump(valkey)
        assert golden.compared(loaded) == golden.compared(case.before), f"{case.file} {case.name}"


def test_what_was_not_done_is_a_difference(valkey: Store, case: Case) -> None:
    golden.replay(valkey, case)
    different = golden.differences(valkey, case)
    assert {f"{BASE}:active", f"{BASE}:wait", f"{BASE}:1", f"{BASE}:events"} <= set(different)


def test_what_the_library_did_is_none(valkey: Store, case: Case) -> None:
    golden.load(valkey, case.after)
    assert golden.differences(valkey, case) == {}


def test_another_order_in_a_list_is_a_difference(valkey: Store, case: Case) -> None:
    golden.load(valkey, case.after)
    valkey.do("LPUSH", f"{BASE}:wait", valkey.do("RPOP", f"{BASE}:wait"))
    assert set(golden.differences(valkey, case)) == {f"{BASE}:wait"}


def test_times_are_none(valkey: Store, case: Case) -> None:
    golden.load(valkey, case.after)
    valkey.do("HSET", f"{BASE}:1", "processedOn", 1_800_000_000_000)
    assert golden.differences(valkey, case) == {}


def test_a_rule_covers_what_it_names_and_nothing_else(valkey: Store, case: Case) -> None:
    golden.load(valkey, case.after)
    valkey.do("HSET", f"{BASE}:1", "stc", 7)
    valkey.do("SET", f"{BASE}:more", 1)
    rule = Rule("stalls", "only here", lambda key, ours, theirs: key == f"{BASE}:1")
    assert set(golden.differences(valkey, case, [rule])) == {f"{BASE}:more"}


def test_a_job_is_seen_as_it_was(case: Case) -> None:
    seen = case.seen("1")
    assert (seen.state, seen.starts, seen.stalls, seen.token) == ("active", 1, 0, None)
    assert seen.processed_at


def test_what_is_published_is_heard(valkey: Store) -> None:
    with golden.publishing(valkey) as heard:
        valkey.do("PUBLISH", f"{BASE}:failed", "1")
    assert heard == [(f"{BASE}:failed", "1")]
