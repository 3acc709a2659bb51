"""The rescue of an execution whose worker was killed: before n8n overwrites its data, and from the copy afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from recovery import shared_clock
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.stuck.types import VerdictKind
from recovery.models import ExecutionCopy, LostExecution
from recovery.n8n import api_client, lost_executions
from recovery.scanners.n8n.execution_copies import ExecutionCopyWatch
from recovery.stores import registry
from tests.support.n8n.n8n_api import HANG, PublicApi
from tests.support.n8n.n8n_mending import JOBS, KEPT, OVERWRITTEN, Mending, mending
from tests.support.n8n.n8n_yard import Run, Yard
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Postgresql
from tests.support.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.node]
Begin = Callable[..., Mending]
IDEMPOTENT = '[[n8n.rescue]]\nworkflow = "wfInvoices000001"\nidempotent = "every step asks once"'


@pytest.fixture
def begin(
    yard: Yard, api: PublicApi, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Begin]:
    contexts = []

    def begin(more: str = "", url: str = "") -> Mending:
        contexts.append(mending(yard, state_store, tmp_path, monkeypatch, more=api.settings + more, url=url))
        return contexts[-1].__enter__()

    yield begin
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture
def here(begin: Begin) -> Mending:
    return begin()


def look(here: Mending, *, later: int = 0) -> LostExecutionRecord | None:
    """One look of the scheduler, as if `later` ms had passed; the one execution of the history after it."""
    snapshot = here.watch.snapshot
    ExecutionCopyWatch(registry.registry(), lambda: snapshot).run(shared_clock.now() + later)
    return next(iter(lost_executions.newest()), None)


def at_risk(here: Mending) -> Run:
    """A running execution whose only worker was killed, with its copy."""
    run = here.lost()
    here.keeps(run.execution)
    loss = look(here)
    assert loss is not None
    assert loss.has_copy
    return run


def lost(here: Mending) -> Run:
    """One that n8n has failed and overwritten."""
    run = at_risk(here)
    overwrite(here, run)
    loss = look(here)
    assert loss is not None
    assert loss.outcome is LostExecutionOutcome.LOST
    return run


def overwrite(here: Mending, run: Run) -> None:
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    here.yard.ended(run, "error")
    here.keeps(run.execution, OVERWRITTEN)


def history() -> tuple[LostExecutionOutcome, str, bool]:
    (loss,) = lost_executions.newest()
    return loss.outcome, loss.retried_as, loss.has_copy


def test_before_n8n_overwrites_it_it_runs_again_from_n8ns_own_data(here: Mending, api: PublicApi) -> None:
    run = at_risk(here)
    result = here.does(Action.RESCUE, run.execution, consent=True)
    assert (result.outcome, result.why) == (Outcome.DONE, f"It runs again as execution {api.made[0]}.")
    assert api.read == [KEPT]
    assert history() == (LostExecutionOutcome.RESCUED, api.made[0], False)


def test_afterwards_the_copy_is_written_back_and_n8n_retries_it(here: Mending, api: PublicApi) -> None:
    run = lost(here)
    result = here.does(Action.RESCUE, run.execution, consent=True)
    assert result.outcome is Outcome.DONE
    assert result.why == f"Its data was restored from the copy. It runs again as execution {api.made[0]}."
    assert api.read == [KEPT]
    assert here.yard.data(run.execution) == KEPT
    assert here.yard.status(run.execution) == "error"
    assert history() == (LostExecutionOutcome.RETRIED, api.made[0], False)


@pytest.mark.parametrize("state", [at_risk, lost])
def test_it_runs_again_once(here: Mending, api: PublicApi, state: Callable[[Mending], Run]) -> None:
    run = state(here)
    here.does(Action.RESCUE, run.execution, consent=True)
    again = here.does(Action.RESCUE, run.execution, consent=True, force=True)
    assert again.why == f"It ran again already, as execution {api.made[0]}."
    assert len(api.made) == 1


@pytest.mark.parametrize("state", [at_risk, lost])
def test_two_that_rescue_it_at_once_begin_one_run(
    here: Mending, api: PublicApi, state: Callable[[Mending], Run]
) -> None:
    run = state(here)
    orders = [here.order(Action.RESCUE, run.execution, consent=True) for _ in range(2)]
    results = []
    other = threading.Thread(target=lambda: results.append(here.carry_out(orders[1])))

    def meet() -> None:
        other.start()
        until(lambda: results, what="the other was refused")

    api.meanwhile = meet
    results.append(here.carry_out(orders[0]))
    other.join()
    assert sorted(one.outcome for one in results) == [Outcome.DONE, Outcome.REFUSED]
    assert len(api.made) == 1


@pytest.mark.parametrize("state", [at_risk, lost])
def test_it_takes_consent(here: Mending, api: PublicApi, state: Callable[[Mending], Run]) -> None:
    run = state(here)
    assert here.does(Action.RESCUE, run.execution).why.endswith("This needs consent.")
    assert not api.asked


def test_or_a_workflow_whose_steps_may_run_twice(begin: Begin, api: PublicApi) -> None:
    here = begin(IDEMPOTENT)
    run = at_risk(here)
    assert "Its steps may run twice: every step asks once" in here.look(Action.RESCUE, run.execution).risk
    assert here.does(Action.RESCUE, run.execution).outcome is Outcome.DONE


def test_n8n_overwrites_it_only_after_the_retry_has_read_it(here: Mending, api: PublicApi) -> None:
    run = at_risk(here)
    main = threading.Thread(target=overwrite, args=(here, run))

    def race() -> None:
        main.start()
        until(here.yard.waits_for_lock, what="main waits for the row")

    api.meanwhile = race
    assert here.does(Action.RESCUE, run.execution, consent=True).outcome is Outcome.DONE
    main.join()
    assert api.read == [KEPT]
    assert here.yard.data(run.execution) == OVERWRITTEN


def test_what_n8n_has_overwritten_meanwhile_is_refused_and_rescued_from_the_copy_next(
    here: Mending, api: PublicApi
) -> None:
    run = at_risk(here)
    order = here.order(Action.RESCUE, run.execution, consent=True)
    overwrite(here, run)
    assert here.carry_out(order).outcome is Outcome.REFUSED
    assert not api.asked
    assert here.does(Action.RESCUE, run.execution, consent=True).outcome is Outcome.DONE
    assert api.read == [KEPT]


def test_one_that_a_worker_runs_has_nothing_to_rescue(here: Mending, api: PublicApi) -> None:
    run = here.held()
    assert "nothing to rescue" in here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert not api.asked


def test_one_that_a_worker_holds_again_is_refused(here: Mending, api: PublicApi) -> None:
    run = at_risk(here)
    here.client.set(f"bull:jobs:{run.job}:lock", "somebody", px=60_000)
    worker = here.yard.work()
    until(lambda: here.watch.look() and _workers(here), what="the snapshot has a worker")
    assert "not proven" in here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert not api.asked
    worker.kill()


def test_before_it_is_proven_that_the_worker_is_gone_it_is_refused(here: Mending, api: PublicApi) -> None:
    run = at_risk(here)
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    LostExecution.objects.update(verdict=VerdictKind.LATE.value, proven_at=None)
    why = here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert "was not proven before" in why
    assert not api.asked


def test_after_n8n_failed_it_without_that_proof_it_takes_force(here: Mending, api: PublicApi) -> None:
    run = lost(here)
    LostExecution.objects.update(verdict=VerdictKind.LATE.value, proven_at=None)
    assert here.does(Action.RESCUE, run.execution, consent=True).why.endswith("This needs force.")
    assert here.does(Action.RESCUE, run.execution, consent=True, force=True).outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("status", "why"), [("success", "It is success"), ("canceled", "It is canceled"), ("new", "requeue its job")]
)
def test_what_was_not_lost_is_refused(here: Mending, api: PublicApi, status: str, why: str) -> None:
    run = at_risk(here)
    here.yard.update(run.execution, status=status)
    assert why in here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert not api.asked


def test_what_was_retried_in_n8n_is_not_run_a_second_time(here: Mending, api: PublicApi) -> None:
    run = lost(here)
    again = here.yard.execution("running", mode="retry")
    here.yard.update(again, retryOf=run.execution)
    why = here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert why == f"It ran again already, as execution {again}."


def test_without_a_copy_it_is_said_why_there_is_none(here: Mending, api: PublicApi) -> None:
    run = lost(here)
    ExecutionCopy.objects.all().delete()
    LostExecution.objects.update(copy_trouble="Its data was too large.")
    why = here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert why == "There is no copy of its data. Its data was too large."


def test_a_copy_of_another_secret_key_is_not_used(here: Mending, api: PublicApi) -> None:
    run = lost(here)
    with override_settings(SECRET_KEY="k" * 50):
        result = here.does(Action.RESCUE, run.execution, consent=True)
    assert (result.outcome, "another UNSTALL_SECRET_KEY" in result.why) == (Outcome.REFUSED, True)
    assert here.yard.data(run.execution) == OVERWRITTEN


def test_what_n8n_refuses_can_be_rescued_again(here: Mending, api: PublicApi) -> None:
    run = lost(here)
    api.faults.append(401)
    result = here.does(Action.RESCUE, run.execution, consent=True)
    assert (result.outcome, "restored" in result.why, "API key" in result.why) == (Outcome.REFUSED, True, True)
    assert history() == (LostExecutionOutcome.LOST, "", True)
    assert here.does(Action.RESCUE, run.execution, consent=True).outcome is Outcome.DONE
    assert api.read == [KEPT]


def test_of_what_is_unsure_nobody_begins_a_second_run_until_it_is_known(
    here: Mending, api: PublicApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "SECONDS", 1.0)
    run = lost(here)
    api.faults.append(HANG)
    assert here.does(Action.RESCUE, run.execution, consent=True).outcome is Outcome.UNKNOWN
    assert "has begun" in here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    LostExecution.objects.update(claimed_at=shared_clock.now() - 121_000)
    assert here.does(Action.RESCUE, run.execution, consent=True).outcome is Outcome.DONE


def test_a_lost_answer_is_found_in_the_database(here: Mending, api: PublicApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "SECONDS", 1.0)
    run = lost(here)
    api.faults.append(HANG)
    here.does(Action.RESCUE, run.execution, consent=True)
    made = api.retry(run.execution)
    look(here)
    assert history() == (LostExecutionOutcome.RETRIED, made, False)


def test_the_audit_tells_what_it_was_decided_by(here: Mending, api: PublicApi) -> None:
    run = lost(here)
    here.does(Action.RESCUE, run.execution, consent=True)
    intent, outcome = here.audited()
    told = intent["jobs"][0]["n8n"]
    assert (told["status"], told["verdict"], told["overwritten"]) == ("error", "abandoned", True)
    assert outcome["jobs"][0]["outcome"] == "done"


def test_before_n8n_2_the_job_is_put_back_and_nothing_is_rescued(
    begin: Begin, api: PublicApi, yard: Yard, postgresql: Postgresql
) -> None:
    for column in ("storedAt", "tracingContext", "deduplicationKey", "jsonSizeBytes", "workflowVersionId",
                   "binaryDataSizeBytes", "usedPrivateCredentials"):  # fmt: skip
        postgresql.run(f'ALTER TABLE execution_entity DROP COLUMN "{column}"')
    here = begin()
    run = at_risk(here)
    assert "requeues its job" in here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert not api.asked


@pytest.fixture
def reader(postgresql: Postgresql) -> Iterator[str]:
    """The URL of a user who may read all; gone afterwards."""
    postgresql.run("CREATE ROLE reader LOGIN")
    yield postgresql.url.replace("unstall@", "reader@")
    postgresql.run("DROP OWNED BY reader")
    postgresql.run("DROP ROLE reader")


@pytest.mark.parametrize(
    ("grants", "why"),
    [
        ((), "GRANT UPDATE (status)"),
        (('UPDATE (status, "stoppedAt", "waitTill") ON execution_entity',), "GRANT UPDATE (data)"),
    ],
    ids=["none", "without the data"],
)
def test_a_missing_right_is_named(
    begin: Begin, postgresql: Postgresql, reader: str, grants: tuple[str, ...], why: str
) -> None:
    for grant in ("USAGE ON SCHEMA public", "SELECT ON ALL TABLES IN SCHEMA public", *grants):
        postgresql.run(f"GRANT {grant} TO reader")
    here = begin(url=reader)
    run = lost(here)
    assert why in here.does(Action.RESCUE, run.execution, consent=True, force=True).why
    assert here.yard.data(run.execution) == OVERWRITTEN


def _workers(here: Mending) -> bool:
    return any(worker.queue == JOBS for worker in here.watch.snapshot.workers)
