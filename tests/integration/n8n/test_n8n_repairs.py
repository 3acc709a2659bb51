"""Each repair of n8n, done through the one door with the real bull playing worker and main, and each refusal of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recovery.actions import precheck, runner
from recovery.actions.audit import audit_log
from recovery.actions.bulk import bulk_runs, job_selection
from recovery.actions.bulk.job_selection import BulkSelection
from recovery.domain.actions.types import Action, ActionCommand, Outcome
from recovery.domain.stuck.types import VerdictKind
from recovery.errors import Unsupported
from recovery.n8n import guarded_operator as guard
from recovery.n8n import instance_store
from recovery.scanners.n8n.comparison import ComparisonScanner
from recovery.stores import registry
from tests.support.acting import ADMIN
from tests.support.n8n.n8n_instances import register
from tests.support.n8n.n8n_mending import EXECUTIONS, JOBS, MINUTES, Mending, mending
from tests.support.n8n.n8n_yard import Run, Yard
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.node]


@pytest.fixture
def n8n_release() -> str:
    return "1.123"


class TestFail:
    def test_main_hears_of_it_and_the_execution_becomes_an_error(self, here: Mending) -> None:
        run = here.lost()
        with here.yard.main(run) as main:
            until(lambda: here.client.pubsub_numsub("bull:jobs:failed")[0][1], what="main listens")
            foretold = here.look(Action.FAIL, run.job)
            result = here.does(Action.FAIL, run.job)
            assert main.wait() == "error"
        assert "nothing is left to run" in foretold.risk
        assert result.outcome is Outcome.DONE
        assert result.why == f"Its execution {run.execution} is error in n8n now."
        assert not here.is_there(run)

    def test_the_audit_names_the_execution(self, here: Mending) -> None:
        run = here.lost()
        here.does(Action.FAIL, run.job)
        intent, outcome = here.audited()
        assert intent["jobs"][0]["n8n"]["execution"] == run.execution
        assert intent["jobs"][0]["n8n"]["status"] == "running"
        assert outcome["jobs"][0]["outcome"] == "done"

    def test_when_main_was_restarted_it_says_that_nobody_listens(self, here: Mending) -> None:
        run = here.lost()
        result = here.does(Action.FAIL, run.job)
        assert result.outcome is Outcome.DONE
        assert "marked as crashed" in result.why
        assert here.yard.status(run.execution) == "running"

    @pytest.mark.parametrize(
        ("version", "words"),
        [
            ("2.41.1", "n8n was notified. It checks for up to 30 s whether the execution ends by itself"),
            ("2.40.7", "n8n did not react within 0.5 s: if its execution stays as it is, mark it"),
            ("", "n8n 2.41 and later set its execution to error after up to 30 s: if it stays"),
        ],
    )
    def test_a_main_that_takes_its_time_is_told_with_the_time_that_its_version_takes(
        self, here: Mending, monkeypatch: pytest.MonkeyPatch, version: str, words: str
    ) -> None:
        """Somebody listens, and the execution is not an error yet."""
        if version:
            register(here.client, "m", "main", version=version)
        store, known = here.state.client, instance_store.read_all(registry.registry(), {}, now_ms())
        instance_store.publish(store, known)
        monkeypatch.setattr(guard, "FOLLOWED", 0.5)
        run = here.lost()
        with here.client.pubsub() as main:
            main.subscribe("bull:jobs:failed")
            until(lambda: main.get_message(timeout=0.1), what="it listens")
            result = here.does(Action.FAIL, run.job)
        assert result.outcome is Outcome.DONE
        assert words in result.why

    @pytest.mark.parametrize("status", ["success", "error", "crashed", "canceled"])
    def test_an_execution_that_has_ended_is_not_failed(self, here: Mending, status: str) -> None:
        run = here.lost()
        here.yard.ended(run, status)
        result = here.does(Action.FAIL, run.job)
        assert result.outcome is Outcome.REFUSED
        assert result.why == f"Its execution {run.execution} has ended ({status}): remove the job."
        assert here.is_there(run)

    def test_one_that_ends_between_the_look_and_the_script_is_not_failed(
        self, here: Mending, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The look that judges sees it running; the one that holds its row sees that it has ended."""
        run, written = here.lost(), audit_log.write_intent

        def ends(*args: object, **more: object) -> int:
            here.yard.ended(run)
            return written(*args, **more)  # type: ignore[arg-type]

        order = here.order(Action.FAIL, run.job)
        monkeypatch.setattr(audit_log, "write_intent", ends)
        result = here.carry_out(order)
        assert result.outcome is Outcome.REFUSED
        assert "has ended (success)" in result.why
        assert result.audit is not None
        assert here.is_there(run)

    def test_one_that_was_deleted_is_not_failed(self, here: Mending) -> None:
        run = here.lost()
        here.yard.delete(run.execution)
        assert "was deleted in n8n" in here.does(Action.FAIL, run.job).why

    def test_one_that_is_put_aside_is_not_failed(self, here: Mending) -> None:
        run = here.lost()
        here.yard.update(run.execution, status="waiting")
        assert "resumes with a new job" in here.does(Action.FAIL, run.job).why

    def test_while_the_database_is_away_it_takes_force(self, here: Mending) -> None:
        run = here.lost()
        order = here.order(Action.FAIL, run.job)
        here.yard.run("ALTER TABLE {} RENAME TO elsewhere")
        refused = here.carry_out(order)
        assert refused.outcome is Outcome.REFUSED
        assert refused.why.endswith("This needs force.")
        assert here.does(Action.FAIL, run.job, force=True).outcome is Outcome.DONE


