"""The application's own row follows its job, on real databases: from an active stage only, and never a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.actions import runner
from recovery.domain.actions.types import Action, Outcome
from recovery.hooks.dispatcher import HookDispatcher
from recovery.models import HookCall
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.stores import registry
from tests.support.acting import Bench
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Place, configured
from tests.support.stuck.watching import bullmq, now_ms

pytestmark = pytest.mark.django_db(transaction=True)

IMPORTS = "CREATE TABLE imports (id INTEGER PRIMARY KEY, stage VARCHAR(20), file VARCHAR(20), kind VARCHAR(20))"
HOOK = """
[[hooks]]
name = "imports"
queue = "main/bull:mail"
on = ["lost", "recovered"]
database = "app"
table = "imports"
id = "id"
path = "import.id"
stage = "stage"
from = ["importing", "parsing"]
to = "pending"
failed = "broken"
"""
CHOOSE = """
[[hooks.choose]]
column = "kind"
equals = "delta"
to = "pending_delta"
[[hooks.choose]]
column = "file"
is = "set"
to = "uploaded"
"""


@pytest.fixture(autouse=True)
def _table(place: Place) -> None:
    place.run(IMPORTS)


@pytest.fixture
def bench(
    place: Place, valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    with configured(tmp_path, monkeypatch, state_store, {"app": place}, HOOK + CHOOSE, redis=valkey.url):
        bullmq(valkey.client, "bull:mail")
        yield Bench(valkey, state_store)


def add(place: Place, id: int = 7, stage: str = "importing", file: str | None = None, kind: str = "full") -> None:
    place.run("INSERT INTO imports VALUES (?, ?, ?, ?)", id, stage, file, kind)


def stages(place: Place) -> dict[Any, str]:
    return dict(place.run("SELECT id, stage FROM imports ORDER BY id"))


def call() -> int:
    return HookDispatcher(registry.registry()).run(now_ms())


def test_the_row_of_a_requeued_job_is_pending_again(bench: Bench, place: Place) -> None:
    add(place)
    add(place, 8)
    bench.orphan("1", data='{"import": {"id": 7}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert call() == 1
    assert stages(place) == {7: "pending", 8: "importing"}


def test_the_watch_alone_is_enough(bench: Bench, place: Place) -> None:
    add(place)
    bench.orphan("1", data='{"import": {"id": "7"}}')
    OrphanWatch(registry.registry(), bench.look).run(now_ms())
    assert call() == 1
    assert stages(place) == {7: "pending"}


@pytest.mark.parametrize(
    ("file", "kind", "stage"),
    [("a.csv", "full", "uploaded"), (None, "full", "pending"), ("a.csv", "delta", "pending_delta")],
)
def test_the_first_condition_that_fits_chooses_the_stage(
    bench: Bench, place: Place, file: str | None, kind: str, stage: str
) -> None:
    add(place, file=file, kind=kind)
    bench.orphan("1", data='{"import": {"id": 7}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    call()
    assert stages(place) == {7: stage}


@pytest.mark.parametrize("stage", ["done", "pending", "uploaded", "cancelled"])
def test_a_row_in_no_active_stage_is_left_alone(bench: Bench, place: Place, stage: str) -> None:
    add(place, stage=stage, file="a.csv")
    bench.orphan("1", data='{"import": {"id": 7}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert call() == 1
    assert stages(place) == {7: stage}


def test_the_row_of_a_job_that_runs_again_is_left_alone(bench: Bench, place: Place) -> None:
    add(place)
    bench.orphan("1", data='{"import": {"id": 7}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    bench.client.rpoplpush("bull:mail:wait", "bull:mail:active")
    bench.client.set("bull:mail:1:lock", "another:1", px=30_000)
    assert call() == 1
    assert stages(place) == {7: "importing"}


def test_a_failed_job_breaks_its_row_even_when_it_is_removed_at_once(bench: Bench, place: Place) -> None:
    add(place)
    add(place, 8)
    bench.orphan("1", data='{"import": {"id": 7}}')
    bench.orphan("2", data='{"import": {"id": 8}}', opts='{"removeOnFail": true}')
    for id in ("1", "2"):
        (result,) = runner.perform(bench.order(Action.FAIL, id, directly=True))
        assert result.outcome is Outcome.DONE, result.why
    assert not bench.client.exists("bull:mail:2")
    assert call() == 2
    assert stages(place) == {7: "broken", 8: "broken"}


@pytest.mark.parametrize(
    "data",
    ['{"import": {"id": "7; DROP TABLE imports"}}', '{"import": {"id": "7 or more"}}', '{"import": {}}', "7", "[", ""],
)
def test_data_that_names_no_row_changes_none(bench: Bench, place: Place, data: str) -> None:
    add(place)
    bench.orphan("1", data=data)
    runner.perform(bench.order(Action.REQUEUE, "1"))
    call()
    assert stages(place) == {7: "importing"}


def test_where_the_id_is_no_key_no_row_is_changed(bench: Bench, place: Place, tmp_path: Path) -> None:
    path = tmp_path / "unstall.toml"
    path.write_text(path.read_text().replace('id = "id"', 'id = "kind"'))
    registry.reset()
    add(place, 7, kind="x")
    add(place, 8, kind="x")
    bench.orphan("1", data='{"import": {"id": "x"}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert call() == 0
    assert "2 rows" in HookCall.objects.get().trouble
    assert stages(place) == {7: "importing", 8: "importing"}


def test_a_table_that_is_missing_is_told_and_tried_again_when_it_is_there(bench: Bench, place: Place) -> None:
    place.run("DROP TABLE imports")
    bench.orphan("1", data='{"import": {"id": 7}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert call() == 0
    held = HookCall.objects.get()
    assert (held.tries, "imports" in held.trouble) == (1, True)
    place.run(IMPORTS)
    add(place)
    assert HookDispatcher(registry.registry()).again(held.due_at) == 1
    assert stages(place) == {7: "pending"}


def test_a_database_that_is_read_only_is_not_written_to(bench: Bench, place: Place, tmp_path: Path) -> None:
    path = tmp_path / "unstall.toml"
    path.write_text(path.read_text().replace("timeout = 10", "timeout = 10\nread_only = true"))
    registry.reset()
    add(place)
    bench.orphan("1", data='{"import": {"id": 7}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert call() == 0
    assert HookCall.objects.get().trouble
    assert stages(place) == {7: "importing"}


def test_what_is_called_twice_changes_once(bench: Bench, place: Place) -> None:
    add(place)
    bench.orphan("1", data='{"import": {"id": 7}}')
    runner.perform(bench.order(Action.REQUEUE, "1"))
    (once,) = HookCall.objects.values()
    call()
    place.run("UPDATE imports SET stage = 'done'")
    HookCall.objects.create(**once)
    assert call() == 1
    assert stages(place) == {7: "done"}
