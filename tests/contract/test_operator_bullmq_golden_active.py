"""Requeue, fail and release against what the real BullMQ did with the same keys."""

from __future__ import annotations

import pytest

from recovery.backends.base import Target
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.domain.actions.types import Action, ActionOptions, Outcome, ScriptOutcome
from tests.contract import golden
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

FILES = ("bullmq3", "bullmq5", "bullmq6")
NOW = 1795000200000
OPERATOR = BullMQOperator()


def _cases(*prefixes: str) -> list[golden.Case]:
    return [case for file in FILES for case in golden.cases(file, *prefixes)]


def _named(case: golden.Case) -> str:
    return f"{case.file}-{case.name}"


def _act(pipe: Pipe, case: golden.Case, act: Action, **options: object) -> ScriptOutcome:
    (id,) = case.ids("active")
    target = Target(pipe, case.ref, case.flavour)
    chosen = ActionOptions(is_late=True, other_queues=True, **options)  # type: ignore[arg-type] # passed on as they are
    (done,) = OPERATOR.on_jobs(act, target, [case.seen(id)], chosen, NOW)
    return done


@pytest.mark.parametrize("case", _cases("stalled_requeue"), ids=_named)
def test_a_requeue_is_what_the_stalled_check_does(case: golden.Case, store: Store, pipe: Pipe) -> None:
    golden.replay(store, case)
    assert _act(pipe, case, Action.REQUEUE).outcome is Outcome.DONE
    assert golden.differences(store, case) == {}


@pytest.mark.parametrize("case", _cases("stalled_overlimit", "flow_child_stalled_overlimit"), ids=_named)
def test_a_failure_is_what_the_stalled_check_does_over_its_limit(case: golden.Case, store: Store, pipe: Pipe) -> None:
    golden.replay(store, case)
    assert _act(pipe, case, Action.FAIL).outcome is Outcome.DONE
    assert golden.differences(store, case) == {}


@pytest.mark.parametrize("case", _cases("fail_active", "flow_child_fail", "dedup_child_fail"), ids=_named)
def test_a_direct_failure_is_what_a_worker_does(case: golden.Case, store: Store, pipe: Pipe) -> None:
    golden.replay(store, case)
    assert _act(pipe, case, Action.FAIL, directly=True, message="operator").outcome is Outcome.DONE
    assert golden.differences(store, case) == {}


@pytest.mark.parametrize("case", [case for case in _cases("release_active") if case.returned != "n/a"], ids=_named)
def test_a_requeue_that_does_not_count_is_the_librarys_own_move_to_wait(
    case: golden.Case, store: Store, pipe: Pipe
) -> None:
    golden.replay(store, case)
    assert _act(pipe, case, Action.REQUEUE, counts_as_stall=False).outcome is Outcome.DONE
    assert golden.differences(store, case) == {}
