"""An execution whose job is gone is only nobody's when no worker that is connected can have begun it."""

from __future__ import annotations

import pytest

from recovery.domain.actions.types import Action, ActionOptions
from recovery.domain.n8n.action_context import ExecutionActionContext
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.worker_ages import WorkerAges
from recovery.domain.time_units import MINUTE
from recovery.n8n import action_rules

NOW = 1_800_000_000_000
BEGAN = NOW - 10 * MINUTE
LONG_AGO = NOW - 600 * MINUTE


@pytest.mark.parametrize(
    ("ages", "said"),
    [
        (WorkerAges(True, None, None), ""),
        (WorkerAges(True, NOW - MINUTE, LONG_AGO), ""),
        (WorkerAges(True, NOW - MINUTE, NOW - 5 * MINUTE), ""),
        (WorkerAges(True, NOW - 11 * MINUTE, LONG_AGO), "since before it began"),
        (WorkerAges(True, BEGAN + 2_000, LONG_AGO), "since before it began"),
        (WorkerAges(True, NOW - MINUTE, NOW - 2 * MINUTE), "older than its connection"),
        (WorkerAges(True, NOW - MINUTE, None), "is not known"),
        (WorkerAges(), "is not known"),
    ],
    ids=["none", "younger", "long after a restart", "older", "as old", "right after a restart", "no uptime", "refused"],
)
def test_a_worker_that_may_be_older_than_it_may_run_it(ages: WorkerAges, said: str) -> None:
    assert (said in ages.may_run(BEGAN), bool(ages.may_run(BEGAN))) == (True, bool(said))


@pytest.mark.parametrize("act", [Action.MARK, Action.RETRY_EXECUTION])
def test_such_an_execution_is_put_right_with_force_alone(act: Action) -> None:
    running = Execution("51", "wf", "webhook", ExecutionStatus.RUNNING, BEGAN, BEGAN)
    ages = WorkerAges(True, LONG_AGO, LONG_AGO)
    standing = ExecutionActionContext("51", running, alone_for=MINUTE, has_start=True, workers=ages)
    with pytest.raises(action_rules.N8nActionRefused, match=r"since before it began.*This needs force\."):
        action_rules.on_execution(act, standing, ActionOptions(consent=True))
    risks = action_rules.on_execution(act, standing, ActionOptions(consent=True, force=True))
    assert any("since before it began" in risk for risk in risks)
