"""Another console that leads on the same Redis is shown wherever something is promised."""

from __future__ import annotations

import pytest

from dashboard.accounts.roles import UserRole
from dashboard.live import events, state_cache
from dashboard.live.cached_state import CachedState
from dashboard.server import probes
from recovery.domain.scheduler.consoles import Console
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.stores.state import state_keys
from tests.support.people import browser, person
from tests.support.scraping import full, read, value
from tests.support.stuck.samples import NOW
from tests.support.stuck.watching import bullmq
from tests.web.acting import BASE
from tests.web.conftest import Desk

ACTS = Console("main", "b" * 32, "host-b", 41, 1_790_000_000_000, acts=True)
SIGN = SchedulerStatus("host-a", 7, 3, NOW, NOW, "a", (ACTS,))


@pytest.mark.django_db(transaction=True)
def test_every_page_says_who_acts_and_what_that_means(desk: Desk) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    desk.state.client.set(state_keys.SCHEDULER, SIGN.encode(), ex=60)
    state_cache.forget_cached()
    client = browser(person(UserRole.VIEWER))
    for address in ("/queues", f"/queues/main/{BASE}/", "/stuck", "/scanners", "/tuning"):
        page = client.get(address).content.decode()
        assert "Another console acts on main: host-b (process 41, installation bbbbbbbb), since" in page, address
        assert "Scanners and bulk runs are paused here" in page, address
    assert "host-b" not in browser().get("/login").content.decode()


def test_an_open_page_hears_of_it() -> None:
    image = CachedState(2.0)
    image.take(None, SIGN.encode())
    assert ACTS.words in events.tick(image, NOW).decode()


def test_it_is_measured() -> None:
    picture = full()
    assert value(read(picture), "unstall_held_by_other_console", deployment="main") == 0
    picture.image.leader = SIGN
    assert value(read(picture), "unstall_other_consoles", deployment="main") == 1
    assert value(read(picture), "unstall_held_by_other_console", deployment="main") == 1


def test_a_probe_is_told_without_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    image = CachedState(2.0)
    image.take(None, SIGN.encode())
    monkeypatch.setattr(state_cache, "cached_state", lambda: image)
    _, told = probes._alive(NOW)
    assert told["other_consoles"] == {"main": "acts"}
    assert "host-b" not in str(told)
