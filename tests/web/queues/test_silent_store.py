"""A page has a second, however many reads it takes of a store that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.accounts.roles import UserRole
from recovery.domain.identifiers import QueueRef
from recovery.reads.queues import search
from recovery.reads.queues.job_lists import Queue
from recovery.stores import registry
from tests.support.patience import promptly
from tests.support.people import browser, person
from tests.support.stores.stores import Store
from tests.support.stuck.watching import add, bullmq, config_of
from tests.support.waiting import until
from tests.web.conftest import BULLMQ, Desk

pytestmark = pytest.mark.django_db
PAGE = "/queues/main/bull:mail/"
PAGES = (f"{PAGE}?tab=history&hours=24", f"{PAGE}?tab=active", f"{PAGE}chart?hours=4", f"{PAGE}jobs/1", "/search?q=1")


@pytest.fixture
def hung(desk: Desk) -> Desk:
    bullmq(desk.client, "bull:mail")
    add(desk.client, "bull:mail", "1")
    desk.look("bull:mail")
    return desk


@pytest.mark.parametrize("address", PAGES)
def test_every_page_waits_for_one_timeout_only(hung: Desk, address: str) -> None:
    client = browser(person(UserRole.VIEWER))
    hung.store.pause()
    try:
        with promptly(0.9, address):
            client.get(address)
    finally:
        hung.store.resume()


def test_a_known_failure_is_told_without_waiting_and_soon_forgotten(hung: Desk) -> None:
    client = browser(person(UserRole.VIEWER))
    hung.store.pause()
    try:
        assert client.get(f"{PAGE}jobs/1").status_code == 503
        with promptly(0.4):
            assert client.get(f"{PAGE}jobs/other").status_code == 503
    finally:
        hung.store.resume()
    until(lambda: client.get(f"{PAGE}jobs/1").status_code == 200, 5)


def test_several_silent_deployments_cost_a_search_the_time_of_one(
    hung: Desk, state_store: Store, tmp_path: Path
) -> None:
    names = ("main", "second", "third", "fourth")
    config_of(tmp_path, state_store, {name: f"{hung.store.url[:-1]}{number}" for number, name in enumerate(names)})
    registry.reset()
    queues = [Queue(QueueRef(name, "bull:mail"), BULLMQ) for name in names]
    hung.store.pause()
    try:
        with promptly(0.9, "the search"):
            hits = search.by_id("1", queues)
    finally:
        hung.store.resume()
    assert sorted(hits.silent) == sorted(names)
