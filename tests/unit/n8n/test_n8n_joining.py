"""Sub-workflows joined with what may have started them: without a parent that may be alive they are told."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import SUB_WORKFLOW, Execution, ExecutionStatus
from recovery.domain.n8n.join import JobExecutionJoin, N8nJobs
from recovery.domain.time_units import MINUTE

NOW = 1_800_000_000_000
AROUND = ComparisonContext(NOW, workers={QueueRef("main", "bull:jobs"): 1}, oldest_worker=NOW - MINUTE)


def parked(id: str, ago: int) -> Execution:
    return Execution(id, "wf", "webhook", ExecutionStatus.WAITING, started_at=NOW - ago)


def sub_workflow(ago: int) -> Execution:
    return Execution("99", "wf", SUB_WORKFLOW, ExecutionStatus.RUNNING, started_at=NOW - ago)


@pytest.mark.parametrize("order", [1, -1])
def test_the_oldest_execution_that_lives_may_be_the_parent_whatever_began_later(order: int) -> None:
    join = JobExecutionJoin(N8nJobs(()), AROUND)
    join.take([*[parked("1", 9 * MINUTE), parked("2", 2 * MINUTE)][::order], sub_workflow(5 * MINUTE)])
    join.settle()
    assert (join.suspects, join.unsure_parents) == ([], 1)


def test_of_a_sub_workflow_that_began_before_all_that_lives_no_parent_is_left() -> None:
    join = JobExecutionJoin(N8nJobs(()), AROUND)
    join.take([parked("1", 9 * MINUTE), sub_workflow(10 * MINUTE)])
    join.settle()
    assert ([pair.id for pair in join.suspects], join.unsure_parents) == (["99"], 0)
