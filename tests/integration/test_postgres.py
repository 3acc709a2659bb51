"""The site on PostgreSQL: from an empty database to the first look at the queues, and through a crash of the server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.people import PASSWORD
from tests.postgres import Postgres, programs
from tests.site import Site
from tests.stores import Store
from tests.waiting import until
from tests.watching import add, bullmq
from tests.web_process import ROOT, environ_of

BASE = "bull:mail"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def site(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Migrated as an operator does it, then started."""
    manage(tmp_path_factory.mktemp("manage"), postgres, "migrate", "--verbosity=0")
    with Store() as queues, Store() as state:
        bullmq(queues.client, BASE)
        add(queues.client, BASE, "1", "2")
        with Site(queues, state, {"DATABASE_URL": postgres.url}) as site:
            yield site


@pytest.fixture(scope="module")
def admin(site: Site, postgres: Postgres) -> Iterator[httpx.Client]:
    """A browser that came in by the first link."""
    link = manage(site.web.directory, postgres, "first-link").strip()
    with httpx.Client(base_url=site.url, follow_redirects=True, timeout=20) as client:
        answer = post(client, link, username="ada", password=PASSWORD)
        assert answer.url.path == "/queues", answer.text
        yield client


def test_from_the_first_link_to_the_queues(site: Site, admin: httpx.Client) -> None:
    until(lambda: BASE in admin.get("/queues").text, 15, "the queue is discovered")
    assert admin.get(f"/queues/main/{BASE}/jobs/1").status_code == 200
    with httpx.Client(base_url=site.url, follow_redirects=True, timeout=20) as other:
        assert post(other, "/login", username="ada", password="not this one").url.path == "/login"
        assert post(other, "/login", username="ada", password=PASSWORD).url.path == "/queues"
    ready = admin.get("/readyz")
    assert ready.json() == {"ready": True, "reasons": []}


def test_a_crash_between_two_pages_is_not_seen_at_all(admin: httpx.Client, postgres: Postgres) -> None:
    with ThreadPoolExecutor(4) as beside:
        assert {answer.status_code for answer in beside.map(admin.get, ["/queues"] * 12)} == {200}
        postgres.stop()  # and with it every connection that waits in the pool
        postgres.start()
        assert {answer.status_code for answer in beside.map(admin.get, ["/queues"] * 12)} == {200}


def test_pages_come_back_by_themselves_after_a_crash_of_the_database(admin: httpx.Client, postgres: Postgres) -> None:
    postgres.stop()
    try:
        down = admin.get("/queues")
        assert (down.status_code, down.headers["retry-after"]) == (503, "5")
        assert "The database does not answer" in down.text
        assert "127.0.0.1" not in down.text
        assert admin.get("/readyz").json()["reasons"] == ["database: does not answer"]
        assert admin.get("/healthz").status_code == 200
    finally:
        postgres.start()
    until(lambda: admin.get("/queues").status_code == 200, 5, "they are back")
    assert {admin.get("/queues").status_code for _ in range(10)} == {200}


def manage(directory: Path, postgres: Postgres, *arguments: str) -> str:
    environ = environ_of(directory, {"DATABASE_URL": postgres.url})
    command = [sys.executable, "manage.py", *arguments]
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """The form of this page, filled in."""
    page = client.get(path)
    (token,) = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[:1]
    return client.post(path, data={"csrfmiddlewaretoken": token, **fields})
