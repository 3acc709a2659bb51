"""The same night without a browser: what the pages show and do, a shell shows and does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes.fleet import Fleet, Queue, Worker
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.waiting import until

LOCK_MS = 5000
STALLED_MS = 1000
REASON = "spot instance reclaimed"
_SOON = 60.0  # seconds: each look is a process of its own


@pytest.fixture(scope="module")
def night() -> Iterator[Site]:
    """No scanner comes before the person."""
    settings = f'[thresholds]\nstalled_interval = {STALLED_MS / 1000}\n[policy]\nstale_check = {{ mode = "dry-run" }}\n'
    with Store() as queues, Store() as state, Site(queues, state, settings=settings) as site:
        yield site


@pytest.fixture
def jobs(libraries: Fleet, night: Site) -> Queue:
    """Of Bull, where it takes what the scheduler remembers: one look of a shell alone proves nothing."""
    return libraries["bull4"].queue(night.queues, "shell")


def test_a_killed_workers_job_is_requeued_from_the_shell_and_completed(night: Site, jobs: Queue) -> None:
    holder = _start(jobs, "hang")
    job = jobs.add("digest")
    until(lambda: jobs.counts()["active"] == 1, what="the worker has it")
    until(lambda: b"0 of 1 active job " in night.web.get("/stuck", "viewer").body, 30, "the watch knows its worker")
    assert _verdict(night, jobs) is None, "a job that is held is not stuck"
    refused = _act(night, jobs, job)
    assert (refused.status, refused.outcome) == (3, "refused")

    holder.kill()
    until(lambda: b">abandoned</span>" in night.web.get("/stuck", "viewer").body, _SOON, "no other worker to rescue it")
    found = until(lambda: _if(_verdict(night, jobs), "abandoned"), _SOON, "a shell says so too")
    assert "no lock" in found["why"]
    assert found["fate"].startswith("Never recovered")
    done = _act(night, jobs, job)
    assert (done.status, done.outcome) == (0, "done")

    live = _start(jobs, "ok")
    until(lambda: jobs.counts()["completed"] == 1, what="a live worker took it")
    until(lambda: live.events("completed") == [("completed", job)])
    until(lambda: _incident(night, jobs), _SOON, "the incident is closed")
    length, by = _incident(night, jobs) or (0, "")
    assert 0 < length < _SOON * 1000
    assert by == "operator"
    _is_told(night, done.entry)


class _Answer:
    """What `manage.py act` said of the one job."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        (one,) = document["results"]
        self.status, self.outcome, self.entry = status, one["outcome"], one["audit"]


def _start(jobs: Queue, processor: str) -> Worker:
    return jobs.work(processor, apart=True, lockDuration=LOCK_MS, stalledInterval=STALLED_MS)


def _verdict(night: Site, jobs: Queue) -> dict[str, Any] | None:
    """The queue's one stuck job, as `manage.py orphans` tells it."""
    ran = night.shell("orphans", "--json")
    assert ran.returncode == 0, ran.stderr
    found = [one for one in json.loads(ran.stdout)["orphans"] if jobs.base in json.dumps(one)]
    return found[0] if found else None


def _if(found: dict[str, Any] | None, verdict: str) -> dict[str, Any] | None:
    return found if found and found["verdict"] == verdict else None


def _act(night: Site, jobs: Queue, job: str) -> _Answer:
    ran = night.shell(
        "act", "requeue", "--queue", f"main/{jobs.base}", "--job", job, "--reason", REASON, "--yes", "--json"
    )
    assert ran.stdout, ran.stderr
    return _Answer(ran.returncode, json.loads(ran.stdout))


def _incident(night: Site, jobs: Queue) -> tuple[int, str] | None:
    """Its length in ms and who ended it, once it is closed."""
    found = "SELECT closed_at - opened_at, resolved_by FROM recovery_incident WHERE base = ? AND closed_at IS NOT NULL"
    return next(iter(night.web.ask(found, jobs.base)), None)


def _is_told(night: Site, entry: int) -> None:
    assert night.shell("audit", "verify").returncode == 0
    entries = json.loads(night.shell("audit", "export", "--format", "json").stdout)
    (outcome,) = [one for one in entries if one["number"] == entry]
    assert (outcome["act"], outcome["reason"], outcome["actor_kind"]) == ("requeue", REASON, "shell")
