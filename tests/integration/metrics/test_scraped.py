"""A real Prometheus scrapes a real house by the configuration that we hand out, and sees what happens in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from dashboard.accounts.tokens import MARK
from dashboard.metrics.exposition import MetricsFormat
from tests.support.processes.site import ROOT, Site
from tests.support.prometheus import Scraping
from tests.support.scraping import of_text, value
from tests.support.stores.stores import Store
from tests.support.stuck.watching import NOW, add, bullmq
from tests.support.waiting import until

SECONDS = 90.0  # several processes on two cores, and other tests on them
TOKEN = MARK + "x" * 43
HOSTILE = b'bull:say "hi"\n\xff'
_MAKE = (
    "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
    " VALUES ('prometheus', ?, 'unstall_xxx', 'metrics', '2026-01-01', '2126-01-01')"
)
OF_MAIL = 'deployment="main",queue="bull:mail"'


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Store() as queues, Store() as state, Site(queues, state) as site:
        bullmq(queues.client, "bull:mail")
        add(queues.client, "bull:mail", *"abcdefg")
        queues.client.hset(HOSTILE + b":meta", mapping={"version": "bullmq:5.81.5", "opts.maxLenEvents": "10000"})
        site.web.change(_MAKE, hashlib.sha256(TOKEN.encode()).hexdigest())
        yield site


@pytest.fixture(scope="module")
def prometheus(site: Site) -> Iterator[Scraping]:
    shipped = {
        name: (ROOT / "deploy/prometheus" / name).read_text("utf-8") for name in ("prometheus.yml", "alerts.yml")
    }
    here = shipped["prometheus.yml"].replace("127.0.0.1:8000", f"127.0.0.1:{site.web.port}")
    quick = here.replace("interval: 15s", "interval: 1s")
    with Scraping({**shipped, "prometheus.yml": quick, "unstall-token": TOKEN + "\n"}) as prometheus:
        yield prometheus


def scrape(site: Site, *, accept: str = "", token: str = TOKEN) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}", "Accept": accept}
    answer = site.web.get("/metrics", headers=headers, seconds=30)
    return answer.status, answer.body.decode()


def test_the_token_is_asked_for(site: Site) -> None:
    assert site.web.get("/metrics", seconds=30).status == 401
    assert site.web.get("/metrics", "admin", seconds=30).status == 401
    assert scrape(site, token=TOKEN[:-1])[0] == 401
    assert scrape(site)[0] == 200


def test_prometheus_sees_the_queues_as_they_are(site: Site, prometheus: Scraping) -> None:
    waiting = f'unstall_jobs{{{OF_MAIL},state="waiting"}}'
    until(lambda: prometheus.one(waiting) == 7, SECONDS, "Prometheus has seven waiting jobs")
    assert prometheus.one('up{job="unstall"}') == 1
    add(site.queues.client, "bull:mail", "h", "i")
    until(lambda: prometheus.one(waiting) == 9, SECONDS, "and the two that came")
    compatible = 'bullmq_job_count{queue="mail",state="waiting"}'
    until(lambda: prometheus.one(compatible) == 9, SECONDS, "also under the library's name")
    (target,) = prometheus.get("/api/v1/targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")


def test_a_name_of_any_bytes_goes_through(site: Site, prometheus: Scraping) -> None:
    def names() -> set[str]:
        return {labels["queue"] for labels, _ in prometheus.ask("unstall_queue_readable")}

    until(lambda: "bull:say~20~22hi~22~0A~FF" in names(), SECONDS, "the odd queue is there")


def test_what_is_stuck_what_is_done_about_it_and_how_long_it_took_are_seen(site: Site, prometheus: Scraping) -> None:
    client = site.queues.client
    client.hset(
        "bull:mail:lost", mapping={"name": "mail", "data": "{}", "timestamp": NOW, "processedOn": NOW, "ats": 1}
    )
    client.lpush("bull:mail:active", "lost")
    until(lambda: prometheus.one(f"unstall_orphaned_jobs{{{OF_MAIL}}}") == 1, SECONDS, "the orphan is seen")
    done = site.shell("act", "requeue", "--queue", "bull:mail", "--job", "lost", "--reason", "its worker died", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    acted = 'unstall_actions_total{action="requeue",result="done",by="shell"}'
    until(lambda: prometheus.one(acted) == 1, SECONDS, "what was done is counted")
    took = 'unstall_incident_duration_seconds_count{resolved_by="operator"}'
    until(lambda: prometheus.one(took) == 1, SECONDS, "and how long it took")
    until(lambda: prometheus.one(f"unstall_orphaned_jobs{{{OF_MAIL}}}") == 0, SECONDS, "nothing is lost any more")


def test_scrapes_cost_the_queues_nothing_and_go_on_when_everything_else_stops(site: Site, prometheus: Scraping) -> None:
    """The last one: it ends the scheduler and stops both stores."""
    site.unschedule()
    site.queues.do("CONFIG", "RESETSTAT")
    for _ in range(30):
        status, text = scrape(site, accept="application/openmetrics-text;version=1.0.0")
        assert status == 200
        assert of_text(text, MetricsFormat.OPEN)
    asked = [name.removeprefix("cmdstat_") for name in site.queues.client.info("commandstats")]
    own = ("config", "info", "client", "hello")  # of this test's connection
    assert [name for name in asked if not name.startswith(own)] == []
    until(lambda: prometheus.one("unstall_snapshot_stale") == 1, SECONDS, "the numbers are old")
    until(lambda: prometheus.ask(f"unstall_jobs{{{OF_MAIL}}}") == [], SECONDS, "and are not told any more")
    site.state.pause()
    site.queues.pause()
    until(lambda: value(of_text(scrape(site)[1]), "unstall_state_store_up") == 0, SECONDS, "the state store is away")
    assert prometheus.one("unstall_snapshot_timestamp_seconds")
