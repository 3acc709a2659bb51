"""What is predicted is what happens, over any combination of what lets or blocks a scanner: the real ones are run.

In each world the watch predicts; then time passes, and each scanner runs when it is due. A job in whose name a scanner
was named is put right by then, and one that nobody was to put right stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.consoles import Console
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader, no_rival
from recovery.models import BrakeState, Incident, ScannerPause
from recovery.reads.safety_limits import queries as safety_limits_queries
from recovery.reads.scanners import last_runs
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.scanners.runtime.permissions import ScannerPermissions
from recovery.scanners.runtime.store_rights import StoreRightsCheck
from recovery.scanners.stale_check.scanner import StaleCheck
from recovery.stores import registry
from recovery.stores.state import state_keys
from recovery.stores.state.shared_read import windows
from tests.integration.stores.test_acl import admit, documented
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import SHORT, WatchBench, active, config_for
from tests.support.stuck.watching import now_ms
from tests.web.safety_limit_rows import hold_store, quarantine

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = QueueRef("main", "bull:jobs")
TICK, STALE_TICK = 5_250, 945_000  # ms: the intervals, each as late as a scheduler plans it
STALE_AT = 60_000  # ms from the prediction: the next run of the stale check
LONG = STALE_AT + 2 * STALE_TICK  # ms: who has not come by then never comes
OTHER = Console("main", "theirs", "there", 2, 1, acts=True)
OPERATOR = documented("unstall-operator")
RIGHTS = {"all": OPERATOR, "reader": documented(), "no-fence": OPERATOR.replace("~*", "~bull:*")}


@dataclass(frozen=True)
class World:
    watches: bool = True  # the policy lets the orphan-watch act
    checks: bool = True  # and the stale check
    after: int = 0  # seconds that both wait
    most: int = 500
    jobs: int = 1
    paused: frozenset[ScannerKind] = frozenset()
    is_held: bool = False  # by the Redis pause
    is_led: bool = True
    other_acts: bool = False  # another console
    rights: str = "all"
    read_only: bool = False
    quarantined: bool = False  # the first job

    @property
    def toml(self) -> str:
        duties = (("orphan_watch", self.watches), ("stale_check", self.checks))
        policy = "\n".join(
            f'{name} = {{ mode = "{"enabled" if acts else "dry-run"}", after = {self.after}, most = {self.most} }}'
            for name, acts in duties
        )
        return f"read_only = {str(self.read_only).lower()}\n[policy]\n{policy}\n{SHORT}"


WORLDS = st.builds(
    World,
    watches=st.booleans(),
    checks=st.booleans(),
    after=st.sampled_from((0, 20)),
    most=st.sampled_from((1, 500)),
    jobs=st.integers(1, 3),
    paused=st.frozensets(st.sampled_from((ScannerKind.ORPHAN_WATCH, ScannerKind.STALE_CHECK))),
    is_held=st.sampled_from((False, False, True)),
    is_led=st.sampled_from((True, True, False)),
    other_acts=st.sampled_from((False, False, True)),
    rights=st.sampled_from(("all", "all", *RIGHTS)),
    read_only=st.sampled_from((False, False, True)),
    quarantined=st.booleans(),
)


class Scheduler(WatchBench):
    """The two scanners of one world, run when they are due by a clock of the test's."""

    def __init__(self, world: World, directory: Path, queues: Store, kept: Store) -> None:
        config_for(directory, kept, admit(queues, RIGHTS[world.rights]), world.toml)
        registry.reset()
        windows.forget()
        super().__init__(registry.registry().config)
        self.world = world
        self.store = queues
        self.stale_at = 0
        self.began = now_ms()
        rival = (lambda _: OTHER.words) if world.other_acts else no_rival
        leader_token = LeaderToken(7, always_leader if world.is_led else lambda: False, rival=rival)
        self.warrant = ScannerPermissions(self.registry, leader_token, self._pause_reasons)
        holding = self.warrant.holding(ScannerKind.STALE_CHECK)
        self.stale = StaleCheck(self.registry, lambda: self.collector.newest, leader_token, holding)
        self.discover()
        self.collector.look(self.began)
        StoreRightsCheck(self.registry, lambda: self.collector.newest).run(self.began)

    def run_watch(self, at: int) -> None:
        self.collector.look(at)
        self.watch.scan(at, lambda dry_run: self.warrant.scanner_actions(ScannerKind.ORPHAN_WATCH, dry_run=dry_run))

    def run_stale(self, at: int) -> None:
        if ScannerKind.STALE_CHECK not in self.world.paused:  # then its timer does not run it at all
            self.collector.look(at)
            self.stale.run(at)

    def _pause_reasons(self, deployment: str) -> tuple[str, ...]:
        found = safety_limits_queries.redis_pauses(now_ms(), self.registry.config)
        return next((one.words for one in found if one.deployment == deployment and one.is_holding), ())


