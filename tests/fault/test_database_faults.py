"""The database is locked, or gone: a sentence with 503 and never a 500, and back by itself."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.support.processes.schedulers import DATABASE, furnish
from tests.support.processes.web_process import Answer, WebProcess
from tests.support.stores.disks import fill, small_disk
from tests.support.stores.stores import Store
from tests.support.waiting import until

BASE = "unstall.sqlite3"


@pytest.fixture
def web(valkey: Store, state_store: Store) -> Iterator[WebProcess]:
    with WebProcess({"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url}) as process:
        yield process


def test_a_database_that_a_writer_holds_delays_logins_and_no_page(web: WebProcess) -> None:
    cookie, token = _form(web)
    with _held(web, "BEGIN IMMEDIATE"):
        with ThreadPoolExecutor(1) as beside:
            login = beside.submit(_log_in, web, cookie, token)
            assert web.get("/queues", "viewer", seconds=2).status == 200
        _is_told(login.result())
    assert _log_in(web, cookie, token).status == 302


def test_a_database_that_nobody_can_read_is_told_everywhere(web: WebProcess) -> None:
    cookie, token = _form(web)
    with _held(web, "PRAGMA locking_mode=EXCLUSIVE", "BEGIN EXCLUSIVE"), ThreadPoolExecutor(5) as beside:
        pages = [beside.submit(web.get, path, "viewer") for path in ("/queues", "/users", "/search?q=1")]
        login = beside.submit(_log_in, web, cookie, token)
        for asked in (*pages, login):
            _is_told(asked.result())
        until(lambda: b"database: does not answer" in web.get("/readyz").body, 15)
        assert web.get("/healthz").status == 200
    assert web.get("/queues", "viewer").status == 200


def test_a_database_that_is_gone_is_told_and_found_again(web: WebProcess) -> None:
    path, aside = web.directory / BASE, web.directory / "aside"
    path.rename(aside)
    for page in ("/queues", "/login"):
        _is_told(web.get(page, "viewer"), b"The database is not migrated")  # what is in its place is empty
    told = web.get("/queues", "viewer", headers={"HX-Request": "true"})
    assert (told.status, told.headers["hx-retarget"]) == (503, "#trouble")
    until(lambda: b"database: is not migrated" in (ready := web.get("/readyz")).body and ready.status == 503, 10)
    aside.rename(path)
    until(lambda: web.get("/queues", "viewer").status == 200, 5)


def test_a_full_disk_takes_it_out_of_service_until_there_is_space_again(valkey: Store, state_store: Store) -> None:
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url}
    with small_disk(12) as disk, ExitStack() as stack:
        furnish(disk)
        place = f"sqlite:///{disk / DATABASE}"
        web = stack.enter_context(WebProcess({**environ, "DATABASE_URL": place}))
        until(lambda: web.get("/readyz").status == 200, 10)
        filler = fill(disk)
        ready = until(lambda: (now := web.get("/readyz")).status == 503 and now, 30)
        (reason,) = json.loads(ready.body)["reasons"]
        # SQLite may need space for its own files before it can read.
        assert reason in ("database: cannot be written to", "database: does not answer")
        assert web.get("/healthz").status == 200
        filler.unlink()
        until(lambda: web.get("/readyz").status == 200, 10)


def _form(web: WebProcess) -> tuple[str, str]:
    """The CSRF cookie and the token of the login form."""
    answer = web.get("/login")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    (token,) = re.findall(rb'name="csrfmiddlewaretoken" value="([^"]+)"', answer.body)
    return cookie, token.decode()


def _log_in(web: WebProcess, cookie: str, token: str) -> Answer:
    form = {"csrfmiddlewaretoken": token, "username": "viewer", "password": "pass-viewer"}
    return web.get("/login", form=form, headers={"Cookie": cookie}, seconds=20)


def _is_told(answer: Answer, what: bytes = b"The database does not answer") -> None:
    assert answer.status == 503, answer.body
    assert answer.headers["retry-after"] == "5"
    assert what in answer.body
    assert b"sqlite" not in answer.body


@contextmanager
def _held(web: WebProcess, *statements: str) -> Iterator[None]:
    with closing(sqlite3.connect(web.directory / BASE, timeout=5, isolation_level=None)) as holder:
        for statement in statements:
            holder.execute(statement)
        yield