class TestRequeue:
    def test_with_consent_it_runs_again(self, here: Mending) -> None:
        run = here.lost()
        assert here.look(Action.REQUEUE, run.job).why.endswith("This needs consent.")
        assert here.does(Action.REQUEUE, run.job, consent=True).outcome is Outcome.DONE
        assert here.yard.queue().counts()["waiting"] == 1

    @pytest.mark.parametrize("status", ["success", "error", "crashed"])
    def test_an_execution_that_has_ended_is_never_run_again(self, here: Mending, status: str) -> None:
        run = here.lost()
        here.yard.ended(run, status)
        result = here.does(Action.REQUEUE, run.job, consent=True, force=True)
        assert result.outcome is Outcome.REFUSED
        assert f"has ended ({status})" in result.why
        assert here.yard.queue().counts()["waiting"] == 0

    def test_what_has_not_begun_is_put_back_without_a_consent(self, here: Mending) -> None:
        run = here.lost()
        here.yard.update(run.execution, status="new", startedAt=None)
        told = here.look(Action.REQUEUE, run.job)
        assert told.risk == "None of its steps has run: n8n counts its execution as new."
        assert here.does(Action.REQUEUE, run.job).outcome is Outcome.DONE
        assert here.yard.queue().counts()["waiting"] == 1

    def test_what_begins_between_the_look_and_the_script_is_not_put_back(
        self, here: Mending, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run, written = here.lost(), audit_log.write_intent
        here.yard.update(run.execution, status="new", startedAt=None)

        def begins(*args: object, **more: object) -> int:
            here.yard.started(run)
            return written(*args, **more)  # type: ignore[arg-type]

        order = here.order(Action.REQUEUE, run.job)
        monkeypatch.setattr(audit_log, "write_intent", begins)
        result = here.carry_out(order)
        assert result.outcome is Outcome.REFUSED
        assert "would run twice" in result.why
        assert here.yard.queue().counts()["active"] == 1


class TestCancel:
    def test_the_worker_is_told_as_n8n_tells_it(self, here: Mending) -> None:
        run = here.held()
        heard = here.yard.store.connect().pubsub()
        heard.subscribe("bull:jobs:progress")
        until(lambda: (heard.get_message(timeout=1) or {}).get("type") == "subscribe")
        here.watch.discover()
        risk = here.look(Action.CANCEL, run.job).risk
        result = here.does(Action.CANCEL, run.job)
        told = [json.loads(until(lambda: heard.get_message(timeout=1))["data"]) for _ in range(2)]
        heard.close()
        assert result.outcome is Outcome.DONE
        assert "becomes canceled" in risk
        assert told == [{"jobId": run.job, "progress": -1}, {"jobId": run.job, "progress": {"kind": "abort-job"}}]
        assert here.client.hget(f"bull:jobs:{run.job}", "progress") == b'{"kind":"abort-job"}'

    def test_when_nobody_listens_it_says_so_and_changes_nothing(self, here: Mending) -> None:
        run = here.held()
        here.watch.discover()
        result = here.does(Action.CANCEL, run.job)
        assert result.outcome is Outcome.REFUSED
        assert "no process was notified" in result.why
        assert here.client.hget(f"bull:jobs:{run.job}", "progress") in (None, b"0")


class TestRemove:
    @pytest.mark.parametrize("status", ["success", "crashed"])
    def test_the_job_of_an_execution_that_has_ended_goes(self, here: Mending, status: str) -> None:
        run = here.lost()
        here.yard.ended(run, status)
        assert here.does(Action.REMOVE, run.job).outcome is Outcome.DONE
        assert not here.is_there(run)
        assert here.yard.status(run.execution) == status

    def test_that_of_a_deleted_one_goes_while_it_waits(self, here: Mending) -> None:
        run = here.yard.begin()
        here.yard.delete(run.execution)
        assert here.does(Action.REMOVE, run.job).outcome is Outcome.DONE

    def test_that_of_one_that_is_going_goes_with_a_warning(self, here: Mending) -> None:
        run = here.yard.begin()
        assert "stays new in n8n" in here.look(Action.REMOVE, run.job).risk


class TestMark:
    def test_what_runs_without_a_job_becomes_crashed_as_n8n_writes_it(self, here: Mending) -> None:
        lost = here.yard.execution("running", ago=MINUTES)
        here.seen_alone(lost)
        assert "it can be retried" in here.look(Action.MARK, lost).risk
        result = here.does(Action.MARK, lost)
        assert (result.outcome, here.yard.status(lost)) == (Outcome.DONE, "crashed")
        (stopped, waits) = here.yard._rows(
            'SELECT "stoppedAt" IS NOT NULL, "waitTill" FROM {} WHERE id = %s', int(lost)
        )[0]
        assert (stopped, waits) == (True, None)

    def test_the_audit_names_the_execution(self, here: Mending) -> None:
        lost = here.yard.execution("running", ago=MINUTES)
        here.seen_alone(lost)
        here.does(Action.MARK, lost)
        intent, outcome = here.audited()
        assert intent["jobs"][0]["job"] == lost
        assert intent["jobs"][0]["n8n"] == {
            "execution": lost, "status": "running", "mode": "webhook", "workflow": "wfInvoices000001",
        }  # fmt: skip
        assert outcome["jobs"][0]["outcome"] == "done"

    def test_not_before_it_was_without_a_job_for_half_a_minute(self, here: Mending) -> None:
        lost = here.yard.execution("running", ago=MINUTES)
        result = here.does(Action.MARK, lost)
        assert result.outcome is Outcome.REFUSED
        assert "n8n itself waits 30 s" in result.why
        assert here.yard.status(lost) == "running"

    @pytest.mark.parametrize(("started_ago", "outcome"), [(MINUTES, Outcome.DONE), (10, Outcome.REFUSED)])
    def test_at_once_what_a_comparison_met_half_a_minute_ago_unless_it_was_started_since(
        self, here: Mending, started_ago: float, outcome: Outcome
    ) -> None:
        lost = here.yard.execution("running", ago=MINUTES)
        here.watch.discover()
        here.watch.look()
        scanner = ComparisonScanner(registry.registry(), lambda: here.watch.snapshot)
        assert scanner.run(now_ms() - 31_000)[0].pairs == ()
        here.yard.started(Run(lost, ""), ago=started_ago)
        assert here.does(Action.MARK, lost).outcome is outcome

    def test_not_while_a_worker_that_is_older_than_it_may_still_run_it(self, here: Mending) -> None:
        """As after a flush of Redis: the worker goes on, and writes how the execution ended."""
        run = here.held()
        here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}", f"bull:jobs:{run.job}:lock")
        here.seen_alone(run.execution)
        result = here.does(Action.MARK, run.execution)
        assert result.outcome is Outcome.REFUSED
        assert result.why.startswith("A worker has been connected since before it began, and may still run it.")
        assert result.why.endswith("This needs force.")
        assert here.yard.status(run.execution) == "running"
        assert here.does(Action.MARK, run.execution, force=True).outcome is Outcome.DONE

    def test_what_no_worker_has_begun_is_marked_beside_any_worker(self, here: Mending) -> None:
        here.yard.work()
        until(lambda: any("am9icw" in one["name"] for one in here.client.client_list()), what="it is connected")
        lost = here.yard.execution("new", ago=MINUTES)
        here.seen_alone(lost)
        assert here.does(Action.MARK, lost).outcome is Outcome.DONE

    def test_not_while_a_job_is_there_for_it(self, here: Mending) -> None:
        run = here.yard.begin(ago=MINUTES)
        here.seen_alone(run.execution)
        assert f"The job {run.job} of bull:jobs exists for it" in here.does(Action.MARK, run.execution).why

    @pytest.mark.parametrize("status", ["success", "error", "crashed", "canceled", "waiting"])
    def test_only_what_is_going(self, here: Mending, status: str) -> None:
        ended = here.yard.execution(status, ago=MINUTES)
        result = here.does(Action.MARK, ended)
        assert result.outcome is Outcome.REFUSED
        assert here.yard.status(ended) == status

    def test_what_n8n_runs_without_a_job_takes_force(self, here: Mending) -> None:
        by_hand = here.yard.execution("running", mode="manual", ago=MINUTES)
        here.seen_alone(by_hand)
        assert here.does(Action.MARK, by_hand).why.endswith("This needs force.")
        assert here.does(Action.MARK, by_hand, force=True).outcome is Outcome.DONE

    def test_one_that_ended_since_it_was_shown_is_left_alone(self, here: Mending) -> None:
        lost = here.yard.execution("running", ago=MINUTES)
        here.seen_alone(lost)
        order = here.order(Action.MARK, lost)
        here.yard.update(lost, status="success", finished=True)
        result = here.carry_out(order)
        assert (result.outcome, here.yard.status(lost)) == (Outcome.REFUSED, "success")

    def test_one_that_was_deleted_is_missing(self, here: Mending) -> None:
        lost = here.yard.execution("running", ago=MINUTES)
        order = here.order(Action.MARK, lost)
        here.yard.delete(lost)
        assert here.carry_out(order).outcome is Outcome.MISSING


