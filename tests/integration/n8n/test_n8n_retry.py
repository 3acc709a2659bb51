"""The retry of an execution through n8n's public API, which a server on loopback plays as it is documented."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.actions.bulk import bulk_runs, run_rows
from recovery.domain.actions.types import Action, Outcome
from recovery.models import BulkRun
from recovery.n8n import api_client
from recovery.n8n.database import executions
from recovery.stores import registry
from tests.support.n8n.n8n_api import GARBAGE, HANG, HUGE, KEY, RESET, PublicApi
from tests.support.n8n.n8n_mending import KEPT, MINUTES, OVERWRITTEN, Mending, mending
from tests.support.n8n.n8n_yard import Yard
from tests.support.stores.stores import Store
from tests.support.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.node]


@pytest.fixture
def n8n_release() -> str:
    return "1.123"


@pytest.fixture
def n8n_settings(api: PublicApi) -> str:
    return api.settings


@pytest.fixture
def failed(here: Mending) -> str:
    """An execution that ended with an error at one of its nodes."""
    execution = here.yard.execution("error", ago=MINUTES, stopped=MINUTES)
    here.keeps(execution)
    return execution


def test_the_new_execution_is_told_while_it_still_runs(here: Mending, api: PublicApi, failed: str) -> None:
    result = here.does(Action.RETRY_EXECUTION, failed)
    assert result.outcome is Outcome.DONE
    assert result.why == f"It runs again as execution {api.made[0]}."
    assert here.yard.status(api.made[0]) == "running"
    assert not api.ended.is_set()


def test_the_key_goes_along_and_nothing_else(here: Mending, api: PublicApi, failed: str) -> None:
    here.does(Action.RETRY_EXECUTION, failed)
    (asked,) = api.asked
    assert (asked.path, asked.headers["x-n8n-api-key"], asked.body) == (f"/api/v1/executions/{failed}/retry", KEY, {})


def test_with_the_workflow_as_it_is_saved_now(here: Mending, api: PublicApi, failed: str) -> None:
    here.does(Action.RETRY_EXECUTION, failed, latest=True)
    assert api.asked[0].body == {"loadWorkflow": True}


def test_an_execution_that_is_over_before_the_first_look_is_told_too(
    here: Mending, api: PublicApi, failed: str
) -> None:
    api.ended.set()
    assert here.does(Action.RETRY_EXECUTION, failed).outcome is Outcome.DONE


def test_one_whose_worker_died_takes_consent_and_keeps_its_job(here: Mending, api: PublicApi) -> None:
    run = here.lost()
    here.keeps(run.execution)
    refused = here.does(Action.RETRY_EXECUTION, run.execution)
    assert refused.why.endswith("This needs consent.")
    assert not api.asked
    assert "fail its job afterwards" in here.look(Action.RETRY_EXECUTION, run.execution, consent=True).risk
    assert here.does(Action.RETRY_EXECUTION, run.execution, consent=True).outcome is Outcome.DONE
    assert here.is_there(run)


def test_one_that_a_worker_runs_is_refused(here: Mending, api: PublicApi) -> None:
    run = here.held()
    here.keeps(run.execution)
    assert "A worker runs it" in here.does(Action.RETRY_EXECUTION, run.execution, consent=True, force=True).why
    assert not api.asked


def test_one_whose_job_waits_is_refused(here: Mending, api: PublicApi) -> None:
    run = here.yard.begin()
    here.yard.started(run)
    here.keeps(run.execution)
    assert "Its job waits" in here.does(Action.RETRY_EXECUTION, run.execution, consent=True).why


def test_one_without_a_job_is_refused_until_half_a_minute_is_over(here: Mending, api: PublicApi) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    here.keeps(lost)
    assert "n8n itself waits" in here.does(Action.RETRY_EXECUTION, lost, consent=True).why
    here.seen_alone(lost)
    assert here.does(Action.RETRY_EXECUTION, lost, consent=True).outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("status", "why"), [("success", "succeeded"), ("new", "is not running any more"), ("waiting", "is not running")]
)
def test_what_n8n_does_not_retry_is_not_asked_for(here: Mending, api: PublicApi, status: str, why: str) -> None:
    other = here.yard.execution(status, ago=MINUTES)
    here.keeps(other)
    assert why in here.does(Action.RETRY_EXECUTION, other, consent=True, force=True).why
    assert not api.asked


def test_what_n8n_has_written_over_would_run_nothing(here: Mending, api: PublicApi, failed: str) -> None:
    here.keeps(failed, OVERWRITTEN)
    result = here.does(Action.RETRY_EXECUTION, failed, consent=True, force=True)
    assert "a retry would end immediately without doing anything" in result.why
    assert not api.asked


@pytest.mark.parametrize("kept", ["no JSON", "[]", '["1"]', '[{"executionData":"99"}]', '[{"executionData":"x"}]'])
def test_what_cannot_be_read_is_said_to_be_unknown(here: Mending, api: PublicApi, failed: str, kept: str) -> None:
    here.keeps(failed, kept)
    assert "It is unknown" in here.look(Action.RETRY_EXECUTION, failed).risk


def test_what_is_new_and_without_a_job_is_marked_first_and_runs_for_the_first_time(
    here: Mending, api: PublicApi
) -> None:
    lost = here.yard.execution("new", ago=MINUTES)
    here.keeps(lost)
    here.seen_alone(lost)
    assert here.does(Action.RETRY_EXECUTION, lost, consent=True).why.endswith("This needs mark.")
    result = here.does(Action.RETRY_EXECUTION, lost, mark=True)
    assert result.outcome is Outcome.DONE
    assert result.why == f"Its row is now marked as crashed. It runs again as execution {api.made[0]}."
    assert here.yard.status(lost) == "crashed"


def test_what_was_marked_and_not_retried_says_both(here: Mending, api: PublicApi) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    here.keeps(lost)
    here.seen_alone(lost)
    api.faults.append(403)
    assert here.does(Action.RETRY_EXECUTION, lost, mark=True).why.endswith("This needs consent.")
    result = here.does(Action.RETRY_EXECUTION, lost, mark=True, consent=True)
    assert result.outcome is Outcome.REFUSED
    assert result.why.startswith("Its row is now marked as crashed. n8n's API key lacks")
    assert here.yard.status(lost) == "crashed"


def test_one_that_has_a_job_is_not_marked_before_a_retry(here: Mending, api: PublicApi) -> None:
    run = here.lost()
    here.keeps(run.execution)
    refused = here.does(Action.RETRY_EXECUTION, run.execution, consent=True, mark=True)
    assert refused.why.endswith("exists for it: fail or remove that job.")
    assert (here.yard.status(run.execution), api.asked) == ("running", [])


def test_one_that_was_retried_already_takes_force(here: Mending, api: PublicApi, failed: str) -> None:
    assert here.does(Action.RETRY_EXECUTION, failed).outcome is Outcome.DONE
    refused = here.does(Action.RETRY_EXECUTION, failed)
    assert refused.why.startswith(f"It was retried already, as execution {api.made[0]}")
    assert refused.why.endswith("This needs force.")
    assert here.does(Action.RETRY_EXECUTION, failed, force=True).outcome is Outcome.DONE
    assert len(api.made) == 2


class TestManyInABulkRun:
    """Of more than a page the scheduler makes a run; each is asked for once, whatever becomes of the process."""

    @pytest.fixture
    def lost(self, here: Mending) -> list[str]:
        found = [here.yard.execution("new" if number % 2 else "running", ago=MINUTES) for number in range(7)]
        for one in found:
            here.keeps(one)
        here.seen_alone(*found)
        return found

    def ordered(self, here: Mending, lost: list[str]) -> BulkRun:
        return bulk_runs.order(here.order(Action.RETRY_EXECUTION, *lost, mark=True, consent=True))

    def worked(self, run: BulkRun) -> BulkRun:
        runner = bulk_runs.BulkRunner(registry.registry())

        def is_over() -> bool:
            runner.run(0)
            run.refresh_from_db()
            return run.status not in run_rows.OPEN

        until(is_over, 30)
        runner.close()
        return run

    def test_each_is_marked_and_retried_once(self, here: Mending, api: PublicApi, lost: list[str]) -> None:
        run = self.worked(self.ordered(here, lost))
        assert (run.status, run.done, run.total) == ("ended", 7, 7)
        assert {here.yard.status(one) for one in lost} == {"crashed"}
        assert sorted(asked.path for asked in api.asked) == sorted(f"/api/v1/executions/{one}/retry" for one in lost)

    def test_one_of_which_n8n_did_not_say_what_came_of_it_is_not_tried_again(
        self, here: Mending, api: PublicApi, lost: list[str]
    ) -> None:
        api.faults.append(RESET)
        run = self.worked(self.ordered(here, lost))
        assert (run.done, run.unknown, len(api.asked)) == (6, 1, 7)

    def test_what_was_tried_when_the_process_died_is_not_tried_again(
        self, here: Mending, api: PublicApi, lost: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Killed(BaseException):
            pass

        def dies(*_: object) -> None:
            raise Killed

        run = self.ordered(here, lost)
        with monkeypatch.context() as patch:
            patch.setattr(executions, "newest", dies)  # right before the first request
            killed = bulk_runs.BulkRunner(registry.registry())
            with pytest.raises(Killed):
                killed.run(0)
            killed.close()
        run = self.worked(run)
        assert (run.done, run.unknown, len(api.asked)) == (2, 5, 2)


ANSWERS: dict[int | str, tuple[Outcome, str]] = {
    401: (Outcome.REFUSED, "n8n does not accept our API key"),
    403: (Outcome.REFUSED, "execution:retry"),
    404: (Outcome.REFUSED, "404 Not Found"),
    409: (Outcome.REFUSED, "409 Conflict"),
    429: (Outcome.REFUSED, "rate-limits requests"),
    302: (Outcome.REFUSED, "not followed"),
    500: (Outcome.UNKNOWN, "500 Internal Server Error"),
    503: (Outcome.UNKNOWN, "503 Service Unavailable"),
    GARBAGE: (Outcome.UNKNOWN, "not like n8n"),
    HUGE: (Outcome.UNKNOWN, "not like n8n"),
    RESET: (Outcome.UNKNOWN, "closed the connection"),
}


@pytest.mark.parametrize("fault", ANSWERS)
def test_what_n8n_answers_instead_is_told_without_its_secrets(
    here: Mending, api: PublicApi, failed: str, fault: int | str
) -> None:
    api.faults.append(fault)
    outcome, why = ANSWERS[fault]
    result = here.does(Action.RETRY_EXECUTION, failed)
    assert result.outcome is outcome
    assert why in result.why
    assert "s3cr3t" not in result.why
    assert KEY not in result.why


def test_the_library_s_line_of_the_request_is_not_in_the_log(
    here: Mending, api: PublicApi, failed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A command's stderr is the log."""
    caplog.set_level(logging.INFO)
    api.faults.append(401)
    here.does(Action.RETRY_EXECUTION, failed)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("http")] == []


