"""What is predicted of rows that nobody holds is what happens, over any combination of what lets or blocks the sweep.

The watch predicts; then time passes, by leases that move into the past, and the sweep runs as late as it may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recovery.backends.job_tables import server_uptime
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.domain.stuck.inbox import StuckInbox
from recovery.models import BrakeState, Incident, ScannerPause
from recovery.scanners.job_tables.startup_sweep import StartupSweep
from recovery.scanners.runtime.permissions import ScannerPermissions
from recovery.scanners.runtime.store_rights import StoreRightsCheck
from recovery.stores import registry
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, REF, TABLE, Postgresql, TableBench, configured
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until
from tests.web.safety_limit_rows import quarantine

pytestmark = pytest.mark.django_db(transaction=True)
EVERY = 63_000  # ms: the interval of the sweep, as late as a scheduler plans it
MORE = 2  # runs after the last one that was predicted


@dataclass(frozen=True)
class TableWorld:
    acts: bool = True  # the policy lets the sweep act
    after: int = 0  # seconds that it waits
    most: int = 500
    rows: int = 1
    is_paused: bool = False
    is_led: bool = True
    may_write: bool = True
    read_only: bool = False
    quarantined: bool = False  # the first row

    @property
    def toml(self) -> str:
        mode = "enabled" if self.acts else "dry-run"
        return f'[policy.startup_sweep]\nmode = "{mode}"\nafter = {self.after}\nmost = {self.most}\n'


WORLDS = st.builds(
    TableWorld,
    acts=st.sampled_from((True, True, False)),
    after=st.sampled_from((0, 30, 300)),
    most=st.sampled_from((1, 500)),
    rows=st.integers(1, 3),
    is_paused=st.sampled_from((False, False, True)),
    is_led=st.sampled_from((True, True, False)),
    may_write=st.sampled_from((True, True, False)),
    read_only=st.sampled_from((False, False, True)),
    quarantined=st.booleans(),
)


@pytest.fixture
def play(
    postgresql: Postgresql, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[TableWorld], tuple[TableBench, Callable[[], object]]]]:
    """Makes a world with its rows, and what one run of the sweep is in it."""
    monkeypatch.setattr(server_uptime, "uptime", lambda _: None)  # it has been up for long
    postgresql.run(JOBS)
    postgresql.run("CREATE ROLE reader LOGIN")
    postgresql.run("GRANT USAGE ON SCHEMA public TO reader")
    postgresql.run("GRANT SELECT ON jobs TO reader")
    reader = Postgresql(postgresql.server)
    reader.url = postgresql.url.replace("unstall@", "reader@")
    with ExitStack() as stack:

        def stage(world: TableWorld) -> tuple[TableBench, Callable[[], object]]:
            stack.close()
            for model in (Incident, ScannerPause, BrakeState):
                model.objects.all().delete()
            state_store.client.flushall()
            postgresql.run("DELETE FROM jobs")
            read_only = f"read_only = {str(world.read_only).lower()}\n"
            place = postgresql if world.may_write else reader
            rest = read_only + TABLE + world.toml
            stack.enter_context(configured(tmp_path, monkeypatch, state_store, {"app": place}, rest))
            if world.is_paused:
                ScannerPause.objects.create(scanner=ScannerKind.STARTUP_SWEEP.value, by="ada", at=now_ms())
            bench = TableBench(postgresql, state_store)
            bench.is_led = world.is_led
            bench.orphan(*range(1, world.rows + 1))
            if world.quarantined:
                quarantine("1", REF)
            leader_token = LeaderToken(7, always_leader if world.is_led else lambda: False)
            holding = ScannerPermissions(registry.registry(), leader_token, lambda _: ()).holding(
                ScannerKind.STARTUP_SWEEP
            )
            sweep = StartupSweep(registry.registry(), leader_token, holding)
            snapshot = bench.collect()
            StoreRightsCheck(registry.registry(), lambda: snapshot).run(now_ms())
            bench.forget()
            return bench, lambda: None if world.is_paused else sweep.run(now_ms())

        yield stage
    registry.reset()
    postgresql.run("DROP OWNED BY reader")
    postgresql.run("DROP ROLE reader")


@given(WORLDS)
@example(TableWorld())
@example(TableWorld(rows=3, most=1))
@example(TableWorld(after=300))
@example(TableWorld(may_write=False))
@example(TableWorld(read_only=True))
@example(TableWorld(is_paused=True))
@example(TableWorld(is_led=False))
@example(TableWorld(acts=False))
@example(TableWorld(quarantined=True, rows=2))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_swept_in_time_where_it_is_predicted_and_nowhere_else(
    play: Callable[[TableWorld], tuple[TableBench, Callable[[], object]]], world: TableWorld
) -> None:
    bench, run = play(world)
    inbox = until(lambda: _looked(bench), 60, "the watch has read the table")
    predicted = {row.job.id: row.verdict for row in inbox.rows}
    assert len(predicted) == world.rows
    assert inbox.people == sum(verdict.needs_a_person for verdict in predicted.values())
    waits = {id: verdict.until for id, verdict in predicted.items() if verdict.rescuer}
    assert None not in waits.values()
    last = max((until - inbox.checked_at for until in waits.values() if until), default=0)
    done: dict[str, int] = {}
    for number in range(1, -(-last // EVERY) + MORE + 1):
        bench.place.run(f"UPDATE jobs SET lease_until = lease_until - {EVERY} WHERE state = 'running'")
        run()
        swept = {str(id) for id, state in bench.states().items() if state != "running"}
        done |= dict.fromkeys(swept - done.keys(), inbox.checked_at + number * EVERY)
    assert done.keys() == waits.keys()
    assert {id: at for id, at in done.items() if at > (waits[id] or 0)} == {}


def _looked(bench: TableBench) -> StuckInbox | None:
    """None when the database did not answer in time, as on a busy machine: then nothing is predicted of its rows."""
    inbox = bench.watch()
    is_read = not inbox.faults and not any(tally.error for tally in inbox.queues)
    return inbox if is_read and inbox.queues else None
