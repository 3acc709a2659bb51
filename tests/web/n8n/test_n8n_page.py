"""/stuck/n8n, n8n's part of /stuck and of a job's page, and the API: what a look found, said truly and safely."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobState
from recovery.domain.n8n.comparison import JobExecutionPair, MismatchFinding, N8nComparison, N8nRelease
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.instances import EMPTY, N8nInstance, add_reading
from recovery.domain.n8n.instances import InstanceRegistry as RegistryLook
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.mismatch_rows import merge_mismatches
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.inbox import StuckInbox
from recovery.n8n import comparison_store, instance_store
from recovery.reads.stuck import inbox_store
from recovery.stores import registry
from tests.support.machines import Machine
from tests.support.machines import told as answered
from tests.support.people import browser, person, text
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
QUEUE = QueueRef("main", "bull:jobs")
BULL = LibraryVersion(QueueLibrary.BULL, 4)
HOSTILE = '"><script>alert(1)</script>\u202egnp'
N8N = '[[n8n]]\neditor = "https://n8n.example.com"\n'
SQL = '[[databases]]\nname = "sql"\nurl = "postgresql://reader:hidden@127.0.0.1:1/n8n"\ntimeout = 0.1\n'


@pytest.fixture
def flows(desk: Desk, tmp_path: Path) -> Desk:
    """A queue of n8n's, and an n8n that is configured with a database which is away."""
    configure(tmp_path, f'{SQL}{N8N}database = "sql"')
    desk.client.set("bull:jobs:id", 1)
    desk.look(QUEUE.base, flavour=BULL)
    return desk


def configure(folder: Path, more: str) -> None:
    path = folder / "unstall.toml"
    path.write_text(f"{path.read_text()}\n{more}\n")
    registry.reset()


def pair(
    id: str, kind: MismatchKind | None = MismatchKind.NO_JOB, *, claim: N8nJob | None = None, title: str = "Invoices"
) -> JobExecutionPair:
    finding = kind and MismatchFinding(
        kind, MismatchRepair.MARK, now_ms() - 240_000, (f"Execution {id} is odd.",), "Nothing happens."
    )
    return JobExecutionPair(
        id,
        claim,
        Execution(id, "wf/1", "webhook", ExecutionStatus.RUNNING, started_at=now_ms() - 240_000),
        finding,
        title,
    )


def told(
    desk: Desk, *pairs: JobExecutionPair, matching: tuple[JobExecutionPair, ...] = (), **facts: object
) -> N8nComparison:
    kinds = [one.finding.kind for one in pairs if one.finding]
    known = {"checked_at": now_ms(), "counts": {kind: kinds.count(kind) for kind in kinds}, "release": N8nRelease.TWO}
    truth = N8nComparison("n8n", QUEUE, pairs=pairs, matching=matching, **(known | facts))  # type: ignore[arg-type]
    comparison_store.publish(desk.state.client, [truth])
    inbox_store.publish(desk.state.client, merge_mismatches(StuckInbox(now_ms()), [truth], ["n8n"]))
    desk.forget()
    return truth


def shown(address: str, role: UserRole = UserRole.VIEWER) -> str:
    return text(browser(person(role)), address)


def ids(page: str) -> list[str]:
    return re.findall(r'<tr id="pair-(\d+)-', page)


def test_mismatches_stand_before_what_is_as_it_should_be(flows: Desk) -> None:
    held = N8nJob(QUEUE.job("7"), JobState.ACTIVE, "53", "wf/1", JobLock("t", 1000), holder="eu-1")
    told(flows, pair("51"), pair("52", MismatchKind.LEFT), matching=(pair("53", None, claim=held),))
    page = shown("/stuck/n8n")
    assert ids(page) == ["51", "52", "53"]
    assert "The execution is unfinished, and no job exists that would run it." in page
    assert "Execution 51 is odd." in page
    assert "Without intervention: Nothing happens." in page
    assert "Repair: mark the execution crashed" in page
    assert "no mismatch" in page
    assert "lock: held" in page
    assert "n8n 2.1 or later" in page


def test_links_lead_into_the_editor_and_to_the_job(flows: Desk) -> None:
    told(flows, pair("51", MismatchKind.LEFT, claim=N8nJob(QUEUE.job("7"), JobState.WAITING, "51")))
    page = shown("/stuck/n8n")
    assert 'href="https://n8n.example.com/workflow/wf%2F1/executions/51"' in page
    assert 'href="/queues/main/bull:jobs/jobs/7"' in page


def test_where_nothing_could_be_compared_nothing_is_said_to_be_clear(flows: Desk) -> None:
    told(flows, fault="The database is away.")
    pages = [shown(address) for address in ("/stuck", "/stuck/n8n")]
    assert [("All clear" in page, "No mismatch" in page, "no running executions" in page) for page in pages] == [
        (False, False, False)
    ] * 2
    assert "could not be compared: The database is away." in pages[0]
    assert "This is not an all-clear" in pages[0]


