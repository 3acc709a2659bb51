"""The buttons of n8n's truth table and what they lead to: for each mismatch the repair that it is named with first."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.accounts.roles import UserRole
from dashboard.live import state_cache
from recovery.n8n import comparison_store
from recovery.n8n.comparison import ComparisonRequest, compare
from recovery.reads.queues import snapshot_store
from recovery.stores.state.shared_read import windows
from tests.support.n8n.n8n_api import PublicApi
from tests.support.n8n.n8n_mending import MINUTES, Mending
from tests.support.people import browser, person
from tests.support.stuck.watching import now_ms
from tests.web.acting import ask, confirm

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.node]


@pytest.fixture
def n8n_release() -> str:
    return "1.123"


@pytest.fixture
def n8n_settings(api: PublicApi) -> str:
    return api.settings


@pytest.fixture
def operator() -> Client:
    return browser(person(UserRole.OPERATOR))


def table(here: Mending, client: Client) -> str:
    """The page, after a look that the leader would take."""
    registry = here.watch.registry
    here.watch.discover()
    here.watch.look()
    wish = ComparisonRequest(here.watch.snapshot, now_ms() + 60_000, {})
    found = compare(registry, registry.config.n8n[0], wish)
    found = compare(
        registry, registry.config.n8n[0], ComparisonRequest(here.watch.snapshot, now_ms() + 120_000, found.young)
    )
    comparison_store.publish(here.state.client, [found])
    windows.forget()
    return client.get("/stuck/n8n").content.decode()


def offered(page: str, execution: str) -> list[str]:
    """The labels of the buttons in its row, in their order."""
    row = re.findall(rf'<tr id="pair-{execution}-.*?</tr>', page, re.DOTALL)
    assert len(row) == 1, page
    return re.findall(r'id="do-[^>]*aria-label="([^"]+)"', row[0])


def test_an_orphan_is_failed_first_or_retried_before(here: Mending, operator: Client) -> None:
    run = here.lost()
    assert offered(table(here, operator), run.execution) == [
        f"Fail job {run.job}", f"Retry execution {run.execution}", f"Requeue job {run.job}",
    ]  # fmt: skip


def test_an_execution_without_a_job_is_marked(here: Mending, operator: Client) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    assert offered(table(here, operator), lost) == [f"Mark crashed execution {lost}", f"Retry execution {lost}"]


def test_a_job_that_is_left_is_removed_and_never_failed(here: Mending, operator: Client) -> None:
    run = here.lost()
    here.yard.ended(run, ago=MINUTES)
    assert offered(table(here, operator), run.execution) == [f"Remove job {run.job}"]


def test_one_that_runs_unseen_is_canceled(here: Mending, operator: Client) -> None:
    run = here.held()
    here.yard.ended(run, "crashed", ago=MINUTES)
    assert offered(table(here, operator), run.execution) == [f"Cancel job {run.job}"]


def test_a_viewer_gets_none(here: Mending) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    assert offered(table(here, browser(person(UserRole.VIEWER))), lost) == []


def test_the_dialog_names_the_execution_and_marks_it(here: Mending, operator: Client) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    here.seen_alone(lost)
    where = ask("mark-crashed", lost, base="n8n.executions")
    asked = operator.get(where).content
    assert b"Mark crashed 1 execution in" in asked
    assert b"no error workflow runs" in asked
    told = confirm(operator, where, asked).content.decode()
    assert "1 execution marked as crashed in n8n.executions." in told
    assert here.yard.status(lost) == "crashed"


def test_the_dialog_asks_for_consent_and_tells_the_new_execution(here: Mending, operator: Client) -> None:
    run = here.lost()
    here.keeps(run.execution)
    where = ask("retry-execution", run.execution, base="n8n.executions")
    assert b"The workflow may run twice" in operator.get(where).content
    asked = operator.post(where, {"has_consent": "1", "consent": "on", "step": "look"}).content
    told = confirm(operator, where, asked, has_consent="1", consent="on").content.decode()
    assert re.search(r"It runs again as execution [0-9]+\.", told)


def test_the_page_of_an_execution_as_a_job_leads_to_the_table(here: Mending, operator: Client) -> None:
    assert (
        operator.get(reverse("job", args=["main", "n8n.executions", "4711"])).headers["Location"]
        == "/stuck/n8n?execution=4711"
    )
    assert operator.get(reverse("queue", args=["main", "n8n.executions"])).headers["Location"] == "/stuck/n8n"


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ({"act": "requeue", "all": "orphan"}, [b"every step that already ran will run twice", b'name="consent"']),
        ({"act": "requeue", "all": "orphan"}, [b"Without consent only jobs whose execution has not begun"]),
        ({"act": "retry", "all": "failed"}, [b"Without consent every one of them is refused", b'name="consent"']),
        ({"act": "fail", "all": "orphan"}, [b"nothing is left to run"]),
        ({"act": "remove", "all": "waiting"}, [b"stays new until"]),
        ({"act": "drain"}, [b"stays new until"]),
    ],
    ids=["requeue", "requeue without consent", "retry", "fail", "remove", "drain"],
)
def test_the_dialog_for_a_whole_list_warns_as_the_one_for_a_job_does(
    here: Mending, asks: dict[str, str], said: list[bytes]
) -> None:
    here.lost()
    here.yard.begin()
    here.client.zadd("bull:jobs:failed", {"999": 1})
    shown(here)
    page = browser(person(UserRole.ADMIN)).get("/act", {"queue": "main/bull:jobs", **asks}).content
    assert [words for words in said if words not in page] == []


def shown(here: Mending) -> None:
    """A snapshot, where the pages and the engine find it."""
    here.watch.look()
    snapshot_store.publish(here.watch.registry.state(), here.watch.snapshot)
    windows.forget()
    state_cache.forget_cached()


def test_a_consent_that_was_given_for_a_whole_list_goes_with_its_run(here: Mending) -> None:
    here.lost()
    shown(here)
    page = browser(person(UserRole.ADMIN)).post(
        "/act?act=requeue&queue=main/bull:jobs&all=orphan", {"has_consent": "1", "consent": "on", "step": "look"}
    )
    assert b"Without consent" not in page.content
    assert b"every step that already ran will run twice" in page.content


def stuck(here: Mending, client: Client) -> str:
    """/stuck, with what the looks at n8n have found."""
    table(here, client)
    shown(here)
    return client.get("/stuck").content.decode()


def test_on_stuck_a_mismatch_has_its_buttons_and_leads_to_the_table(here: Mending, operator: Client) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    page = stuck(here, operator)
    row = re.findall(rf'<a id="execution-{lost}".*?</tr>', page, re.DOTALL)[0]
    assert re.findall(r'id="do-[^>]*aria-label="([^"]+)"', row) == [
        f"Mark crashed execution {lost}", f"Retry execution {lost}",
    ]  # fmt: skip
    assert f'href="/stuck/n8n?execution={lost}">execution {lost} in the table</a>' in row
    assert "back=%2Fstuck" in row


def test_on_stuck_a_viewer_is_offered_nothing(here: Mending) -> None:
    lost = here.yard.execution("running", ago=MINUTES)
    page = stuck(here, browser(person(UserRole.VIEWER)))
    assert f"execution {lost} in the table" in page
    assert "do-mark-crashed" not in page


class TestMany:
    @pytest.fixture
    def lost(self, here: Mending) -> list[str]:
        found = [here.yard.execution("new" if number else "running", ago=MINUTES) for number in range(3)]
        here.seen_alone(*found)
        return found

    def test_rows_that_can_be_marked_can_be_selected(self, here: Mending, lost: list[str], operator: Client) -> None:
        left = here.yard.begin(ago=MINUTES)
        here.yard.ended(left, ago=MINUTES)
        page = table(here, operator)
        picks = re.findall(r'data-select name="job" value="([^"]+)"', page)
        assert sorted(picks) == [f"main/n8n.executions/{one}" for one in lost]
        assert 'name="act" value="mark-crashed"' in page
        assert 'name="act" value="retry-execution"' in page
        where = "/act?act=mark-crashed&" + "&".join(f"job={one}" for one in picks)
        asked = operator.get(where).content
        assert b"Mark crashed 3 executions" in asked
        assert "3 executions marked as crashed" in confirm(operator, where, asked).content.decode()
        assert {here.yard.status(one) for one in lost} == {"crashed"}

    def test_a_viewer_has_nothing_to_select(self, here: Mending, lost: list[str]) -> None:
        page = table(here, browser(person(UserRole.VIEWER)))
        assert ("data-select" in page, "rows-form" in page, "matching=n8n" in page) == (False, False, False)

    def test_all_that_match_a_filter_are_marked(self, here: Mending, lost: list[str], operator: Client) -> None:
        other = here.yard.begin(ago=MINUTES)
        here.yard.delete(other.execution)
        table(here, operator)
        page = operator.get("/stuck/n8n", {"mismatch": "no job"}).content.decode()
        where = html.unescape(re.findall(r'id="do-mark-crashed-matching" href="([^"]+)"', page)[0])
        asked = operator.get(where).content
        assert b"All executions listed as mismatches, mismatch no job, to which this can be done." in asked
        later = here.yard.execution("running", ago=MINUTES)
        assert "3 executions marked as crashed" in confirm(operator, where, asked).content.decode()
        assert {here.yard.status(one) for one in lost} == {"crashed"}
        assert here.yard.status(later) == "running"

    def test_what_no_list_of_executions_can_be_asked_for_is_not_understood(self, operator: Client) -> None:
        for act in ("requeue", "resume"):
            response = operator.get("/act", {"act": act, "matching": "n8n"})
            assert response.status_code == 400
            assert b"not available for all matching n8n executions" in response.content

    def test_a_retry_of_new_ones_asks_for_the_mark(self, here: Mending, lost: list[str], operator: Client) -> None:
        for one in lost:
            here.keeps(one)
        where = "/act?act=retry-execution&" + "&".join(f"job=main/n8n.executions/{one}" for one in lost)
        assert b"Mark it as crashed first" in operator.get(where).content
        given = {"has_mark": "1", "mark": "on", "has_consent": "1", "consent": "on"}
        asked = operator.post(where, {**given, "step": "look"}).content
        assert b"Retry 3 executions" in asked
        told = confirm(operator, where, asked, **given).content.decode()
        assert "3 executions retried" in told
        assert {here.yard.status(one) for one in lost} == {"crashed"}
