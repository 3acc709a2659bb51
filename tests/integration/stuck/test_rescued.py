"""What nobody has to do, because a scanner does it: told alike by the watch, the shell, the API and the pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from dashboard.accounts.roles import UserRole
from recovery.actions.safety_limits.compare_and_set import swap_one
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.safety_limits.redis_pause import RedisPause
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.stuck.inbox import StuckInbox
from recovery.models import ScannerPause
from recovery.reads.queues import job_lists, snapshot_store
from recovery.reads.safety_limits.limit_rows import REDIS_PAUSE, SafetyLimitScope
from recovery.reads.scanners import last_runs
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.reads.stuck import inbox_store
from recovery.reads.stuck import queries as stuck_queries
from recovery.stores import registry
from recovery.stores.state import state_keys
from recovery.stores.state.shared_read import windows
from tests.support.people import browser, person
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import SHORT, WatchBench, active, config_for
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = QueueRef("main", "bull:jobs")
ARMED = '[policy]\norphan_watch = { mode = "enabled" }\n'
DEAD = "Never recovered: no worker is connected, so no stalled check runs."


@pytest.fixture
def watch(tmp_path: Path, valkey: Store, state_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a watch over one job that is abandoned, with more TOML behind."""
    made: list[WatchBench] = []

    def make(toml: str = "", **fields: Any) -> WatchBench:
        config_for(tmp_path, state_store, valkey, toml + SHORT)
        monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
        registry.reset()
        windows.forget()
        active(valkey, JOBS.base, "1", **fields)
        made.append(WatchBench(registry.registry().config))
        made[-1].discover()
        return made[-1]

    yield make
    for one in made:
        one.close()
    registry.reset()


@pytest.fixture
def leads(state_store: Store) -> None:
    """Somebody leads, and the stale check is due in ten minutes."""
    now = now_ms()
    state_store.client.set(state_keys.SCHEDULER, SchedulerStatus("here", 1, 7, now, now, "me").encode())
    last_runs.write(state_store.client, ScannerKind.STALE_CHECK, LastScannerRun(now, now, now, now + 600_000))


Make = Callable[..., WatchBench]


def said(inbox: StuckInbox) -> tuple[str, PolicyScanner | None, int, int]:
    (row,), (tally,) = inbox.rows, inbox.queues
    return row.verdict.fate, row.verdict.rescuer, inbox.people, tally.outlook.rescued


@pytest.mark.usefixtures("leads")
def test_as_it_comes_the_stale_check_takes_what_is_abandoned(watch: Make, state_store: Store) -> None:
    inbox = watch().look()
    fate, *rest = said(inbox)
    # Too young for the run in ten minutes, so it is for the one after that.
    assert fate == "Stale-check requeues it within 25 min; it waits then, because no worker is connected."
    assert rest == [PolicyScanner.STALE_CHECK, 0, 1]
    (row,) = inbox.rows
    assert row.verdict.until is not None
    assert inbox_store.fetch(state_store.client) == inbox


@pytest.mark.usefixtures("leads")
def test_an_armed_watch_is_sooner_and_every_way_out_says_so(watch: Make, state_store: Store) -> None:
    one = watch(ARMED)
    fate, *rest = said(one.look())
    assert fate == "Orphan-watch requeues it within 5 s; it waits then, because no worker is connected."
    assert rest == [PolicyScanner.ORPHAN_WATCH, 0, 1]
    out = StringIO()
    call_command("orphans", "--json", stdout=out)
    shell = json.loads(out.getvalue())
    told = {name: shell["orphans"][0][name] for name in ("fate", "rescuer", "needs_a_person")}
    assert told == {"fate": fate, "rescuer": "orphan-watch", "needs_a_person": False}
    assert shell["needing_a_person"] == 0
    snapshot_store.publish(state_store.client, one.snapshot)
    queue = job_lists.locate(JOBS, one.snapshot)
    (row,) = job_lists.window(queue, JobState.ACTIVE).rows
    verdict = stuck_queries.verdicts_of_rows(queue, [row], one.snapshot, now_ms())["1"]
    assert (verdict.fate, verdict.rescuer) == (fate, PolicyScanner.ORPHAN_WATCH)
    page = browser(person(UserRole.VIEWER)).get("/stuck").content.decode()
    assert f"Without intervention: {fate}" in page
    assert 'data-tone="warn">1<span class="hush"> stuck</span>' in page


def test_without_a_scheduler_nobody_comes(watch: Make) -> None:
    inbox = watch().look()
    assert said(inbox) == (f"{DEAD} Stale-check is enabled, but no scheduler leads.", None, 1, 0)


@pytest.mark.usefixtures("leads")
def test_who_is_paused_does_not_come(watch: Make) -> None:
    for scanner in (PolicyScanner.ORPHAN_WATCH, PolicyScanner.STALE_CHECK):
        ScannerPause.objects.create(scanner=scanner.value, by="ada", at=now_ms())
    words = " ".join(f"{name} is enabled, but it is paused." for name in ("Orphan-watch", "Stale-check"))
    assert said(watch(ARMED).look()) == (f"{DEAD} {words}", None, 1, 0)


@pytest.mark.usefixtures("leads")
def test_nor_whoever_a_safety_limit_holds(watch: Make) -> None:
    def hold(_: RedisPause, now: int) -> RedisPause:
        return RedisPause.doubtful(now)

    swap_one(REDIS_PAUSE, SafetyLimitScope("main"), hold, now=now_ms())
    inbox = watch().look()
    fate, *rest = said(inbox)
    (tally,) = inbox.queues
    assert fate.startswith("Not recovered for now: no worker is connected")
    assert fate.endswith("Stale-check is enabled, but auto-recovery is paused on main for 14 min more.")
    assert rest == [None, 1, 0]
    assert tally.outlook.words(1, inbox.checked_at) == "nothing recovers it for now"


@pytest.mark.usefixtures("leads")
def test_bad_data_waits_for_a_person_whoever_is_armed(watch: Make, tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text('{"type": "object", "required": ["to"]}')
    inbox = watch(f'{ARMED}[[queues]]\nname = "{JOBS.base}"\nschema = "jobs.json"\n').look()
    fate, *rest = said(inbox)
    assert fate.startswith(DEAD)
    assert rest == [None, 1, 0]


@pytest.mark.usefixtures("leads")
def test_where_nothing_may_be_changed_nobody_comes(watch: Make) -> None:
    fate, *rest = said(watch(f"read_only = true\n{ARMED}").look())
    words = "main is configured to be read only"
    assert fate == f"{DEAD} Orphan-watch is enabled, but {words}. Stale-check is enabled, but {words}."
    assert rest == [None, 1, 0]