def test_executions_that_are_only_counted_are_not_denied(flows: Desk) -> None:
    told(flows, executions=1, unsure_parents=1)
    page = shown("/stuck/n8n")
    assert "1 execution that has not ended is counted above and not listed" in page
    assert "no running executions" not in page
    told(flows)
    assert "There are no running executions." in shown("/stuck/n8n")


def test_errors_by_workflow_are_listed_with_links_and_escaped(flows: Desk) -> None:
    rates = (ErrorRate("wf/1", HOSTILE, 3, 4), ErrorRate("wf2", "", 1, 1_000))
    told(flows, error_rates=rates)
    page = shown("/stuck/n8n")
    assert "Errors by workflow, last hour" in page
    assert ("75 %" in page, "&lt; 1 %" in page, "1,000" in page) == (True, True, True)
    assert 'href="https://n8n.example.com/workflow/wf%2F1"' in page
    assert "<script>alert" not in page
    assert "Errors by workflow" not in shown("/stuck/n8n?mismatch=none")
    told(flows, error_rates=())
    assert "Errors by workflow" not in shown("/stuck/n8n")
    told(flows)
    assert "Failed executions of n8n could not be counted." in shown("/stuck/n8n")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("?mismatch=job+left", ["52"]),
        ("?mismatch=none", ["53"]),
        ("?execution=51", ["51"]),
        ("?n8n=other", []),
        ("?mismatch=queue+paused", []),
    ],
)
def test_the_filter_is_in_the_address(flows: Desk, asked: str, found: list[str]) -> None:
    told(flows, pair("51"), pair("52", MismatchKind.LEFT), matching=(pair("53", None),))
    page = shown(f"/stuck/n8n{asked}")
    assert ids(page) == found
    assert ("No rows match." in page) is (found == [])
    assert ids(shown(f"/stuck/n8n/rows{asked}")) == found


def test_pages_of_a_hundred(flows: Desk) -> None:
    told(flows, *(pair(str(number)) for number in range(1, 131)))
    assert len(ids(shown("/stuck/n8n"))) == 100
    assert ids(shown("/stuck/n8n?from=100")) == [str(number) for number in range(101, 131)]
    assert 'href="?from=100"' in shown("/stuck/n8n")


def test_whatever_a_workflow_is_called_is_text(flows: Desk) -> None:
    claim = N8nJob(QUEUE.job(HOSTILE), JobState.WAITING, "51", HOSTILE, holder=HOSTILE)
    told(flows, pair("51", MismatchKind.LEFT, claim=claim, title=HOSTILE), pair("52", title=HOSTILE))
    for address in ("/stuck/n8n", "/stuck"):
        page = shown(address)
        assert "alert(1)" in page
        assert "<script>alert" not in page
        assert "\u202e" not in page


def test_what_could_not_be_compared_is_said_and_nothing_is_shown_as_zero(flows: Desk) -> None:
    told(flows, fault="postgresql://reader@db/n8n: no answer within 2 s.")
    page = shown("/stuck/n8n")
    assert "could not be compared" in page
    assert "no answer within 2 s" in page
    assert "mismatch</span>" not in page
    assert ids(page) == []


def test_an_old_look_says_that_it_is_old(flows: Desk) -> None:
    told(flows, pair("51"), checked_at=now_ms() - comparison_store.OLD_MS - 1000)
    assert "This data is stale." in shown("/stuck/n8n")


def test_before_the_first_look_it_is_said_that_nobody_looked(flows: Desk) -> None:
    assert "not checked yet" in shown("/stuck/n8n")


def test_without_its_database_it_says_how_to_give_it(desk: Desk, tmp_path: Path) -> None:
    configure(tmp_path, N8N)
    page = shown("/stuck/n8n")
    assert "no database configured" in page
    assert "UNSTALL_N8N_DATABASE_URL" in page


def test_a_queue_that_looks_like_n8ns_is_enough_to_be_told_how(desk: Desk) -> None:
    desk.client.set("bull:jobs:id", 1)
    desk.look(QUEUE.base, flavour=BULL)
    assert 'href="/stuck/n8n"' in shown("/stuck")
    page = shown("/stuck/n8n")
    assert "no n8n is configured for it" in page
    assert "queue = &quot;main/bull:jobs&quot;" in page or 'queue = "main/bull:jobs"' in page


def test_where_nothing_is_n8ns_nothing_points_there(desk: Desk) -> None:
    desk.look()
    assert 'href="/stuck/n8n"' not in shown("/stuck")
    assert "No n8n configured." in shown("/stuck/n8n")


def test_a_stranger_sees_nothing(flows: Desk) -> None:
    told(flows, pair("51"))
    for address in ("/stuck/n8n", "/stuck/n8n/rows"):
        assert browser().get(address).status_code in (302, 401, 403)


def test_an_execution_without_a_job_is_a_line_of_stuck_that_nobody_can_tick(flows: Desk) -> None:
    told(flows, pair("51"))
    page = shown("/stuck", UserRole.ADMIN)
    assert 'href="/stuck/n8n?execution=51">execution 51</a>' in page
    assert 'data-state="n8n">n8n' in page
    assert 'data-select name="job"' not in page
    assert "0 of 0 active jobs" in page
    assert ">1<" in shown("/stuck/count")
    assert "execution 51" in shown("/stuck?verdict=n8n")
    assert "execution 51" not in shown("/stuck?verdict=abandoned")


