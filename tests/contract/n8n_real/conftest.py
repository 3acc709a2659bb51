"""A real n8n of each generation, its owner's key, and Unstall beside it: once for each file of tests and generation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.n8n.n8n_console import LONG, settings
from tests.support.n8n.n8n_flows import SlowServer, calls, workflow
from tests.support.n8n.n8n_real import FOLDERS, LOCK_MS, RealN8n, installed
from tests.support.processes.site import Site
from tests.support.stores.postgres import Postgres, programs
from tests.support.stores.stores import Store, binary


@pytest.fixture(scope="module", params=["1.123", "2.41"])
def n8n(request: pytest.FixtureRequest) -> Iterator[RealN8n]:
    folder = installed().get(request.param)
    if folder is None:
        pytest.skip(f"{FOLDERS} names no n8n {request.param}; `make test-all` installs it")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    kind = "redis" if binary("redis") else "valkey"
    lock = getattr(request.module, "LOCK_MS", LOCK_MS)
    with Store(kind) as store, Postgres() as postgres, RealN8n(folder, store, postgres, lock) as n8n:
        n8n.start_main()
        yield n8n


@pytest.fixture(scope="module")
def slow() -> Iterator[SlowServer]:
    """What the workflow `slow` calls in its one step, which lasts until the test lets it go."""
    with SlowServer() as slow:
        yield slow


@pytest.fixture(scope="module")
def key(n8n: RealN8n, slow: SlowServer) -> str:
    key = n8n.own()
    n8n.add(workflow("long", LONG))
    n8n.add(workflow("short", 1))
    n8n.add(calls("slow", slow.url))
    return key


@pytest.fixture(scope="module")
def site(n8n: RealN8n, key: str) -> Iterator[Site]:
    with Store() as state, Site(n8n.store, state, settings=settings(n8n, key)) as site:
        yield site


@pytest.fixture
def clean(n8n: RealN8n, site: Site, slow: SlowServer) -> None:
    """No worker, nothing in the queue, and every slow step ended."""
    slow.renew()
    n8n.settle()


@pytest.fixture
def worker(n8n: RealN8n, clean: None) -> str:
    """One worker, and nothing in the queue."""
    n8n.start_worker()
    return "worker"
