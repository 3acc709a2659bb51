"""The leader's look at the gates: what it stores, what goes on record, and what a change of leaders leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from recovery.config import load
from recovery.domain.gate.state_machine import CALM, GateState
from recovery.gate import queries as reads
from recovery.gate import transitions
from recovery.gate.evaluator import GateEvaluator
from recovery.models import AuditEntry, GateFlip
from recovery.scanners.prune import Pruner
from recovery.stores import registry as registries
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store
from tests.support.stuck.gating import POLL, tell
from tests.support.stuck.watching import config_of, now_ms

pytestmark = pytest.mark.django_db

START = now_ms()
SLACK = POLL // 2  # ms: how old a sample is the store says, by its real clock


class Leader:
    """One term; `see` is a sample of each poll and a look at it."""

    def __init__(self, registry: ConnectionRegistry, client: redis.Redis, at: int = START) -> None:
        self.gates = GateEvaluator(registry)
        self.client = client
        self.at = at

    def see(self, *cpu: float, server: str = "eu-1") -> None:
        for share in cpu:
            self.at += POLL
            tell(self.client, server, share, self.at)
            self.gates.run(self.at)

    def look(self) -> None:
        self.at += POLL
        self.gates.run(self.at)


@pytest.fixture
def registry(state_store: Store, valkey: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConnectionRegistry:
    config = config_of(tmp_path, state_store, {"main": valkey})
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    registries.reset()
    return ConnectionRegistry(config)


@pytest.fixture
def leader(registry: ConnectionRegistry, state_store: Store) -> Leader:
    return Leader(registry, state_store.client)


def told(server: str = "eu-1", since: int = 0) -> list[str]:
    return [flip.state.value for flip in reads.flips(server, since)]


def test_each_flip_is_one_row_and_no_entry_of_the_audit(leader: Leader) -> None:
    leader.see(*[20.0] * CALM, 95.0, 96.0, *[30.0] * CALM)
    assert told() == ["open", "closed", "open"]
    closed = reads.flips("eu-1", 0)[1]
    assert (closed.at, closed.cpu) == (pytest.approx(START + 4 * POLL, abs=SLACK), 95.0)
    assert "The CPU is at 95 %" in GateFlip.objects.order_by("pk")[1].why
    assert not AuditEntry.objects.exists()
    assert reads.fetch(leader.client)["eu-1"].state is GateState.OPEN


def test_the_flip_that_held_before_a_time_comes_with_the_later_ones(leader: Leader) -> None:
    leader.see(*[20.0] * CALM, 95.0, *[30.0] * CALM)
    assert told(since=START + 5 * POLL) == ["closed", "open"]
    assert told(since=leader.at) == ["open"]


def test_another_leader_goes_on_and_records_nothing_twice(registry: ConnectionRegistry, leader: Leader) -> None:
    leader.see(*[20.0] * CALM, 95.0)
    second = Leader(registry, leader.client, leader.at)
    second.see(30.0, 30.0)
    assert told() == ["open", "closed"]
    second.see(30.0)
    assert told() == ["open", "closed", "open"]


def test_what_a_leader_that_died_had_not_recorded_is_recorded_by_the_next(
    registry: ConnectionRegistry, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.see(*[20.0] * CALM)
    with monkeypatch.context() as patch:
        patch.setattr(leader.gates._flips, "record", lambda *_: None)  # killed between storing and recording
        leader.see(95.0)
    Leader(registry, leader.client, leader.at).see(96.0)
    assert told() == ["open", "closed"]
    assert reads.flips("eu-1", 0)[-1].at == pytest.approx(START + 4 * POLL, abs=SLACK)


def test_a_server_that_falls_silent_is_unknown_and_then_forgotten(leader: Leader) -> None:
    leader.see(*[20.0] * CALM)
    leader.see(20.0, server="eu-2")
    leader.client.delete(state_keys.server_metrics("eu-1"))
    leader.look()
    assert told() == ["open", "unknown"]
    assert list(reads.fetch(leader.client)) == ["eu-2"]
    leader.look()
    assert GateFlip.objects.count() == 2
    leader.see(20.0)
    assert reads.fetch(leader.client)["eu-1"].state is GateState.UNKNOWN


def test_who_no_longer_leads_stores_and_records_nothing(registry: ConnectionRegistry, state_store: Store) -> None:
    deposed = Leader(registry, state_store.client)
    deposed.gates = GateEvaluator(registry, lambda: False)
    deposed.see(*[20.0] * CALM)
    assert not reads.fetch(state_store.client)
    assert not GateFlip.objects.exists()


def test_a_name_of_any_bytes_has_a_gate_too(leader: Leader) -> None:
    for name in ("eu\udcff'1", "x" * 120):
        leader.see(*[20.0] * CALM, server=name)
        assert told(name) == ["open"]


def test_thresholds_of_its_own(state_store: Store, tmp_path: Path) -> None:
    (tmp_path / "unstall.toml").write_text('[[servers]]\nid = "eu-2"\nclose_at = 60\nopen_at = 40\n')
    config = load({"UNSTALL_STATE_URL": state_store.url}, directory=tmp_path)
    leader = Leader(ConnectionRegistry(config), state_store.client)
    for server, state_then in (("eu-1", GateState.OPEN), ("eu-2", GateState.CLOSED)):
        leader.see(*[20.0] * CALM, 65.0, server=server)
        assert reads.fetch(leader.client)[server].state is state_then


def test_flips_of_the_last_ninety_days_are_kept_and_how_a_gate_stands(
    registry: ConnectionRegistry, state_store: Store
) -> None:
    now = now_ms()
    ages = {"eu-1": ("open", "closed"), "gone": ("open", "unknown")}
    for server, states in ages.items():
        for number, turned in enumerate(states, 1):
            at = now - transitions.FLIPS_FOR - 60_000 + number
            GateFlip.objects.create(server=server, at=at, state=turned, why="")
    young = GateFlip.objects.create(server="gone", at=now - transitions.FLIPS_FOR + 60_000, state="open", why="")
    Pruner(registry).run(now)
    kept = GateFlip.objects.order_by("pk")
    assert [(row.server, row.state) for row in kept] == [("eu-1", "closed"), ("gone", "open")]
    assert kept.last() == young


@pytest.mark.parametrize(
    ("field", "value"), [("origin", "x" * 100_000), ("sampled_at", "9" * 4_000), ("poll", "9" * 4_000), ("poll", "-1")]
)
def test_what_a_monitor_writes_beyond_all_measure_costs_the_others_no_gate(
    leader: Leader, state_store: Store, field: str, value: str
) -> None:
    """The hash of all gates is read only as long as none of its values is long."""
    leader.see(*[20.0] * CALM)
    tell(state_store.client, "eu-2", 20.0, leader.at)
    state_store.client.hset(state_keys.server_metrics("eu-2"), field, value)
    leader.see(20.0)
    assert set(reads.fetch(state_store.client)) == {"eu-1"}