def test_a_job_of_stuck_leads_to_its_page(flows: Desk) -> None:
    told(flows, pair("51", MismatchKind.LEFT, claim=N8nJob(QUEUE.job("7"), JobState.WAITING, "51")))
    page = shown("/stuck", UserRole.ADMIN)
    assert 'href="/queues/main/bull:jobs/jobs/7">7</a>' in page


def waiting(store: Store, data: str) -> None:
    store.client.hset("bull:jobs:7", mapping={"name": "job", "data": data, "timestamp": now_ms(), "opts": "{}"})
    store.client.lpush("bull:jobs:wait", "7")


JOB = "/queues/main/bull:jobs/jobs/7"


def test_a_jobs_page_tells_its_execution_even_while_the_database_is_away(flows: Desk) -> None:
    waiting(flows.store, json.dumps({"executionId": "51", "workflowId": "wf/1"}))
    told(flows, pair("51", MismatchKind.LEFT, claim=N8nJob(QUEUE.job("7"), JobState.WAITING, "51")))
    page = shown(JOB)
    assert "status unknown" in page
    assert 'href="https://n8n.example.com/workflow/wf%2F1"' in page
    assert "<b>job left</b>" in page
    assert 'href="/stuck/n8n?execution=51"' in page
    assert "hidden" not in page.split("<main", 1)[1].split("status unknown", 1)[1][:300]


@pytest.mark.parametrize("data", ["{}", '{"executionId": "x", "workflowId": "y"}', "nonsense"])
def test_a_job_that_names_no_execution_has_an_ordinary_page(flows: Desk, data: str) -> None:
    waiting(flows.store, data)
    assert 'aria-label="n8n"' not in shown(JOB)


def told_by(address: str) -> Any:
    return answered(Machine(TokenScope.READ).get(address))


def test_the_api_has_the_same_table(flows: Desk) -> None:
    claim = N8nJob(QUEUE.job("7"), JobState.ACTIVE, "52", "wf/1")
    told(flows, pair("51"), pair("52", MismatchKind.ORPHANED, claim=claim), matching=(pair("53", None),))
    (table,) = told_by("n8n")["installations"]
    assert (table["name"], table["counts"]) == ("n8n", {"no job": 1, "job orphaned": 1})
    assert [one["id"] for one in table["pairs"]] == ["51", "52", "53"]
    assert table["pairs"][0]["mismatch"]["repair"] == "mark crashed"
    assert table["pairs"][1]["claim"]["is_locked"] is False
    assert table["pairs"][2]["mismatch"] is None
    few = told_by("n8n?mismatches=true&size=1")["installations"][0]
    assert ([one["id"] for one in few["pairs"]], few["matched"], few["next"]) == (["51"], 2, "1")
    one = told_by("n8n?mismatch=no+job")["installations"][0]
    assert [pair["id"] for pair in one["pairs"]] == ["51"]
    assert told_by("n8n?n8n=other") == {"installations": []}


def test_the_api_lists_executions_without_a_job_among_the_orphans(flows: Desk) -> None:
    told(flows, pair("51"))
    (line,) = told_by("orphans?verdict=n8n")["orphans"]
    assert (line["execution"], line["id"], line["verdict"]["kind"], line["seen"]) == ("51", "~", "n8n", None)


def registered(flows: Desk) -> None:
    """A main that is alive, a worker that died and one whose name somebody else wrote."""
    known = EMPTY
    now = now_ms()
    main = N8nInstance("m", "main", "leader", "main-1", "2.41.1", now - 90_000, now)
    dead = N8nInstance("d", "worker", "unset", "worker-dead", "2.41.1", now - 90_000, now - 80_000)
    odd = N8nInstance("o", "worker", "unset", HOSTILE, "2.41.1", now - 90_000, now)
    known = add_reading(known, RegistryLook((main, dead, odd)), now - 40_000)
    known = add_reading(known, RegistryLook((main, odd), frozenset({"d"})), now)
    instance_store.publish(flows.state.client, {"n8n": known})
    told(flows)


def test_the_processes_of_n8n_are_shown_with_version_role_and_how_they_ended(flows: Desk) -> None:
    registered(flows)
    page = shown("/stuck/n8n")
    assert "n8n 2.41.1: 1 main, 1 worker" in page
    assert "main · leader" in page
    assert "worker-dead" in page
    assert "died: it did not shut down" in page
    assert "<script>" not in page
    assert "\u202e" not in page


def test_the_api_has_the_processes_of_n8n(flows: Desk) -> None:
    registered(flows)
    (one,) = answered(Machine(TokenScope.READ).get("/api/v1/n8n"))["installations"]
    assert one["version"] == "2.41.1"
    hosts = [(process["host"], process["ending"]) for process in one["instances"]]
    assert hosts[0] == ("main-1", "")
    assert hosts[-1] == ("worker-dead", "died")


def test_an_n8n_without_a_registry_shows_no_processes(flows: Desk) -> None:
    told(flows)
    assert "Processes of n8n" not in shown("/stuck/n8n")
