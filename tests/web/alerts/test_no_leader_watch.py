"""That nobody leads is told by the web processes: by one of them, once, whatever else is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from dashboard.alerts.no_leader_watch import EVERY, NoLeaderWatch
from dashboard.live.cached_state import CachedState, SnapshotHealth
from recovery.alerts import delivery
from recovery.models import Alert
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.support.receivers import Hooked, hooked
from tests.support.stores.stores import Store
from tests.support.stuck.watching import config_of

pytestmark = pytest.mark.django_db(transaction=True)
AT = 1_760_000_000_000
LED = SnapshotHealth(snapshot_age_ms=800, scheduler_alive=True, stale=False)
ALONE = SnapshotHealth(snapshot_age_ms=60_000, scheduler_alive=False)
UNLED = SnapshotHealth(snapshot_age_ms=800, scheduler_alive=True, stale=False, is_unled=True)
BLIND = SnapshotHealth(error="The state store does not answer: redis://state: connection refused")
NOT_YET = SnapshotHealth()


@pytest.fixture
def hook() -> Iterator[Hooked]:
    with hooked() as made:
        yield made


@pytest.fixture(autouse=True)
def _configured(
    hook: Hooked, valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    config_of(tmp_path, state_store, {"main": valkey})
    toml = tmp_path / "unstall.toml"
    toml.write_text(f'{toml.read_text()}\n[alerts]\n[[alerts.webhooks]]\nname = "ops"\nurl = "{hook.url}"\n')
    monkeypatch.setenv("UNSTALL_CONFIG", str(toml))
    monkeypatch.setattr(delivery, "SECONDS", 30.0)  # more than a busy machine needs
    registry.reset()
    yield
    registry.reset()


def vigil() -> NoLeaderWatch:
    return NoLeaderWatch(registry.registry().config, CachedState(2.0))


def watch(health: SnapshotHealth, start: int, seconds: int, *vigils: NoLeaderWatch) -> None:
    """Looks of each, as far apart as they are."""
    for second in range(start, start + seconds, int(EVERY)):
        for one in vigils:
            one.look(AT + second * 1000, health)


@contextmanager
def no_database() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE recovery_alert RENAME TO gone")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO recovery_alert")


def test_a_change_of_leader_is_no_news_and_half_a_minute_without_one_is(hook: Hooked) -> None:
    one = vigil()
    watch(NOT_YET, 0, 100, one)
    watch(ALONE, 100, 30, one)
    watch(LED, 130, 120, one)
    assert hook.posted == []
    watch(ALONE, 300, 60, one)
    assert hook.titles == [
        "No scheduler is running: queues are not read, jobs are not recovered and no other alert is sent."
    ]
    watch(LED, 360, 120, one)
    assert hook.events() == ["firing", "resolved"]


def test_a_scheduler_that_only_reads_is_none_that_leads(hook: Hooked) -> None:
    watch(UNLED, 0, 60, vigil())
    assert "cannot become leader, because the database does not answer" in hook.titles[0]


def test_of_several_web_processes_one_tells_and_the_next_takes_over(hook: Hooked, state_store: Store) -> None:
    first, second = vigil(), vigil()
    with no_database():
        watch(ALONE, 0, 60, first, second)
        assert hook.events() == ["firing"]
        state_store.client.delete(state_keys.NO_LEADER_NOTIFIER)  # it ended, and its claim with it
        second.look(AT + 61_000, ALONE)
        assert state_store.client.get(state_keys.NO_LEADER_NOTIFIER) == second._me.encode()


@pytest.mark.parametrize("health", [BLIND, ALONE])
def test_what_was_told_without_the_database_is_not_told_again_with_it(hook: Hooked, health: SnapshotHealth) -> None:
    one, other = vigil(), vigil()
    with no_database():
        watch(health, 0, 60, one)
    watch(health, 60, 60, one, other)
    assert hook.events() == ["firing"]
    assert Alert.objects.get().resolved_at is None
    with no_database():
        watch(LED, 120, 120, one)
    assert hook.events() == ["firing", "resolved"]
    watch(LED, 240, 60, one, other)
    assert hook.events() == ["firing", "resolved"]
    assert Alert.objects.get().is_settled


def test_two_troubles_in_a_row_are_two_alerts_and_each_end_is_that_of_a_beginning(hook: Hooked) -> None:
    one = vigil()
    watch(BLIND, 0, 60, one)
    with no_database():
        watch(UNLED, 60, 60, one)
        watch(ALONE, 120, 10, one)  # until another leads
    watch(LED, 130, 120, one)
    assert sorted(hook.events()) == ["firing", "firing", "resolved", "resolved"]
    told = [
        title.partition(": ")[2] if event == "resolved" else title
        for event, title in zip(hook.events(), hook.titles, strict=True)
    ]
    assert len(set(told)) == 2, told


def test_who_takes_over_while_the_database_is_away_knows_what_was_told(hook: Hooked, state_store: Store) -> None:
    one, other = vigil(), vigil()
    watch(ALONE, 0, 60, other)
    state_store.client.delete(state_keys.NO_LEADER_NOTIFIER)
    watch(LED, 60, 120, one, other)
    assert hook.events() == ["firing", "resolved"]
    state_store.client.delete(state_keys.NO_LEADER_NOTIFIER)
    with no_database():
        watch(LED, 180, 120, other, one)
    watch(LED, 300, 30, one, other)
    assert hook.events() == ["firing", "resolved"]


def test_without_the_state_store_the_database_says_who_tells(hook: Hooked, state_store: Store) -> None:
    first, second = vigil(), vigil()
    state_store.pause()
    try:
        for number, one in enumerate((first, second, first, second)):
            one.look(AT + number * 20_000, BLIND)
    finally:
        state_store.resume()
    (title,) = hook.titles
    assert title.startswith("The state store does not answer, so it is unknown whether a scheduler is running: ")


def test_it_watches_only_where_somebody_is_to_be_told(tmp_path: Path) -> None:
    assert vigil()._is_wanted
    toml = tmp_path / "unstall.toml"
    toml.write_text(toml.read_text().replace("[alerts]\n", '[alerts]\nkinds = ["gate"]\n'))
    registry.reset()
    assert not vigil()._is_wanted
