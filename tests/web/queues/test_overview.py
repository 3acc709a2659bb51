"""/queues: what stands on it, what it costs, and what it says when something is missing."""

from __future__ import annotations

import gzip
import re
import time

import pytest

from dashboard.accounts.roles import UserRole
from dashboard.live import state_cache
from dashboard.live.cached_state import SnapshotHealth
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import JobCounts, QueueSample, Snapshot
from recovery.reads.queues.overview import CHUNK
from tests.support.people import browser, person
from tests.support.stuck.samples import NOW, abandoned, counts, queue, rates, snapshot

pytestmark = pytest.mark.django_db
WEIGHT = 150 * 1024  # bytes of a page, compressed


class House:
    """A watched world, and a viewer in front of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = int(time.monotonic_ns())  # fragments are named by it, and outlive a test
        self.health = SnapshotHealth(snapshot_age_ms=800, scheduler_alive=True, stale=False)
        self.snapshot: Snapshot | None = None
        monkeypatch.setattr(state_cache, "newest_snapshot", lambda: self.snapshot)
        monkeypatch.setattr(state_cache, "health", lambda: self.health)
        self.viewer = browser(person(UserRole.VIEWER))

    def holds(self, *queues: QueueSample, silent: str = "") -> None:
        self.number += 1
        self.snapshot = snapshot(*queues, number=self.number, silent=silent)

    def page(self, address: str = "/queues") -> str:
        answer = self.viewer.get(address)
        assert answer.status_code == 200, answer.content
        return answer.content.decode()


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    return House(monkeypatch)


def test_a_stranger_sees_no_queue(house: House) -> None:
    house.holds(queue("bull:secret-project"))
    for address in ("/queues", "/queues/rows"):
        answer = browser().get(address)
        assert answer.status_code == 302
        assert b"secret-project" not in answer.content


def test_it_shows_the_numbers_and_the_trouble(house: House) -> None:
    house.holds(abandoned(), queue(counts=counts(waiting=1204, failed=48), rates=rates(5, 1)))
    page = house.page()
    assert "1,204" in page
    assert "whether they recover is not known yet" in page
    assert page.index("bull:jobs</a>") < page.index("bull:mail</a>")
    assert '<a id="q-main-bull:mail" href="/queues/main/bull:mail/">' in page


def test_names_are_text(house: House) -> None:
    house.holds(queue("bull:<script>alert(1)</script>\r\n"), queue("bull:\udcff", error="<b>no</b>"))
    page = house.page()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;␍␊" in page
    assert "bull:�" in page
    assert "cannot be read: &lt;b&gt;no&lt;/b&gt;" in page


def test_unknown_is_written_and_is_no_zero(house: House) -> None:
    house.holds(QueueSample(QueueRef("main", "bull:hidden"), counts=JobCounts()))
    row = re.search(r"<tr data-row.*?</tr>", house.page(), re.DOTALL)
    assert row is not None
    numbers = re.findall(r'data-label="(\w[\w ]+)">([^<]*)<', row[0])
    assert dict(numbers)["Waiting"] == "unknown"
    assert "0" not in {text for _, text in numbers}


def test_nothing_found_yet_nothing_matches_and_not_readable_are_three_texts(house: House) -> None:
    house.holds()
    empty = house.page()
    house.holds(queue())
    filtered = house.page("/queues?q=nonsense")
    house.snapshot, house.health = None, SnapshotHealth(error="redis://state:6379: Connection refused")
    unread = house.page()
    assert "No queues found yet" in empty
    assert "No queue matches this filter" in filtered
    assert "cannot be read yet" in unread
    assert "Connection refused" in unread


def test_old_numbers_are_grey_and_claim_nothing(house: House) -> None:
    house.holds(abandoned())
    house.health = SnapshotHealth(snapshot_age_ms=34_000, scheduler_alive=False, stale=True)
    page = house.page()
    assert page.count(" data-stale") == 2
    assert "recover is not known" not in page
    assert "The scheduler is not running." in page


def test_a_page_that_stays_open_turns_grey_and_back(house: House) -> None:
    house.holds(queue())
    fresh = house.health
    house.health = SnapshotHealth(snapshot_age_ms=34_000, scheduler_alive=False, stale=True)
    assert house.page("/queues/rows").count(" data-stale") == 2
    house.health = fresh
    assert " data-stale" not in house.page("/queues/rows")


def test_a_silent_deployment_says_why_its_rows_are_old(house: House) -> None:
    house.holds(queue("bull:a"), queue("bull:b", deployment="eu"), silent="eu")
    page = house.page()
    assert page.count("stale: connection refused") == 1


def test_the_first_rows_are_here_and_the_rest_is_a_link_away(house: House) -> None:
    house.holds(*(queue(f"bull:q{index:04d}") for index in range(CHUNK + 5)))
    first = house.page()
    assert first.count("<tr data-row") == CHUNK
    assert f'href="/queues?from={CHUNK}"' in first
    second = house.page(f"/queues?from={CHUNK}")
    assert second.count("<tr data-row") == 5
    assert 'id="before" href="/queues?"' in second
    fragment = house.page(f"/queues/rows?from={CHUNK}")
    assert fragment.count("<tr data-row") == 5
    assert "<html" not in fragment


def test_a_refresh_brings_the_rows_and_what_stands_above_them(house: House) -> None:
    house.holds(abandoned())
    fragment = house.page("/queues/rows")
    assert 'id="rows-0"' in fragment
    assert 'id="summary" class="summary" hx-swap-oob="true"' in fragment
    house.snapshot = None
    assert house.viewer.get("/queues/rows").status_code == 204


def test_a_sorted_head_says_so_and_keeps_the_filter(house: House) -> None:
    house.holds(queue())
    page = house.page("/queues?q=mail&sort=-failed")
    assert 'aria-sort="descending"' in page
    assert 'href="?q=mail&amp;sort=failed"' in page
    assert 'name="sort" value="-failed"' in page


def test_groups_have_heads(house: House) -> None:
    house.holds(queue("app:eu:a"), queue("app:us:b"))
    page = house.page("/queues?group=%3A")
    assert '<tr class="group"><th scope="colgroup" colspan="12">app:eu</th></tr>' in page


def test_a_thousand_queues_are_a_light_page(house: House) -> None:
    house.holds(
        *(
            queue(
                f"bull:queue-{index:04d}", counts=counts(waiting=index, failed=index % 7), rates=rates(index, index % 3)
            )
            for index in range(1000)
        )
    )
    answer = house.viewer.get("/queues", headers={"accept-encoding": "gzip"})
    assert len(answer.content) < WEIGHT
    assert gzip.decompress(answer.content).count(b"<tr data-row") == CHUNK


def test_who_comes_second_costs_no_second_rendering(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard.queues.overview import views as overview_views

    house.holds(queue())
    house.page()
    monkeypatch.setattr(overview_views, "cells", None)
    assert "bull:mail" in house.page()


def test_no_time_stands_still_while_numbers_move(house: House) -> None:
    house.holds(queue(counts=counts(waiting=1), oldest_waiting_at=NOW - 61_000))
    assert '">1 min</td>' in house.page()