def test_one_that_says_nothing_is_left_and_the_outcome_is_unknown(
    here: Mending, api: PublicApi, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "SECONDS", 1.0)
    api.faults.append(HANG)
    result = here.does(Action.RETRY_EXECUTION, failed)
    assert result.outcome is Outcome.UNKNOWN
    assert "within 1 s" in result.why or "in time" in result.why


def test_where_nobody_listens_nothing_was_begun(
    yard: Yard, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mending(
        yard, state_store, tmp_path, monkeypatch, more=f'api = "http://127.0.0.1:9"\napi_key = "{KEY}"'
    ) as here:
        failed = yard.execution("error", ago=MINUTES, stopped=MINUTES)
        here.keeps(failed)
        result = here.does(Action.RETRY_EXECUTION, failed)
    assert (result.outcome, result.why) == (Outcome.REFUSED, "n8n cannot be reached: connection refused.")


def test_another_key_is_refused_by_n8n(
    yard: Yard, api: PublicApi, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mending(yard, state_store, tmp_path, monkeypatch, more=f'api = "{api.url}"\napi_key = "other"') as here:
        failed = yard.execution("error", ago=MINUTES, stopped=MINUTES)
        here.keeps(failed)
        assert "does not accept our API key" in here.does(Action.RETRY_EXECUTION, failed).why


def test_without_a_key_it_is_not_even_asked(
    yard: Yard, api: PublicApi, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mending(yard, state_store, tmp_path, monkeypatch, more=f'api = "{api.url}"') as here:
        failed = yard.execution("error", ago=MINUTES, stopped=MINUTES)
        here.keeps(failed)
        assert "No API key of n8n is configured" in here.does(Action.RETRY_EXECUTION, failed).why
    assert not api.asked


@pytest.fixture(params=["trusted", "strange"])
def secured(request: pytest.FixtureRequest, yard: Yard, certificates: Path) -> Iterator[tuple[bool, str]]:
    """Whether its certificate is to be trusted, and what stands in [[n8n]]."""
    is_trusted = request.param == "trusted"
    with PublicApi(yard, tls=certificates) as api:
        ca = f'\ntls_ca = "{certificates}/ca.crt"' if is_trusted else ""
        yield is_trusted, f'api = "{api.url}"\napi_key = "{KEY}"{ca}'


def test_tls_is_trusted_as_configured(
    yard: Yard, secured: tuple[bool, str], state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_trusted, more = secured
    with mending(yard, state_store, tmp_path, monkeypatch, more=more) as here:
        failed = yard.execution("error", ago=MINUTES, stopped=MINUTES)
        here.keeps(failed, KEPT)
        result = here.does(Action.RETRY_EXECUTION, failed)
    assert result.outcome is (Outcome.DONE if is_trusted else Outcome.REFUSED)
    assert is_trusted or "certificate was rejected" in result.why
