"""The repairs of n8n with a real n8n in queue mode, of both generations: its main, its workers, its database.

What the tests with bull and rows alone take for n8n's ways is asked of it here too.
"""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.support.n8n.n8n_api import PublicApi
from tests.support.n8n.n8n_console import EXECUTIONS, JOBS, act, begun, done, lost
from tests.support.n8n.n8n_real import RealN8n
from tests.support.n8n.n8n_schema import COLUMNS
from tests.support.processes.site import Site
from tests.support.processes.web_process import COOKIE
from tests.support.waiting import until

pytestmark = [pytest.mark.n8n, pytest.mark.timeout(900)]


def error_seconds(n8n: RealN8n) -> float:
    """Until main has written `error` for a job that was failed: 2.41 waits 30 s for an end that it missed."""
    return 45 if n8n.is_two else 5


def person(site: Site) -> httpx.Client:
    return httpx.Client(base_url=site.url, cookies={COOKIE: site.cookie("operator")}, timeout=30, trust_env=False)


def fields_of(page: str) -> dict[str, str]:
    """The hidden fields of the dialog."""
    return {name: re.findall(rf'name="{name}" value="([^"]+)"', page)[-1] for name in ("csrfmiddlewaretoken", "token")}


def test_the_tables_are_as_the_other_tests_write_them(n8n: RealN8n) -> None:
    for table, columns in COLUMNS[n8n.release].items():
        found = n8n.rows(
            "SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns"
            " WHERE table_schema = 'public' AND table_name = %s",
            table,
        )
        assert {name: (kind, null) for name, kind, null in found} == columns, table


def test_the_retry_is_in_its_own_description_of_the_public_api(n8n: RealN8n) -> None:
    described = (n8n.program / "node_modules/n8n/dist/public-api/v1/openapi.yml").read_text()
    assert re.search(r"^  /executions/\{\w+\}/retry:$", described, re.MULTILINE)


def test_a_killed_workers_execution_is_abandoned_failed_by_a_person_and_an_error_in_time(
    n8n: RealN8n, site: Site, worker: str
) -> None:
    execution, job = lost(n8n, site)
    assert n8n.status(execution) == "running"
    with person(site) as browser:
        # The shell looks by itself, the page shows the scheduler's last look.
        until(lambda: "abandoned" in (page := browser.get("/stuck").text) and f'/jobs/{job}"' in page, 15, "on /stuck")
        where = f"/act?act=fail&job=main/bull:jobs/{job}"
        dialog = browser.get(where).text
        assert "nothing is left to run" in dialog
        sent = {**fields_of(dialog), "step": "confirm", "reason": "its worker was killed", "has_directly": "1"}
        told = browser.post(where, data=sent, headers={"Referer": f"{site.url}{where}"})
    assert told.status_code == 200, told.text[:2000]
    until(lambda: n8n.status(execution) == "error", error_seconds(n8n), "it is an error in n8n")
    if not n8n.is_two:  # the answer does not wait for the 30 s of 2.41
        assert f"Its execution {execution} is error in n8n now." in told.text
    assert not n8n.store.client.exists(f"bull:jobs:{job}")
    assert "error" in json.dumps(n8n.rest(f"/executions/{execution}"))


def test_what_was_failed_is_not_retried_because_n8n_would_run_nothing(
    n8n: RealN8n, site: Site, key: str, worker: str
) -> None:
    execution, job = lost(n8n, site)
    done(act(site, "fail", JOBS, job))
    until(lambda: n8n.status(execution) == "error", error_seconds(n8n), "it is an error in n8n")
    n8n.start_worker()
    refused = act(site, "retry-execution", EXECUTIONS, execution, "--consent", "--force")
    assert "without doing anything" in refused["why"]
    really = n8n.public(key, "POST", f"/executions/{execution}/retry")
    assert really.status_code == 200
    assert really.json()["data"]["resultData"]["runData"] == {}  # what our refusal says of it


