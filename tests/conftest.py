"""Stores and the fleet of real libraries, for every test: one set per xdist worker, emptied for each test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from recovery import shared_clock
from recovery.stores.state.shared_read import identities, windows
from tests.support.certificates import issue, openssl
from tests.support.processes.driver import lacking
from tests.support.processes.fleet import GENERATIONS, Fleet, Library
from tests.support.stores.cluster import Cluster
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store, binary

# A busy machine is slow, not wrong: generated examples are not timed.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_sessionstart() -> None:
    """Nothing of ours reads Django's permissions, and to write them anew after each emptied database takes 20 ms."""
    from django.contrib.contenttypes.management import create_contenttypes
    from django.db.models.signals import post_migrate

    assert post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    assert post_migrate.disconnect(create_contenttypes)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """What a test before this one read in the same process is read again, and the time is that of the host.

    No store tells a test the time, and in some minutes a steady clock is 50 ms away from the one that workers and
    databases go by.
    """
    shared_clock.ours.set(int(time.time() * 1000))
    windows.forget()
    identities.forget()


@pytest.fixture(scope="session")
def _servers() -> Iterator[Callable[[str, str], Store]]:
    """Session-wide servers by kind and purpose, started when first asked for."""
    started: dict[tuple[str, str], Store] = {}

    def server(kind: str, purpose: str) -> Store:
        if (kind, purpose) not in started:
            started[kind, purpose] = Store(kind).start()
        return started[kind, purpose]

    yield server
    for store in started.values():
        store.close()


@pytest.fixture
def valkey(_servers: Callable[[str, str], Store]) -> Store:
    """The queues' store: a private Valkey, empty. It may be stopped and paused; to configure one, use `serve`."""
    return _renewed(_servers("valkey", "queues"))


@pytest.fixture(params=["valkey", "redis"])
def store(request: pytest.FixtureRequest, _servers: Callable[[str, str], Store]) -> Store:
    """The queues' store, once as Valkey and once as Redis."""
    need(request.param)
    return _renewed(_servers(request.param, "queues"))


@pytest.fixture
def store_for(_servers: Callable[[str, str], Store]) -> Callable[[str], Store]:
    """The queues' store for one generation: by turns Redis and Valkey, so that all of them together meet both."""

    def of(generation: str) -> Store:
        kind = ("redis", "valkey")[sorted(GENERATIONS).index(generation) % 2]
        need(kind)
        return _renewed(_servers(kind, "queues"))

    return of


@pytest.fixture
def state_store(_servers: Callable[[str, str], Store]) -> Store:
    """Where our own state goes: another server than the queues'."""
    return _renewed(_servers("valkey", "state"))


@pytest.fixture
def serve() -> Iterator[Callable[..., Store]]:
    """Start a server with options of the test's own (`serve(options={"requirepass": "x"})`); gone afterwards."""
    with ExitStack() as stack:

        def start(kind: str = "valkey", **chosen: Any) -> Store:
            need(kind)
            return stack.enter_context(Store(kind, **chosen))

        yield start


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ca.crt, server.crt and server.key for `serve("redis", tls=certificates)`."""
    if openssl() is None:
        pytest.skip("openssl is not installed: no certificates to test TLS with")
    return issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def _sentinel() -> Iterator[Sentinel]:
    sentinel = Sentinel().start()
    yield sentinel
    sentinel.close()


@pytest.fixture
def sentinel(_sentinel: Sentinel) -> Sentinel:
    """A master, a replica and the Sentinel that watches them, empty."""
    _sentinel.renew()
    return _sentinel


@pytest.fixture(scope="session")
def _cluster() -> Iterator[Cluster]:
    cluster = Cluster().start()
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(_cluster: Cluster) -> Cluster:
    """A cluster of three masters, empty."""
    _cluster.renew()
    return _cluster


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """The generations as they live all session, for fixtures of a wider scope: end what you start with it."""
    if reason := lacking():
        pytest.skip(reason)
    fleet = Fleet()
    yield fleet
    fleet.stop()


@pytest.fixture
def libraries(fleet: Fleet) -> Iterator[Fleet]:
    """All six generations by name (`libraries["bull4"]`); every worker ends with the test."""
    yield fleet
    fleet.reset()


@pytest.fixture(scope="session")
def our_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Path], str]]:
    """Makes a database with our tables, `our_database("sqlite" or "postgresql", directory)`, and tells its URL."""
    from tests.support.stores.furnished import Furnished  # it needs a driver, and few tests need it

    with Furnished(tmp_path_factory.mktemp("furnished")) as furnished:
        yield furnished.database


@pytest.fixture(scope="session")
def _databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Session-wide SQL databases by kind, started when first asked for."""
    from tests.support.stores.databases import Databases  # it needs drivers, and few tests need it

    with Databases(tmp_path_factory.mktemp("databases")) as databases:
        yield databases.place


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, _databases: Callable[[str], Any]) -> Any:
    """An application's database, empty: once of each kind."""
    return _databases(request.param)


