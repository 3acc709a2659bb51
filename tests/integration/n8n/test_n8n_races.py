"""A worker that ends its execution in the moment in which somebody fails it or marks it, hundreds of times over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import psycopg
import pytest

from recovery.actions.operators import guard_operator, operator
from recovery.backends.base import Target
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.n8n.action_targets import FLAVOUR
from recovery.n8n.execution_operator import ExecutionOperator
from recovery.stores.registry import registry
from tests.support.n8n.n8n_mending import EXECUTIONS, JOBS, Mending
from tests.support.stores.table_bench import Postgresql
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)

TIMES, LONG_TIMES = 200, 1_000
STARTED = 1_760_000_000_000
_STEP = 100e-6  # seconds
BULL = LibraryVersion(QueueLibrary.BULL, 4)
# As a worker of n8n's writes it: whatever the row says.
_SUCCESS = "UPDATE execution_entity SET status = 'success', finished = TRUE, \"stoppedAt\" = now() WHERE id = %s"


@pytest.fixture
def n8n_release() -> str:
    return "1.123"


@pytest.fixture(params=[TIMES, pytest.param(LONG_TIMES, marks=pytest.mark.long)])
def executions(request: pytest.FixtureRequest, here: Mending) -> list[str]:
    here.yard.run(
        "INSERT INTO {} (finished, mode, status, \"startedAt\", \"workflowId\") SELECT FALSE, 'webhook', 'running',"
        f" to_timestamp({STARTED / 1000}), 'wfInvoices000001' FROM generate_series(1, {request.param})"
    )
    return [str(id) for (id,) in here.yard._rows("SELECT id FROM {} ORDER BY id")]


def raced(postgresql: Postgresql, ids: list[str], ours: Callable[[str], Outcome]) -> list[tuple[str, Outcome, bool]]:
    """For each: what came of ours, and whether its worker had written its end, and the job was still active then.

    Whoever won gets a little less of a start the next time, so on any machine the two come to meet.
    """
    start, pause = Barrier(2), Event()
    told: list[tuple[str, Outcome, bool]] = []
    ahead = 0.0  # seconds that we begin before its worker
    with psycopg.connect(postgresql.url, autocommit=True) as theirs, ThreadPoolExecutor(1) as worker:
        client = registry().wire("main")

        def ends(id: str, later: float) -> bool:
            start.wait()
            pause.wait(later)
            theirs.execute(_SUCCESS, (int(id),))
            (position,) = client.call([("LPOS", "bull:jobs:active", id)])
            return position is not None

        for id in ids:
            end = worker.submit(ends, id, ahead)
            start.wait()
            pause.wait(-ahead)
            outcome = ours(id)
            told.append((id, outcome, end.result()))
            ahead += -_STEP if outcome is Outcome.DONE else _STEP
    return told


def test_no_execution_that_has_ended_is_ever_failed(
    here: Mending, executions: list[str], postgresql: Postgresql
) -> None:
    """Whoever finds the job still active once the end is written knows that nobody may fail it from then on."""
    data = {id: json.dumps({"executionId": id, "workflowId": "w", "loadStaticData": False}) for id in executions}
    fields = {"name": "job", "opts": "{}", "timestamp": STARTED, "processedOn": STARTED}
    with here.client.pipeline(transaction=False) as pipeline:
        for id in executions:
            pipeline.hset(f"bull:jobs:{id}", mapping={**fields, "data": data[id]})
            pipeline.lpush("bull:jobs:active", id)
        pipeline.execute()
    able = guard_operator(operator(BULL), JOBS, BULL, registry().config)
    target = Target(registry().wire("main"), JOBS, BULL)

    def fail(id: str) -> Outcome:
        seen = ExpectedJob(id, JobState.ACTIVE, processed_at=STARTED)
        (done,) = able.on_jobs(Action.FAIL, target, [seen], ActionOptions(is_late=True), now_ms())
        return done.outcome

    told = raced(postgresql, executions, fail)
    assert [id for id, outcome, was_left in told if was_left and outcome is Outcome.DONE] == []
    met = Counter(outcome for _, outcome, _ in told)
    assert met[Outcome.DONE] + met[Outcome.REFUSED] == len(executions)
    assert min(met[Outcome.DONE], met[Outcome.REFUSED]) > 0, "it never came to a race"


def test_no_execution_that_has_ended_is_ever_marked(
    here: Mending, executions: list[str], postgresql: Postgresql
) -> None:
    """Its worker has the last word either way: whoever comes first, it has succeeded in the end."""
    able, target = ExecutionOperator(), Target(registry().wire("main"), EXECUTIONS, FLAVOUR)

    def mark(id: str) -> Outcome:
        seen = ExpectedJob(id, JobState.ACTIVE, processed_at=STARTED)
        (done,) = able.on_jobs(Action.MARK, target, [seen], ActionOptions(), now_ms())
        return done.outcome

    told = raced(postgresql, executions, mark)
    met = Counter(outcome for _, outcome, _ in told)
    assert {here.yard.status(id) for id in executions} == {"success"}
    assert met[Outcome.DONE] + met[Outcome.REFUSED] == len(executions)
    assert min(met[Outcome.DONE], met[Outcome.REFUSED]) > 0, "it never came to a race"