@pytest.fixture
def play(
    tmp_path: Path, serve: Callable[..., Store], state_store: Store, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[World], Scheduler]]:
    """Sets the stage for a world; the last one is taken away before."""
    queues, made = serve(), list[Scheduler]()
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))

    def clear() -> None:
        for one in made:
            one.close()
        made.clear()
        for model in (Incident, ScannerPause, BrakeState):
            model.objects.all().delete()

    def stage(world: World) -> Scheduler:
        clear()
        queues.client.flushall()
        state_store.client.flushall()
        now = now_ms()
        if world.is_led:
            others = (OTHER,) if world.other_acts else ()
            state_store.client.set(state_keys.SCHEDULER, SchedulerStatus("here", 1, 7, now, now, "me", others).encode())
        last_runs.write(state_store.client, ScannerKind.STALE_CHECK, LastScannerRun(now, now, now, now + STALE_AT))
        for scan in world.paused:
            ScannerPause.objects.create(scanner=scan.value, by="ada", at=now)
        active(queues, JOBS.base, *map(str, range(world.jobs)))
        if world.quarantined:
            quarantine("0", JOBS)
        made.append(Scheduler(world, tmp_path, queues, state_store))
        made[-1].stale_at = now + STALE_AT
        if world.is_held:
            hold_store()
        return made[-1]

    yield stage
    clear()
    registry.reset()


@given(WORLDS)
@example(World())
@example(World(watches=False, jobs=3, most=1))
@example(World(rights="no-fence"))
@example(World(rights="reader"))
@example(World(watches=False, paused=frozenset({ScannerKind.STALE_CHECK})))
@example(World(checks=False, paused=frozenset({ScannerKind.ORPHAN_WATCH})))
@example(World(is_held=True))
@example(World(is_led=False))
@example(World(other_acts=True))
@example(World(read_only=True))
@example(World(quarantined=True, jobs=2))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_who_is_predicted_comes_in_time_and_where_nobody_is_nobody_comes(
    play: Callable[[World], Scheduler], world: World
) -> None:
    one = play(world)
    inbox = one.look()
    predicted = {row.job.id: row.verdict for row in inbox.rows}
    assert len(predicted) == world.jobs
    assert inbox.people == sum(verdict.needs_a_person for verdict in predicted.values())
    waits = {id: verdict.until for id, verdict in predicted.items() if verdict.rescuer}
    done: dict[str, int] = {}
    for at, run in _runs(one, inbox.checked_at, max((until for until in waits.values() if until), default=0)):
        run(at)
        left = {raw.decode() for raw in one.store.client.lrange(f"{JOBS.base}:active", 0, -1)}
        done |= {id: at for id in predicted if id not in left and id not in done}
    assert done.keys() == waits.keys()
    late = {id: at - (waits[id] or 0) for id, at in done.items() if at > (waits[id] or 0)}
    assert late == {}


def _runs(one: Scheduler, began: int, until: int) -> Iterator[tuple[int, Callable[[int], None]]]:
    """As a scheduler makes them, each as late as it may be; of many looks that find what they found, the last ones."""
    end = max(until, began + LONG)
    looks = [began + TICK * number for number in range(1, 12)]
    stale = range(one.stale_at, end + 1, STALE_TICK)
    runs = [(at, one.run_watch) for at in looks] + [(at, one.run_stale) for at in stale]
    yield from sorted(runs, key=lambda run: run[0])
