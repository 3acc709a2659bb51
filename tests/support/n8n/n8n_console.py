"""Unstall beside a real n8n (tests/support/n8n/n8n_real.py): what it lists, and what an operator does from the shell.

Everything is asked through `manage.py` and the pages, as it is by people.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.n8n.n8n_flows import SlowServer
from tests.support.n8n.n8n_real import RealN8n
from tests.support.processes.site import Site
from tests.support.waiting import until

LONG = 60  # seconds that the workflow `long` waits in its worker
JOBS, EXECUTIONS = "main/bull:jobs", "main/n8n.executions"
CONFIRMED = 120  # seconds: a contradiction counts when it is 30 s old, and is looked for every 5 s


def settings(n8n: RealN8n, key: str) -> str:
    """What stands in unstall.toml for it."""
    return (
        "n8n = 5\n[thresholds]\nstalled_interval = 10\n"
        f'[[databases]]\nname = "n8n"\nurl = "{n8n.postgres.url}"\ntimeout = 10\n'
        f'[[n8n]]\ndatabase = "n8n"\neditor = "{n8n.url}"\napi_key = "{key}"\n'
    )


def begun(n8n: RealN8n, webhook: str = "long") -> tuple[str, str]:
    """An execution that a worker holds, and its job."""
    execution = handed_over(n8n, webhook)
    until(lambda: n8n.status(execution) == "running", 30, "it runs")
    return execution, until(lambda: n8n.held_job_of(execution), 10, "its job, locked")


def at_work(n8n: RealN8n, slow: SlowServer) -> tuple[str, str]:
    """The same in the midst of its slow step."""
    execution, job = begun(n8n, "slow")
    until(lambda: slow.runs(execution) == 1, 30, "its step has begun")
    return execution, job


def handed_over(n8n: RealN8n, webhook: str) -> str:
    """A new execution, whose job waits or is taken by a worker."""
    before = n8n.newest()
    assert n8n.call(webhook).status_code == 200
    until(lambda: n8n.newest() > before, 10, "an execution")
    return str(n8n.newest())


def lost(n8n: RealN8n, site: Site) -> tuple[str, str]:
    """One that a worker holds, and its worker was killed: it is listed as abandoned."""
    execution, job = begun(n8n)
    n8n.kill()
    until(lambda: is_abandoned(site, job), 90, "it is abandoned in /stuck")
    return execution, job


def is_abandoned(site: Site, job: str) -> bool:
    found = json.loads(site.shell("orphans", "--json").stdout or "{}")
    return any(line["job"] == job and line["verdict"] == "abandoned" for line in found.get("orphans", ()))


def compared(site: Site) -> dict[str, Any]:
    """`manage.py n8n` now."""
    done = site.shell("n8n", "--json")
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout)["n8n"][0])


def mismatches(site: Site) -> dict[str, dict[str, Any]]:
    """By their executions."""
    found = compared(site)
    assert found["fault"] is None, found
    return {line["execution"]: line for line in found["mismatches"]}


def listed(site: Site, execution: str, mismatch: str) -> dict[str, Any]:
    """Its line, as soon as it is listed as this; whatever it is listed as before is wrong."""

    def line() -> dict[str, Any] | None:
        found = mismatches(site).get(execution)
        assert found is None or found["mismatch"] == mismatch, found
        return found

    return until(line, CONFIRMED, f"execution {execution} is listed as {mismatch}")


def act(site: Site, word: str, queue: str, id: str, *more: str) -> dict[str, Any]:
    """As an operator types it; without an id it is about the queue."""
    of = ("--job", id) if id else ()
    done = site.shell("act", word, "--queue", queue, *of, "--reason", "a test", "--yes", "--json", *more)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout)["results"][0])


def done(result: dict[str, Any]) -> None:
    """It was carried out; if not, its reason is in the message."""
    assert result["outcome"] == "done", result