def test_one_whose_worker_died_runs_again_before_it_is_failed(n8n: RealN8n, site: Site, worker: str) -> None:
    execution, job = lost(n8n, site)
    told = act(site, "retry-execution", EXECUTIONS, execution, "--consent")
    assert told["outcome"] == "done", told
    made = re.findall(r"execution ([0-9]+)", told["why"])[0]
    assert n8n.rows('SELECT "retryOf" FROM execution_entity WHERE id = %s', int(made)) == [(execution,)]
    done(act(site, "fail", JOBS, job))
    n8n.start_worker()
    until(lambda: n8n.status(made) == "running", 30, "n8n runs it, though nobody waits for its answer")
    assert act(site, "cancel", JOBS, until(lambda: n8n.held_job_of(made), 10, "its job"))["outcome"] == "done"


def test_a_running_one_is_canceled_by_n8ns_own_abort(n8n: RealN8n, site: Site, worker: str) -> None:
    execution, job = begun(n8n)
    told = act(site, "cancel", JOBS, job)
    assert told["outcome"] == "done", told
    until(lambda: n8n.status(execution) == "canceled", 5, "it is canceled in n8n")


def test_after_a_restart_of_main_nobody_listens_and_the_mark_stays(n8n: RealN8n, site: Site, worker: str) -> None:
    execution, job = lost(n8n, site)
    n8n.kill("main")
    n8n.start_main()
    told = act(site, "fail", JOBS, job)
    assert (told["outcome"], "marked as crashed" in told["why"]) == ("done", True)
    assert n8n.status(execution) == "running"
    early = act(site, "mark-crashed", EXECUTIONS, execution)
    assert "n8n itself waits 30 s" in early["why"]
    told = until(lambda: _marked(site, execution), 60, "the half minute is over")
    assert n8n.status(execution) == "crashed"
    n8n.start_worker()
    assert n8n.status(execution) == "crashed"


def _marked(site: Site, execution: str) -> dict[str, Any] | None:
    told = act(site, "mark-crashed", EXECUTIONS, execution)
    return told if told["outcome"] == "done" else None


@pytest.mark.parametrize("status", ["", "new", "success"])
def test_it_answers_as_the_server_of_the_other_tests(n8n: RealN8n, key: str, status: str) -> None:
    """Which plays its public API: the same status and the same sentence."""
    n8n.settle()
    id = "999999"
    if status == "new":
        before = n8n.newest()
        n8n.call("long")
        until(lambda: n8n.newest() > before, 10, "an execution that waits")
        id = str(n8n.newest())
    elif status == "success":
        id = n8n.insert(status)
    really = n8n.public(key, "POST", f"/executions/{id}/retry", json={})
    foretold = PublicApi.judge(_Played(n8n.release, status), id, "n8n-api-key-of-the-tests")  # type: ignore[arg-type]
    assert (really.status_code, really.json()["message"]) == foretold


def test_another_key_is_refused_as_by_the_server_of_the_other_tests(n8n: RealN8n, key: str) -> None:
    really = n8n.public("other", "POST", "/executions/1/retry", json={})
    foretold = PublicApi.judge(_Played(n8n.release, "success"), "1", "other")  # type: ignore[arg-type]
    assert (really.status_code, really.json()["message"]) == foretold


class _Played:
    """Of the server what it judges by."""

    def __init__(self, release: str, status: str) -> None:
        self.yard = self
        self.release = release
        self.scopes, self.sees_workflows = {"execution:retry"}, True
        self._status = status

    def status(self, _: str) -> str:
        return self._status


def test_the_editor_shows_an_execution_where_we_link_to(n8n: RealN8n, key: str) -> None:
    assert n8n.page("/workflow/long/executions/1").status_code == 200
    scripts = (n8n.program / "node_modules/n8n-editor-ui/dist/assets").glob("*.js")
    route = re.compile(r"/workflow/:\w+/executions")
    assert any(route.search(script.read_text(errors="replace")) for script in scripts)
