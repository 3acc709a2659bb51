"""The truth table of a busy n8n: 100,000 executions in a real PostgreSQL beside 10,000 jobs in a real Valkey.

Once as it is on a bad day (12,000 have not ended, two thousand pairs contradict themselves), and once as bad as it can
be: not one of them has ended, and every one without a job is a mismatch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import django
import psycopg

from bench.measure import Result, memory_of_ours, percentile
from recovery.config import Config, Database, N8nInstallation, load
from recovery.domain.n8n.comparison import N8nComparison
from recovery.domain.n8n.comparison_context import GRACE
from recovery.domain.queues.types import Snapshot
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlSession
from tests.support.n8n import n8n_schema
from tests.support.stores.postgres import Postgres
from tests.support.stores.stores import Store

EXECUTIONS, JOBS = 100_000, 10_000
ROUNDS = 7
TOTAL_S, STATEMENT_MS, COMMAND_MS, GROWTH_MB = 2.0, 200.0, 5.0, 100.0
_PARKED, _ELSEWHERE, _LOST, _LEFT, _GONE = 1_000, 1_000, 1_000, 500, 500  # of 100,000 and 10,000
_HOUR_MS = 3_600_000
_ROWS = """
INSERT INTO execution_entity (id, finished, mode, status, "startedAt", "stoppedAt", "createdAt", "workflowId")
SELECT n, status = 'success', mode, status, now() - interval '1 hour',
       CASE WHEN status = 'success' THEN now() - interval '50 minutes' END, now() - interval '1 hour',
       'wf' || mod(n, 50)
  FROM (SELECT n, {status} AS status, {mode} AS mode FROM generate_series(1, %s) AS n) AS made