def test_a_database_that_may_only_be_read_is_asked_and_not_written(
    yard: Yard, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{yard.place.url}"
    with mending(yard, state_store, tmp_path, monkeypatch, url=f'{url}"\nread_only = true\n#"') as here:
        run = here.lost()
        assert here.does(Action.FAIL, run.job).outcome is Outcome.DONE
        other = yard.execution("running", ago=MINUTES)
        here.seen_alone(other)
        assert "configured to be read only" in here.does(Action.MARK, other).why
        assert yard.status(other) == "running"


def test_an_n8n_that_is_newer_than_all_that_is_known_is_not_written(yard: Yard, here: Mending) -> None:
    yard.run('ALTER TABLE {} ADD COLUMN "novelty" text')
    lost = yard.execution("running", ago=MINUTES)
    here.seen_alone(lost)
    assert "nothing is written to them" in here.does(Action.MARK, lost).why
    assert yard.status(lost) == "running"


def test_without_a_database_the_risk_is_said(
    yard: Yard, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mending(yard, state_store, tmp_path, monkeypatch) as here:
        path = tmp_path / "unstall.toml"
        path.write_text(path.read_text().replace('[[n8n]]\ndatabase = "n8n"', "[[n8n]]"))
        registry.reset()
        run = here.lost()
        assert "is not configured" in here.look(Action.FAIL, run.job).risk
        assert here.does(Action.FAIL, run.job).outcome is Outcome.DONE


def test_n8ns_queue_is_never_paused(here: Mending) -> None:
    here.yard.begin()
    here.watch.discover()
    (result,) = runner.perform(ActionCommand(Action.PAUSE, JOBS, ADMIN, "to be calm"))
    assert result.outcome is Outcome.REFUSED
    assert "marks the executions that wait in it as crashed" in result.why


def test_what_is_for_executions_is_not_done_to_jobs(here: Mending) -> None:
    run = here.lost()
    assert here.watch.sees(JOBS, VerdictKind.ABANDONED)
    for act in (Action.MARK, Action.RETRY_EXECUTION):
        with pytest.raises(Unsupported):
            runner.perform(ActionCommand(act, JOBS, ADMIN, "wrong", runner.current_jobs(JOBS, (run.job,))))


def test_what_the_leader_has_listed_for_half_a_minute_is_marked_at_once(here: Mending) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    here.watch.discover()
    here.watch.look()
    watch = ComparisonScanner(here.watch.registry, lambda: here.watch.snapshot)
    watch.run(now_ms() - 31_000)
    watch.run(now_ms())
    assert here.does(Action.MARK, lost).outcome is Outcome.DONE


def test_a_mark_of_one_that_was_started_again_counts_for_nothing(here: Mending) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    here.seen_alone(lost)
    here.yard.update(lost, startedAt="2026-01-01T00:00:00Z")
    assert "n8n itself waits" in here.does(Action.MARK, lost).why


def test_marks_of_what_is_over_are_forgotten_after_a_day(here: Mending) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    here.look(Action.MARK, lost)
    here.yard.ended(Run(lost, ""), "success")
    here.watch.discover()
    here.watch.look()
    watch = ComparisonScanner(here.watch.registry, lambda: here.watch.snapshot)
    watch.run(now_ms() + 86_000_000)
    assert here.state.client.hlen("unstall:n8n:alone") == 1
    watch.run(now_ms() + 86_500_000)
    assert here.state.client.hlen("unstall:n8n:alone") == 0


def test_executions_are_not_gathered(here: Mending) -> None:
    """There is no list of them in Redis, and "all" must not come to nothing in silence."""
    order = ActionCommand(Action.MARK, EXECUTIONS, ADMIN, "all of them")
    chosen = BulkSelection.all("failed", now_ms())
    with pytest.raises(Unsupported, match="one by one"):
        bulk_runs.order(order, chosen)
    with pytest.raises(Unsupported, match="one by one"):
        list(job_selection.iterate_jobs(precheck.build_context(EXECUTIONS, Action.MARK), chosen))


def test_several_are_marked_in_one_order(here: Mending) -> None:
    lost = [here.yard.execution("running", ago=MINUTES) for _ in range(3)]
    for one in lost:
        here.seen_alone(one)
    results = runner.perform(here.order(Action.MARK, *lost))
    assert [result.outcome for result in results] == [Outcome.DONE] * 3
    assert {here.yard.status(one) for one in lost} == {"crashed"}
