"""The site on PostgreSQL: from an empty database to the first look at the queues, and through a crash of the server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from tests.support.patience import patience
from tests.support.people import PASSWORD
from tests.support.processes.processes import succeed
from tests.support.processes.site import Site
from tests.support.processes.web_process import WebProcess, environ_of
from tests.support.stores.disks import fill, small_disk
from tests.support.stores.postgres import Postgres, programs
from tests.support.stores.stores import Store
from tests.support.stuck.watching import add, bullmq
from tests.support.waiting import until

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
    link = urlsplit(manage(site.web.directory, postgres, "first-link").strip()).path
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
    until(lambda: admin.get("/readyz").json() == {"ready": True, "reasons": [], "degraded": []}, 10)


def test_pages_come_back_by_themselves_after_a_crash_of_the_database(
    site: Site, admin: httpx.Client, postgres: Postgres
) -> None:
    postgres.stop()
    try:
        down = admin.get("/queues")
        assert (down.status_code, down.headers["retry-after"]) == (503, "5")
        assert "The database does not answer" in down.text
        assert "127.0.0.1" not in down.text
        until(lambda: _lacks(admin) == ["database: does not answer"], 10)
        assert admin.get("/healthz").status_code == 200
        began = time.monotonic()
        assert {admin.get("/queues").status_code for _ in range(10)} == {503}
        assert time.monotonic() - began < patience(2), "nobody waits for a database that is known to be down"
        assert "Traceback" not in site.web.log
    finally:
        postgres.start()
    until(lambda: admin.get("/queues").status_code == 200, 5, "they are back")
    assert {admin.get("/queues").status_code for _ in range(10)} == {200}


def test_a_database_without_our_tables_is_called_not_migrated(admin: httpx.Client, postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE dashboard_user RENAME TO aside")
        try:
            told = admin.get("/queues")
            assert (told.status_code, "The database is not migrated" in told.text) == (503, True)
            until(lambda: _lacks(admin) == ["database: is not migrated"], 10)
        finally:
            connection.execute("ALTER TABLE aside RENAME TO dashboard_user")
    assert admin.get("/queues").status_code == 200


def test_a_database_that_takes_no_writes_takes_it_out_of_service_and_pages_go_on(
    admin: httpx.Client, postgres: Postgres
) -> None:
    until(lambda: not _lacks(admin), 10)
    with _alter(postgres, "SET default_transaction_read_only = on", "RESET default_transaction_read_only"):
        until(lambda: _lacks(admin) == ["database: cannot be written to"], 10)
        assert admin.get("/queues").status_code == 200
    until(lambda: not _lacks(admin), 10)


@pytest.mark.long
def test_a_full_disk_of_the_database_takes_it_out_of_service(tmp_path: Path) -> None:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(160))
        server, state, queues = (stack.enter_context(one) for one in (Postgres(disk), Store(), Store()))
        manage(tmp_path, server, "migrate", "--verbosity=0")
        environ = {"UNSTALL_STATE_URL": state.url, "UNSTALL_REDIS_URL": queues.url, "DATABASE_URL": server.url}
        web = stack.enter_context(WebProcess(environ))
        until(lambda: web.get("/readyz").status == 200, 10)
        filler = fill(disk)
        ready = until(lambda: (now := web.get("/readyz")).status == 503 and now, 10)
        assert json.loads(ready.body)["reasons"] == ["database: cannot be written to"]
        filler.unlink()
        until(lambda: web.get("/readyz").status == 200, 10)


def _lacks(client: httpx.Client) -> list[str]:
    answer = client.get("/readyz")
    found: list[str] = answer.json()["reasons"]
    assert answer.status_code == (503 if found else 200)
    return found


@contextmanager
def _alter(postgres: Postgres, change: str, back: str) -> Iterator[None]:
    """For every session: those that are there end, and new ones begin with it."""
    others = "pid <> pg_backend_pid() AND datname = 'postgres'"
    leave = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        try:
            connection.execute(f"ALTER DATABASE postgres {change}".encode())
            connection.execute(leave.encode())
            yield
        finally:
            connection.execute(f"ALTER DATABASE postgres {back}".encode())
            connection.execute(leave.encode())


def manage(directory: Path, postgres: Postgres, *arguments: str) -> str:
    return succeed("manage.py", *arguments, environ=environ_of(directory, {"DATABASE_URL": postgres.url}))


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """The form of this page, filled in."""
    page = client.get(path)
    (token,) = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[:1]
    return client.post(path, data={"csrfmiddlewaretoken": token, **fields})
