"""The connections that requests share, while the server is stopped, hangs and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import psycopg
import pytest

from dashboard.database_url import database_settings
from dashboard.postgres import base as pools
from dashboard.postgres.base import PostgresPool
from tests.support.patience import patience
from tests.support.stores.postgres import Postgres, programs
from tests.support.waiting import until

AT_ONCE = 0.5  # seconds
BACK = 5.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with Postgres() as server:
        yield server


@pytest.fixture
def pool(postgres: Postgres) -> Iterator[PostgresPool]:
    pool = PostgresPool({"conninfo": postgres.url, "connect_timeout": 2})
    yield pool
    pool._drop_idle()


def test_a_connection_is_used_again_unless_something_was_left_open_in_it(pool: PostgresPool) -> None:
    first = pool.take()
    pool.give(first)
    again = pool.take()
    assert again is first
    again.execute("SELECT 1")  # begins a transaction
    pool.give(again)
    assert again.closed
    pool.give(pool.take())


def test_whoever_finds_no_free_connection_is_told_so(pool: PostgresPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "WAIT", 0.05)
    taken = [pool.take() for _ in range(pools.SIZE)]
    with pytest.raises(psycopg.OperationalError, match="all 8 connections are in use"):
        pool.take()
    for one in taken:
        pool.give(one)
    pool.give(pool.take())


def test_a_server_that_restarted_meanwhile_costs_nobody_an_error(pool: PostgresPool, postgres: Postgres) -> None:
    for one in [pool.take(), pool.take(), pool.take(), pool.take()]:
        pool.give(one)
    postgres.stop()  # and with it every connection that waits in the pool
    postgres.start()
    with ThreadPoolExecutor(4) as beside:
        assert set(beside.map(lambda _: _answer(pool), range(12))) == {1}


def test_while_the_server_is_down_nobody_waits_and_it_is_found_again_soon(
    pool: PostgresPool, postgres: Postgres
) -> None:
    assert _answer(pool) == 1
    postgres.stop()
    try:
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(psycopg.OperationalError):
                pool.take()
        assert time.monotonic() - began < patience(AT_ONCE)
    finally:
        postgres.start()
    until(lambda: _answers(pool), BACK, "it is back")


class Watched(PostgresPool):
    """Knows when it tried to connect."""

    def __init__(self, postgres: Postgres) -> None:
        self.tried: list[float] = []
        super().__init__({"conninfo": postgres.url, "connect_timeout": 2})

    def _connect(self) -> pools.Connection:
        self.tried.append(time.monotonic())
        return super()._connect()


def test_a_server_that_restarts_is_tried_again_at_once_and_one_that_stays_away_seldom(postgres: Postgres) -> None:
    """A restart takes a moment: whoever asks right behind it is not refused for a whole second more."""
    pool = Watched(postgres)
    postgres.stop()
    try:
        with pytest.raises(psycopg.OperationalError):
            pool.take()
        until(lambda: len(pool.tried) >= 6, BACK, "it is tried again")
    finally:
        postgres.start()
    pauses = [later - earlier for earlier, later in pairwise(pool.tried)]
    assert pauses[0] < pools.RETRY
    assert pauses[4] >= pools.RETRY
    until(lambda: _answers(pool), BACK, "it is back")
    pool._drop_idle()


def test_a_server_that_hangs_is_waited_for_once(
    pool: PostgresPool, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANSWER", 0.1)
    assert _answer(pool) == 1
    with postgres.paused():
        with pytest.raises(psycopg.OperationalError):
            pool.take()
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError):
            pool.take()
        assert time.monotonic() - began < patience(AT_ONCE)
    until(lambda: _answers(pool), BACK, "it is back")


def test_a_server_that_is_cut_off_is_given_up_soon() -> None:
    """TCP by itself would wait for a quarter of an hour, and for two hours where it only listens."""
    options = database_settings("postgres://unstall@db.internal/unstall")["OPTIONS"]
    assert options["tcp_user_timeout"] <= 10_000
    assert options["keepalives_idle"] + options["keepalives_interval"] * options["keepalives_count"] <= 10


def _answer(pool: PostgresPool) -> int:
    connection = pool.take()
    connection.autocommit = True
    (found,) = connection.execute("SELECT 1").fetchone() or (0,)
    pool.give(connection)
    return int(found)


def _answers(pool: PostgresPool) -> bool:
    try:
        return _answer(pool) == 1
    except psycopg.OperationalError:
        return False
