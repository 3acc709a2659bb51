"""A web process gives memory of ordinary work back: round after round it stays where it was."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.support.patience import patience
from tests.support.processes.site import Site
from tests.support.processes.web_process import COOKIE
from tests.support.stores.stores import Store
from tests.support.stuck.watching import add, bullmq
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
MEGABYTE = 1 << 20
ROUNDS = 8
LARGE = "/static/plotly/plotly.min.js"  # 4.6 MB
PAGES = ("/queues", "/stuck", "/audit", "/scanners", "/servers", "/alerts", "/tuning", "/docs/configuration", "/api")
JOB = "/queues/main/bull:mail/jobs/large"
TABS = ("?tab=data", "?tab=data&whole", "?tab=raw", "?tab=error")
# What people paste is some kilobytes; this is as much as is taken without saying so.
MANIFESTS = "\n---\n".join(
    f"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: worker-{number}\nspec:\n  template:\n    spec:\n"
    f"      containers:\n        - name: worker\n          image: n8nio/n8n:1.100.0\n          args: [worker]"
    for number in range(60)
)
GROWTH = 24 * MEGABYTE  # of the late rounds over the early ones
MOST = 400 * MEGABYTE  # in all; fresh it has 115 MB


@pytest.fixture
def site(valkey: Store, state_store: Store) -> Iterator[Site]:
    bullmq(valkey.client, "bull:mail")
    add(valkey.client, "bull:mail", "large", data='{"text": "%s"}' % ("<a>" * (2 * MEGABYTE)))
    with Site(valkey, state_store) as site:
        until(lambda: site.web.get(JOB, "admin").status == 200, 60, "the queue is found")
        yield site


def test_rounds_of_ordinary_work_have_a_plateau(site: Site) -> None:
    process, seen = psutil.Process(site.web.pid), []
    for _ in range(ROUNDS):
        with httpx.Client(base_url=site.url, timeout=patience(120)) as client:
            client.cookies.set(COOKIE, site.cookie("admin"))
            _round(client)
        seen.append(process.memory_info().rss)
    early, late = max(seen[1 : ROUNDS // 2]), max(seen[ROUNDS // 2 :])
    told = [round(rss / MEGABYTE) for rss in seen]
    assert late - early <= GROWTH, told
    assert late <= MOST, told


def _round(client: httpx.Client) -> None:
    for path in (*PAGES, *(f"{JOB}{tab}" for tab in TABS), LARGE, LARGE, LARGE):
        assert client.get(path).status_code == 200, path
    for form in ("json", "csv"):
        assert client.get(f"/audit/export?format={form}").status_code == 200
    for _ in range(3):
        page = client.get("/tuning")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token
        sent = {"csrfmiddlewaretoken": token[1], "text": MANIFESTS}
        assert client.post("/tuning", data=sent, headers={"referer": str(page.url)}).status_code == 200