"""


@dataclass(frozen=True, slots=True)
class Day:
    """One way the rows and jobs can stand; the newest rows are open."""

    title: str
    scale: int
    is_worst: bool = False

    def part(self, number: int) -> int:
        return number // self.scale


def _days(scale: int) -> tuple[Day, Day]:
    return Day("a bad day", scale), Day("all of them open", scale, is_worst=True)


def run(*, quick: bool) -> Result:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    scale = 10 if quick else 1
    executions, jobs = EXECUTIONS // scale, JOBS // scale
    result = Result("n8n_truth", f"n8n's truth table: {executions:,} executions beside {jobs:,} jobs")
    result.setting = {"executions": executions, "jobs": jobs, "rounds": ROUNDS}
    worst, statements, commands, growth = 0.0, 0.0, 0.0, 0.0
    for day in _days(scale):
        with Postgres() as postgres, Store("valkey") as store:
            _fill(postgres, store, day)
            times, longest, grown, truth = _measured(postgres, store)
            command = _longest_command(store)
        told = f"{truth.executions:,} open, {truth.mismatches:,} mismatches of {len(truth.counts)} kinds"
        result.row(f"{day.title}: a look, median", percentile(times, 0.5), "s", told)
        result.row(f"{day.title}: a look, worst", max(times), "s", f"{len(truth.pairs):,} pairs listed")
        result.row(f"{day.title}: longest statement", longest, "ms", "as its client sees it, rows decoded")
        result.row(f"{day.title}: longest command in Valkey", command, "ms")
        result.row(f"{day.title}: growth of memory, the most", grown, "MB")
        worst = worst if day.is_worst else max(worst, *times)
        statements = max(statements, longest)
        commands, growth = max(commands, command), max(growth, grown)
    result.goal(f"every look on a bad day ≤ {TOTAL_S:g} s", worst, most=TOTAL_S)
    result.goal(f"no statement longer than {STATEMENT_MS:g} ms", statements, most=STATEMENT_MS)
    result.goal(f"no command longer than {COMMAND_MS:g} ms", commands, most=COMMAND_MS)
    result.goal(f"memory grows by ≤ {GROWTH_MB:g} MB", growth, most=GROWTH_MB)
    return result


def _fill(postgres: Postgres, store: Store, day: Day) -> None:
    parked, elsewhere, lost, left, gone = map(day.part, (_PARKED, _ELSEWHERE, _LOST, _LEFT, _GONE))
    executions, held = day.part(EXECUTIONS), day.part(JOBS) - left - gone
    first = 1 if day.is_worst else executions - (held + parked + elsewhere + lost) + 1
    steps = (("new", held), ("waiting", parked), ("running", elsewhere), ("running", lost))
    status, mode, start = "CASE", "CASE", first
    for word, count in steps:
        status += f" WHEN n >= {start} AND n < {start + count} THEN '{word}'"
        start += count
    mode += f" WHEN n >= {first + held + parked} AND n < {first + held + parked + elsewhere} THEN 'manual'"
    rest = "running" if day.is_worst else "success"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        n8n_schema.create(connection, "2.41")
        said = _ROWS.format(status=f"{status} ELSE '{rest}' END", mode=f"{mode} ELSE 'webhook' END")
        connection.execute(said, [executions])  # type: ignore[arg-type] # of our own words and numbers
        names = 'INSERT INTO workflow_entity (id, name, active, nodes, connections, "versionId") '
        connection.execute(
            names + "SELECT 'wf' || n, 'Workflow ' || n, true, '[]', '{}', 'v' FROM generate_series(0, 49) AS n"
        )
        connection.execute("ANALYZE")
    ended = range(1, left + 1) if not day.is_worst else range(first, first + left)
    _jobs(store, [*range(first, first + held), *ended, *range(executions + 1, executions + gone + 1)])


def _jobs(store: Store, executions: Sequence[int]) -> None:
    """As bull writes them; one in a hundred is active."""
    at = int(time.time() * 1000) - _HOUR_MS
    pipeline = store.client.pipeline(transaction=False)
    for number, execution in enumerate(executions, 1):
        data = f'{{"workflowId":"wf{execution % 50}","executionId":"{execution}","loadStaticData":false}}'
        pipeline.hset(
            f"bull:jobs:{number}", mapping={"name": "job", "data": data, "opts": "{}", "timestamp": at, "delay": 0}
        )
        if number % 100:
            pipeline.lpush("bull:jobs:wait", number)
            pipeline.zadd("bull:jobs:priority", {str(number): 100})
        else:
            pipeline.lpush("bull:jobs:active", number)
            pipeline.set(f"bull:jobs:{number}:lock", "token", px=_HOUR_MS)
        if not number % 1000:
            pipeline.execute()
    pipeline.set("bull:jobs:id", len(executions))
    pipeline.execute()
    store.client.config_set("slowlog-log-slower-than", 1000)
    store.client.config_set("slowlog-max-len", 1000)


def _measured(postgres: Postgres, store: Store) -> tuple[list[float], float, float, N8nComparison]:
    """Seconds of each look, the longest statement, and how the memory grew at the most."""
    from recovery.management import one_off_snapshot  # noqa: PLC0415 -- not before Django is set up

    registry, n8n = _registry(postgres, store)
    snapshot, statements = one_off_snapshot.take_snapshot(registry), list[float]()
    store.client.slowlog_reset()
    try:
        with _timed(statements):
            truth = _look(registry, n8n, snapshot, {})
            times: list[float] = []
            with memory_of_ours() as sizes:
                for _ in range(ROUNDS):
                    began = time.perf_counter()
                    truth = _look(registry, n8n, snapshot, truth.young, later=2 * GRACE)
                    times.append(time.perf_counter() - began)
    finally:
        registry.close()
    return times, max(statements), max(sizes) - sizes[0], truth


def _look(
    registry: ConnectionRegistry, n8n: N8nInstallation, snapshot: Snapshot, young: Mapping[str, int], *, later: int = 0
) -> N8nComparison:
    from recovery.n8n.comparison import ComparisonRequest, compare  # noqa: PLC0415 -- as above

    truth = compare(registry, n8n, ComparisonRequest(snapshot, int(time.time() * 1000) + later, young))
    assert not truth.fault, truth.fault
    return truth


def _registry(postgres: Postgres, store: Store) -> tuple[ConnectionRegistry, N8nInstallation]:
    config: Config = load({"UNSTALL_REDIS_URL": store.url, "UNSTALL_N8N_DATABASE_URL": postgres.url})
    assert all(isinstance(one, Database) for one in config.databases)
    return ConnectionRegistry(config), config.n8n[0]


@contextmanager
def _timed(found: list[float]) -> Iterator[None]:
    """Milliseconds of each statement."""

    def clocked(action: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object) -> object:
            began = time.perf_counter()
            try:
                return action(*arguments)
            finally:
                found.append((time.perf_counter() - began) * 1000)

        return timed

    with (
        mock.patch.object(SqlSession, "all", clocked(SqlSession.all)),
        mock.patch.object(SqlSession, "change", clocked(SqlSession.change)),
    ):
        yield


def _longest_command(store: Store) -> float:
    """Milliseconds of the server's own; none in its log took less than one."""
    found = [entry["duration"] / 1000 for entry in store.client.slowlog_get(1000)]
    return max(found, default=1.0)
