"""Armed and left alone while workers are killed at random: nothing is lost, and nobody is needed.

Whoever runs the workers starts each one again, as any orchestrator does; no person touches a queue.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.processes.fleet import Fleet, Queue, Worker
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.waiting import until

WORKERS = 4
AT_ONCE = 5  # jobs of one worker
JOB_MS = 100
LOCK_MS, STALLED_MS = 4000, 2000
BACKLOG = 300  # jobs that wait: enough for the workers until the next look
DEATHS_APART = (1.0, 4.0)  # seconds
_SOON, _END = 10.0, 120.0
ARMED = f"""
stale_check = 5
auto_retry = 5
[thresholds]
stalled_interval = {STALLED_MS / 1000}
[policy]
idempotency = "these jobs only wait for a moment"
[policy.orphan_watch]
mode = "enabled"
release = true
[policy.stale_check]
after = 5
[policy.auto_retry]
mode = "enabled"
"""


class Crew:
    """Workers that are replaced when they die."""

    def __init__(self, jobs: Queue, dice: random.Random) -> None:
        self._jobs = jobs
        self._dice = dice
        self._names = count(1)
        self._alive = [self._start() for _ in range(WORKERS)]

    def lose_one(self) -> None:
        place = self._dice.randrange(WORKERS)
        self._alive[place].kill()
        self._alive[place] = self._start()

    def _start(self) -> Worker:
        settings = {"lockDuration": LOCK_MS, "stalledInterval": STALLED_MS, "concurrency": AT_ONCE}
        return self._jobs.work("slow", apart=True, name=f"crew-{next(self._names)}", **settings)


@pytest.fixture
def site() -> Iterator[Site]:
    with Store() as queues, Store() as state, Site(queues, state, settings=ARMED) as site:
        yield site


@pytest.mark.parametrize("seconds", [_SOON, pytest.param(300.0, marks=pytest.mark.long)], ids=["soon", "five minutes"])
def test_it_looks_after_itself(site: Site, libraries: Fleet, seconds: float) -> None:
    jobs, dice = libraries["bullmq6"].queue(site.queues), random.Random(3)
    added = _feed(jobs, 0)
    crew = Crew(jobs, dice)
    ends = time.monotonic() + seconds
    deaths = 0
    while time.monotonic() < ends:
        crew.lose_one()
        deaths += 1
        pause = time.monotonic() + dice.uniform(*DEATHS_APART)
        until(lambda due=pause: time.monotonic() > due, 30, "the next one dies")
        added += _feed(jobs, jobs.counts()["waiting"])
    until(lambda: jobs.counts()["completed"] == added, _END, f"all {added} are completed; {jobs.counts()}")
    assert [jobs.counts()[state] for state in ("active", "failed", "delayed")] == [0, 0, 0]
    assert deaths > 2
    _is_told(site)


def _feed(jobs: Queue, waiting: int) -> int:
    missing = max(0, BACKLOG - waiting)
    jobs.add_many(missing, payload={"ms": JOB_MS})
    return missing


def _is_told(site: Site) -> None:
    """Scanners did it, each act with the policy that allowed it; no person did anything."""
    acts = site.web.ask("SELECT actor_kind, actor, reason, body FROM recovery_auditentry WHERE phase = 'intent'")
    assert {(kind, actor) for kind, actor, *_ in acts} <= {
        ("scanner", name) for name in ("orphan-watch", "stale-check", "auto-retry")
    }
    assert sum(len(json.loads(body)["jobs"]) for *_, body in acts) > 0
    assert all("in the file" in reason for _, _, reason, _ in acts), acts[0]
    assert b"orphan-watch" in site.web.get("/scanners", "viewer").body
