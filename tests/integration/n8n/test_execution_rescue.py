"""The scheduler rescues lost executions of workflows that ask for it: each once, and with the rules of the button."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery import shared_clock
from recovery.domain.n8n.lost_executions import LostExecutionOutcome
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader, no_rival
from recovery.domain.time_units import MINUTE
from recovery.models import AuditEntry, LostExecution
from recovery.n8n import lost_executions
from recovery.scanners.n8n.execution_copies import ExecutionCopyWatch
from recovery.scanners.n8n.execution_rescue import ATTEMPTS, ExecutionRescue
from recovery.stores import registry
from recovery.stores.state.shared_read import windows
from tests.support.n8n.n8n_api import PublicApi
from tests.support.n8n.n8n_mending import KEPT, OVERWRITTEN, Mending
from tests.support.n8n.n8n_yard import Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.node]
RESCUE = """
[[n8n.rescue]]
workflow = "wfInvoices000001"
idempotent = "every step asks once"
automatic = true
"""


@pytest.fixture
def n8n_settings(api: PublicApi) -> str:
    return api.settings + RESCUE


@pytest.fixture
def run(here: Mending) -> Run:
    """An execution at risk, with its copy."""
    run = here.lost()
    here.keeps(run.execution)
    look(here)
    return run


def look(here: Mending) -> None:
    snapshot = here.watch.snapshot
    ExecutionCopyWatch(registry.registry(), lambda: snapshot).run(shared_clock.now())


def leader(holds: Callable[[], bool] = always_leader, rival: Callable[[str], str] = no_rival) -> ExecutionRescue:
    windows.forget()
    return ExecutionRescue(registry.registry(), LeaderToken(7, holds, rival=rival))


def now() -> int:
    return shared_clock.now()


def test_it_runs_again_once_and_the_audit_names_the_scanner_and_the_note(api: PublicApi, run: Run) -> None:
    rescue = leader()
    rescue.run(now())
    rescue.run(now() + MINUTE)
    assert (len(api.made), api.read) == (1, [KEPT])
    assert lost_executions.newest()[0].outcome is LostExecutionOutcome.RESCUED
    entry = AuditEntry.objects.filter(phase="intent").get()
    assert (entry.actor_kind, entry.actor, entry.act) == ("scanner", "execution-rescue", "rescue")
    assert "every step asks once" in entry.reason


def test_what_n8n_was_faster_with_is_restored_from_the_copy(here: Mending, api: PublicApi, run: Run) -> None:
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    here.yard.ended(run, "error")
    here.keeps(run.execution, OVERWRITTEN)
    look(here)
    leader().run(now())
    assert api.read == [KEPT]
    assert lost_executions.newest()[0].outcome is LostExecutionOutcome.RETRIED


@pytest.mark.parametrize(
    "changes",
    [{"workflow": "another"}, {"mode": "retry"}, {"proven_at": None}, {"claimed_at": 1 << 60}],
    ids=["a workflow that does not ask", "a retry itself", "not proven", "another rescue"],
)
def test_everything_else_is_left_to_people(api: PublicApi, run: Run, changes: dict[str, object]) -> None:
    LostExecution.objects.update(**changes)
    leader().run(now())
    assert not api.asked


def test_old_history_is_not_run_again(here: Mending, api: PublicApi, run: Run) -> None:
    here.yard.ended(run, "error")
    LostExecution.objects.update(outcome="lost", ended_at=now() - 11 * MINUTE)
    leader().run(now())
    assert not api.asked


@pytest.mark.parametrize(
    "process",
    [lambda: leader(holds=lambda: False), lambda: leader(rival=lambda _: "another console acts here")],
    ids=["does not lead", "another console"],
)
def test_only_the_leader_where_no_other_console_acts(
    api: PublicApi, run: Run, process: Callable[[], ExecutionRescue]
) -> None:
    process().run(now())
    assert not api.asked


def test_what_n8n_refuses_is_tried_three_times(api: PublicApi, run: Run) -> None:
    rescue = leader()
    api.faults += [401] * (ATTEMPTS + 2)
    for minute in range(ATTEMPTS + 2):
        rescue.run(now() + minute * MINUTE)
    assert len(api.asked) == ATTEMPTS
