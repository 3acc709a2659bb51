"""Jobs whose data breaks the schema of their queue: seen by looks, pages and acts; never run without force."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from recovery.actions import runner
from recovery.config import Config
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.stuck.inbox import StuckInbox
from recovery.domain.stuck.types import VerdictKind
from recovery.models import Incident
from recovery.reads.audit import queries as book
from recovery.reads.queues import job_lists
from recovery.reads.stuck import inbox_store, payload_schemas
from recovery.reads.stuck import queries as stuck_queries
from recovery.stores import registry
from tests.support.acting import MAIL, Bench, set_up
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import SHORT, Counted, WatchBench, active, config_for
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)
SCHEMA = {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}
GOOD, BAD = '{"to":"ada@example.com"}', '{"to":4711}'
WHY = "Its data violates the schema of its queue: data.to must be string."
TOML = '[[queues]]\nname = "bull:mail"\nschema = "mail.json"\n'


@pytest.fixture(autouse=True)
def _schema(tmp_path: Path) -> None:
    (tmp_path / "mail.json").write_text(json.dumps(SCHEMA))


# -- the looks


@pytest.fixture
def watch(tmp_path: Path, valkey: Store, state_store: Store) -> Iterator[WatchBench]:
    one = WatchBench(config_for(tmp_path, state_store, valkey, SHORT + TOML))
    yield one
    one.close()


def counts(inbox: StuckInbox) -> dict[str, int]:
    return {kind.value: count for kind, count in inbox.counts.items()}


def test_a_stuck_job_with_bad_data_is_malformed_and_its_lock_is_still_told(watch: WatchBench, valkey: Store) -> None:
    active(valkey, MAIL.base, "1", data=BAD)
    active(valkey, MAIL.base, "2", data=GOOD)
    watch.discover()
    inbox = watch.look()
    found = {row.job.id: row.verdict for row in inbox.rows}
    assert (found["1"].kind, found["1"].behind, found["1"].suggests) == (
        VerdictKind.MALFORMED,
        VerdictKind.ABANDONED,
        Action.FAIL,
    )
    assert found["1"].evidence[0] == WHY
    assert "has had no lock" in found["1"].why
    assert (found["2"].kind, found["2"].behind) == (VerdictKind.ABANDONED, None)
    assert (counts(inbox), inbox.people) == ({"malformed": 1, "abandoned": 1}, 2)
    assert inbox_store.decode(inbox_store.encode(inbox)) == inbox


def test_bad_data_does_not_hide_an_incident(watch: WatchBench, valkey: Store) -> None:
    active(valkey, MAIL.base, "1", data=BAD)
    watch.discover()
    (row,) = watch.look().rows
    (incident,) = Incident.objects.all()
    assert (incident.kind, row.incident) == ("abandoned", incident.pk)
    assert WHY in incident.evidence
    assert Incident.objects.filter(closed_at=None).count() == len(watch.look().rows) == 1


def test_data_is_read_once_and_again_after_a_minute(watch: WatchBench, valkey: Store) -> None:
    active(valkey, MAIL.base, "1", data=BAD)
    watch.discover()
    watch.look()
    valkey.client.hset(f"{MAIL.base}:1", "data", GOOD)
    assert counts(watch.look(later=5_000)) == {"malformed": 1}
    assert counts(watch.look(later=70_000)) == {"abandoned": 1}


def test_a_queue_without_a_schema_costs_nothing_more(watch: WatchBench, valkey: Store) -> None:
    other = QueueRef("main", "bull:other")
    active(valkey, other.base, "1", data=BAD)
    watch.discover()
    assert [row.verdict.kind for row in watch.look().rows] == [VerdictKind.ABANDONED]


def test_an_older_library_is_proven_by_two_looks_all_the_same(watch: WatchBench, valkey: Store) -> None:
    active(valkey, MAIL.base, "1", flavour="bull", data=BAD)
    watch.discover()
    assert watch.look().rows == ()
    (row,) = watch.look(later=1_500).rows
    assert (row.verdict.kind, row.verdict.behind) == (VerdictKind.MALFORMED, VerdictKind.ABANDONED)


# -- what is read of the data


def test_long_data_is_measured_and_never_read(make_schema: Config, watch: WatchBench, valkey: Store) -> None:
    schema = make_schema.schema_of("main", MAIL.base)
    assert schema is not None
    long = json.dumps({"to": 1, "more": "x" * payload_schemas.DATA_LIMIT})
    active(valkey, MAIL.base, "1", data=long)
    active(valkey, MAIL.base, "2", data=BAD)
    active(valkey, MAIL.base, "3", data="")
    wire = watch.registry.wire("main")
    with Counted(wire) as counted:
        found = payload_schemas.find_violations(wire, MAIL, ["1", "2", "3", "2"], schema)
    assert found == {"2": WHY, "3": "Its data violates the schema of its queue: data must have to."}
    assert (counted.calls, counted.commands) == (2, 4)


def test_much_data_is_read_in_parts(make_schema: Config, watch: WatchBench, valkey: Store) -> None:
    schema = make_schema.schema_of("main", MAIL.base)
    assert schema is not None
    large = json.dumps({"to": 1, "more": "x" * 60_000})
    ids = [str(number) for number in range(40)]
    active(valkey, MAIL.base, *ids, data=large)
    wire = watch.registry.wire("main")
    with Counted(wire) as counted:
        assert set(payload_schemas.find_violations(wire, MAIL, ids, schema)) == set(ids)
    assert counted.calls == 1 + 3


@pytest.fixture
def make_schema(watch: WatchBench) -> Config:
    return watch.registry.config


def test_what_is_no_hash_is_not_judged(make_schema: Config, watch: WatchBench, valkey: Store) -> None:
    schema = make_schema.schema_of("main", MAIL.base)
    assert schema is not None
    valkey.client.set(f"{MAIL.base}:1", "x")
    assert payload_schemas.find_violations(watch.registry.wire("main"), MAIL, ["1"], schema) == {}


# -- acts


@pytest.fixture
def desk(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with set_up(valkey, state_store, tmp_path, monkeypatch) as bench:
        toml = tmp_path / "unstall.toml"
        toml.write_text(f"{toml.read_text()}\n{TOML}")
        registry.reset()
        yield bench


def refused(desk: Bench, act: Action, id: str) -> str:
    (judgement,) = runner.preview(desk.order(act, id)).judgements
    assert not judgement.is_allowed
    return judgement.why


def test_a_malformed_orphan_is_requeued_only_by_force(desk: Bench) -> None:
    desk.orphan("1", data=BAD)
    desk.orphan("2", data=GOOD)
    assert "needs force" in refused(desk, Action.REQUEUE, "1")
    done = [
        *runner.perform(desk.order(Action.REQUEUE, "2")),
        *runner.perform(desk.order(Action.REQUEUE, "1", force=True)),
    ]
    assert [result.outcome for result in done] == [Outcome.DONE, Outcome.DONE]
    assert sorted(desk.ids(JobState.WAITING)) == ["1", "2"]


def test_a_malformed_orphan_is_failed_without_force(desk: Bench) -> None:
    desk.orphan("1", data=BAD)
    (result,) = runner.perform(desk.order(Action.FAIL, "1"))
    assert result.outcome is Outcome.DONE
    assert desk.ids(JobState.ACTIVE) == []


def test_a_held_job_stays_held_whatever_its_data_is(desk: Bench) -> None:
    desk.held("1")
    desk.client.hset(f"{MAIL.base}:1", "data", BAD)
    assert "holds its lock" in refused(desk, Action.REQUEUE, "1")


def test_a_page_tells_bad_data_of_held_jobs_too(desk: Bench) -> None:
    desk.held("1", "2")
    desk.client.hset(f"{MAIL.base}:1", "data", BAD)
    desk.client.hset(f"{MAIL.base}:2", "data", GOOD)
    queue = job_lists.locate(MAIL, None)
    rows = queue.reader.page(queue.wire, MAIL, JobState.ACTIVE, size=10).rows
    found = stuck_queries.verdicts_of_rows(queue, rows, None, now_ms())
    assert {id: (one.kind, one.of_lock) for id, one in found.items()} == {
        "1": (VerdictKind.MALFORMED, VerdictKind.RUNNING),
        "2": (VerdictKind.RUNNING, VerdictKind.RUNNING),
    }


def test_a_failed_job_with_bad_data_is_retried_only_by_force(desk: Bench) -> None:
    desk.failed("1", data=BAD)
    desk.failed("2", data=GOOD)
    assert "needs force" in refused(desk, Action.RETRY, "1")
    assert [result.outcome for result in runner.perform(desk.order(Action.RETRY, "2"))] == [Outcome.DONE]
    assert [result.outcome for result in runner.perform(desk.order(Action.RETRY, "1", force=True))] == [Outcome.DONE]


def test_no_value_of_the_data_is_in_the_audit(desk: Bench) -> None:
    desk.orphan("1", data=BAD)
    desk.look()
    runner.perform(desk.order(Action.FAIL, "1"))
    jobs = [job for number in (1, 2) for job in book.entry(number).jobs]
    written = str([(job.before, job.after, job.verdict) for job in jobs])
    assert "malformed" in written
    assert "4711" not in written


# -- the shell


def test_scripts_are_told(valkey: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active(valkey, MAIL.base, "1", data=BAD)
    (tmp_path / "unstall.toml").write_text(TOML)
    for name, value in {"UNSTALL_CONFIG": str(tmp_path / "unstall.toml"), "UNSTALL_REDIS_URL": valkey.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("UNSTALL_STATE_URL", raising=False)
    registry.reset()
    out = StringIO()
    try:
        call_command("orphans", "--json", stdout=out)
    finally:
        registry.reset()
    document: dict[str, Any] = json.loads(out.getvalue())
    (orphan,) = document["orphans"]
    assert (document["counts"], document["needing_a_person"]) == ({"malformed": 1}, 1)
    assert (orphan["verdict"], orphan["suggests"]) == ("malformed", "fail")
    assert WHY in json.dumps(orphan)