@pytest.fixture
def postgresql(_databases: Callable[[str], Any]) -> Any:
    """The same, PostgreSQL alone."""
    return _databases("postgresql")


@pytest.fixture
def jobs(place: Any, tmp_path: Path) -> Iterator[Any]:
    """The table `jobs` in it, empty; see tests/support/stores/tables.py."""
    from tests.support.stores.tables import jobs_in

    with jobs_in(place, tmp_path) as jobs:
        jobs.create()
        yield jobs


@pytest.fixture
def watch_bench(tmp_path: Path, state_store: Store) -> Iterator[Callable[..., Any]]:
    """Makes an orphan-watch over one store, looked at by hand: `watch_bench(valkey)`, with more TOML behind."""
    from tests.support.stuck.watch_bench import (  # it needs all of the engine, and few tests need it
        SHORT,
        WatchBench,
        config_for,
    )

    made: list[WatchBench] = []

    def make(store: Store, toml: str = SHORT) -> WatchBench:
        made.append(WatchBench(config_for(tmp_path, state_store, store, toml)))
        return made[-1]

    yield make
    for one in made:
        one.close()


# -- n8n; a file of tests that needs another release, name or setting has a fixture that says so


@pytest.fixture
def n8n_release() -> str:
    return "2.41"


@pytest.fixture
def n8n_workflow() -> str:
    return "Invoices"


@pytest.fixture
def n8n_settings() -> str:
    """More for [[n8n]]."""
    return ""


@pytest.fixture
def yard(valkey: Store, postgresql: Any, libraries: Fleet, n8n_release: str, n8n_workflow: str) -> Any:
    """The tables and the queue of an n8n with one workflow; see tests/support/n8n/n8n_yard.py."""
    from tests.support.n8n.n8n_yard import Yard  # it needs a driver, and few tests need it

    yard = Yard(valkey, postgresql, libraries, release=n8n_release)
    yard.workflow(n8n_workflow)
    return yard


@pytest.fixture
def api(yard: Any) -> Iterator[Any]:
    """Its public API; see tests/support/n8n/n8n_api.py."""
    from tests.support.n8n.n8n_api import PublicApi

    with PublicApi(yard) as api:
        yield api


@pytest.fixture
def here(
    yard: Any, n8n_settings: str, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A process that may mend what is in the yard; see tests/support/n8n/n8n_mending.py."""
    from tests.support.n8n.n8n_mending import mending

    with mending(yard, state_store, tmp_path, monkeypatch, more=n8n_settings) as here:
        yield here


@pytest.fixture(params=GENERATIONS)
def library(request: pytest.FixtureRequest, libraries: Fleet) -> Library:
    """Each generation in its turn."""
    return libraries[request.param]


def need(kind: str) -> None:
    """Skip, with the reason, what this machine cannot run."""
    if binary(kind) is None:
        pytest.skip(f"{kind}-server is not installed (Debian: apt install redis-server)")


def _renewed(store: Store) -> Store:
    store.renew()
    return store
