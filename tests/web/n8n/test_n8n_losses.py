"""The history of n8n's lost executions on /stuck/n8n, in the API and in the shell, and the button that rescues one."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from recovery import shared_clock
from recovery.domain.n8n.lost_executions import LostExecutionOutcome
from recovery.models import ExecutionCopy, LostExecution
from recovery.n8n import comparison_store, lost_executions
from recovery.n8n.comparison import ComparisonRequest
from recovery.n8n.comparison import compare as look_at
from recovery.scanners.n8n.execution_copies import ExecutionCopyWatch
from recovery.stores import registry
from recovery.stores.state.shared_read import windows
from tests.support.machines import Machine, told
from tests.support.n8n.n8n_api import PublicApi
from tests.support.n8n.n8n_mending import KEPT, OVERWRITTEN, Mending
from tests.support.n8n.n8n_yard import Run
from tests.support.people import browser, person, text
from tests.web.acting import confirm

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.node]
SECRET = "name of a customer"


@pytest.fixture
def n8n_workflow() -> str:
    return "<b>Invoices</b>"


@pytest.fixture
def n8n_settings(api: PublicApi) -> str:
    return f'{api.settings}editor = "https://n8n.example.com"'


@pytest.fixture
def run(here: Mending) -> Run:
    """An execution at risk, with its copy."""
    run = here.lost()
    here.keeps(run.execution, KEPT.replace('"node"', f'"{SECRET}"'))
    look(here)
    return run


def look(here: Mending) -> None:
    snapshot = here.watch.snapshot
    ExecutionCopyWatch(registry.registry(), lambda: snapshot).run(shared_clock.now())


def overwrite(here: Mending, run: Run) -> None:
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    here.yard.ended(run, "error")
    here.keeps(run.execution, OVERWRITTEN)
    look(here)


def section(client: Client) -> str:
    return text(client, "/stuck/n8n").partition('id="losses-head"')[2]


def shell(*arguments: str) -> str:
    written = StringIO()
    call_command("n8n", *arguments, stdout=written)
    return written.getvalue()


def test_the_page_tells_the_loss_the_way_and_its_time_and_the_button_does_it(
    here: Mending, run: Run, api: PublicApi
) -> None:
    operator = browser(person(UserRole.OPERATOR))
    page = section(operator)
    assert "1 at risk" in page
    assert "&lt;b&gt;Invoices&lt;/b&gt;" in page
    assert "It can be retried before n8n overwrites its data." in page
    assert f"/executions/{run.execution}" in page
    link = re.search(r'href="([^"]+)"[^>]*aria-label="Rescue execution', page)
    assert link
    where = link[1].replace("&amp;", "&")
    assert b"The workflow may run twice" in operator.get(where).content
    asked = operator.post(where, {"has_consent": "1", "consent": "on", "step": "look"}).content
    result = confirm(operator, where, asked, has_consent="1", consent="on").content.decode()
    assert "1 execution rescued in n8n.executions." in result
    assert lost_executions.newest()[0].outcome is LostExecutionOutcome.RESCUED
    page = section(operator)
    assert f'/executions/{api.made[0]}"' in page
    assert "Rescue execution" not in page


def test_the_page_of_its_job_says_so_too(here: Mending, run: Run) -> None:
    page = text(browser(person(UserRole.OPERATOR)), f"/queues/main/bull:jobs/jobs/{run.job}")
    assert "It can be retried before n8n overwrites its data." in page
    assert f"Rescue execution {run.execution}" in page


def test_its_line_among_the_mismatches_offers_it_first(here: Mending, run: Run) -> None:
    wish = ComparisonRequest(here.watch.snapshot, shared_clock.now() + 60_000, {})
    first = look_at(registry.registry(), registry.registry().config.n8n[0], wish)
    wish = ComparisonRequest(here.watch.snapshot, shared_clock.now() + 120_000, first.young)
    comparison_store.publish(here.state.client, [look_at(registry.registry(), registry.registry().config.n8n[0], wish)])
    windows.forget()
    row = re.search(
        rf'<tr id="pair-{run.execution}-.*?</tr>', text(browser(person(UserRole.OPERATOR)), "/stuck/n8n"), re.DOTALL
    )
    assert row
    assert "Rescue: It can be retried" in row[0]
    assert re.findall(r'aria-label="(?!Select)(\w+) (?:job|execution)', row[0])[0] == "Rescue"


def test_what_was_lost_is_offered_from_the_copy(here: Mending, run: Run) -> None:
    overwrite(here, run)
    page = section(browser(person(UserRole.OPERATOR)))
    assert "1 lost" in page
    assert "can be restored from the copy, and retried, for 6 d 23 h" in page
    assert f"Rescue execution {run.execution}" in page


def test_a_viewer_sees_it_and_gets_no_button(here: Mending, run: Run) -> None:
    page = section(browser(person(UserRole.VIEWER)))
    assert "at risk" in page
    assert "Rescue execution" not in page


@pytest.mark.parametrize("role", list(UserRole))
def test_nobody_is_shown_what_was_copied(here: Mending, run: Run, role: UserRole) -> None:
    assert SECRET not in text(browser(person(role)), "/stuck/n8n")
    answer = Machine(TokenScope.READ).get("/api/v1/n8n/losses")
    assert SECRET not in answer.content.decode()
    assert SECRET not in shell("--lost", "--json")


def test_the_api_tells_both_moments(here: Mending, run: Run) -> None:
    LostExecution.objects.update(lock_ends_at=shared_clock.now() + 40_000, verdict="worker-lost")
    (loss,) = told(Machine(TokenScope.READ).get("n8n/losses", outcome="at risk"))["losses"]
    assert (loss["execution"], loss["outcome"], loss["rescue"]) == (run.execution, "at risk", "retry")
    assert loss["rescue_open"]
    assert loss["rescue_last"] - loss["rescue_first"] == 31_000  # a stalled check here takes 1 s, and n8n waits 30
    assert loss["copy_bytes"] > 0
    nothing = told(Machine(TokenScope.READ).get("n8n/losses", outcome="lost"))
    assert nothing["losses"] == []


def test_the_shell_tells_it_too(here: Mending, run: Run) -> None:
    assert f"at risk  n8n: execution {run.execution}  <b>Invoices</b>" in shell("--lost")
    overwrite(here, run)
    ExecutionCopy.objects.all().delete()
    (loss,) = json.loads(shell("--lost", "--json"))["losses"]
    assert (loss["outcome"], loss["rescue"], loss["rescue_open"]) == ("lost", None, False)
    assert "There is no copy of its data." in loss["rescue_text"]


def test_where_nothing_was_lost_it_is_said(here: Mending) -> None:
    assert "No execution was seen whose worker was late or lost." in section(browser(person(UserRole.VIEWER)))
    assert shell("--lost").startswith("No execution was seen")
