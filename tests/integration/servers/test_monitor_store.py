"""What the monitor writes: all of it although the store goes away, and it ends when nobody tells any more."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from recovery.domain.servers.metric_history import COARSE, FINE, HOUR
from recovery.domain.servers.samples import Server
from recovery.gate import queries as gate_queries
from recovery.monitor import agent
from recovery.monitor.agent import SamplePublisher
from recovery.monitor.store_clock import StoreClock
from recovery.servers import monitor_acl
from recovery.servers import queries as servers_queries
from recovery.stores.state import state_keys
from tests.support.processes.processes import free_port
from tests.support.stores.stores import Store
from tests.support.waiting import until

MANUAL = Path(__file__).parents[3] / "docs" / "monitor.md"
START = 1_700_000_000_000
POLL = 5_000
PATIENCE = 30.0


class Told(list[str]):
    """What the courier said."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def brings(state_store: Store, told: Told) -> Iterator[SamplePublisher]:
    made = _courier(state_store.url, told)
    yield made
    made.publisher.close()


def test_history_has_no_hole_although_the_store_was_away(
    brings: SamplePublisher, told: Told, state_store: Store
) -> None:
    state_store.stop()
    _bring(brings, range(60))
    state_store.start()
    _bring(brings, range(60, 140))  # the first attempt comes after a pause
    first = FINE.period(START)
    found = servers_queries.history(state_store.client, "eu-1", 0.25, START + 140 * POLL)
    cpus = {FINE.period(point.at) - first: point.cpu_raw for point in found.points if point.cpu_raw is not None}
    assert cpus == {number: float(number % 100) for number in range(140)}
    minutes = {point.at: point for point in servers_queries.history(state_store.client, "eu-1", 6, START + HOUR).points}
    second = minutes[(COARSE.period(START) + 1) * COARSE.unit]
    assert (second.cpu_raw, second.cpu_peak) == (13.5, 19.0)  # it has the samples 8 to 19
    assert told[1:] == ["the store is reachable again"]
    assert brings.backlog.is_empty


def test_a_store_that_is_away_is_named_once_and_tried_again_with_growing_pauses(
    brings: SamplePublisher, told: Told, state_store: Store
) -> None:
    state_store.stop()
    tries = []
    for number in range(60):
        before = brings.try_at
        _bring(brings, [number])
        if brings.try_at != before:
            tries.append(number * 5.0)
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert len(told) == 1
    assert "connection refused; sampling goes on" in told[0]
    assert max(pauses) <= agent.LONGEST_PAUSE + 5
    assert min(pauses[3:]) >= agent.LONGEST_PAUSE / 2


def test_a_hung_store_holds_it_for_a_moment_and_no_longer(
    brings: SamplePublisher, told: Told, state_store: Store
) -> None:
    state_store.pause()
    timer = threading.Timer(PATIENCE, state_store.resume)
    timer.start()
    _bring(brings, [0])
    is_still_hung = timer.is_alive()
    timer.cancel()
    assert is_still_hung
    assert "no answer" in told[0]


def test_nobody_there_at_the_start_is_no_crash(told: Told) -> None:
    away = _courier(f"redis://127.0.0.1:{free_port()}/0", told)
    assert away.greet("eu-1", 0.0) is None
    _bring(away, [0, 1])
    assert len(told) == 1
    away.publisher.close()


def test_two_programs_under_one_name_are_told_of_each_other_and_a_restart_is_not_two(
    brings: SamplePublisher, told: Told, state_store: Store
) -> None:
    other = _courier(state_store.url, Told())
    _bring(brings, [0])
    _bring(other, [1, 2], host="twin")
    assert told == []
    for number in range(3, 10):
        _bring(brings, [number])
        _bring(other, [number], host="twin")
    assert len(told) == 1
    assert "another monitor reports as the server eu-1 too" in told[0]
    other.publisher.close()


def test_a_server_that_vanished_is_gone_after_ten_polls_and_keeps_its_history_for_its_return(
    state_store: Store, told: Told
) -> None:
    brings, store = _courier(state_store.url, told), state_store.client
    _bring(brings, range(12), poll=20)
    assert store.pttl(state_keys.server_metrics("eu-1")) <= 200
    until(lambda: not servers_queries.fetch(store), PATIENCE)
    assert list(servers_queries.last_seen(store)) == ["eu-1"]
    _bring(brings, range(24, 36))
    (back,) = servers_queries.fetch(store)
    assert back.id == "eu-1"
    points = servers_queries.history(store, "eu-1", 0.25, START + 36 * POLL).points[-36:]
    assert [point.cpu_raw is not None for point in points] == [True] * 12 + [False] * 12 + [True] * 12
    for ring in (FINE, COARSE):
        assert 0 < store.ttl(state_keys.server_history("eu-1", ring.name)) <= 8 * 86_400


def test_a_server_is_forgotten_with_its_history(state_store: Store, told: Told) -> None:
    brings = _courier(state_store.url, told)
    _bring(brings, [0])
    day = 24 * HOUR
    assert servers_queries.forget(state_store.client, START + 8 * day - 1) == 0
    assert servers_queries.forget(state_store.client, START + 8 * day + 1) == 1
    assert servers_queries.last_seen(state_store.client) == {}


def test_the_user_that_the_command_prints_is_enough_and_may_touch_nothing_else(state_store: Store, told: Told) -> None:
    user = monitor_acl.user("eu-1")
    state_store.do(*monitor_acl.rule("eu-1").split())
    brings = _courier(state_store.url.replace("//", f"//{user}:SECRET@"), told)
    brings.greet("eu-1", 0.0)
    _bring(brings, range(12))
    assert told == []
    assert servers_queries.fetch(state_store.client) == (), "it may not list itself"
    assert servers_queries.list_new(state_store.client, 0, START) == 0
    (found,) = servers_queries.fetch(state_store.client)
    assert found.id == "eu-1"
    others = (
        *(("GET", "unstall:snapshot"), ("SET", "unstall:snapshot", "x"), ("HGETALL", "unstall:gates")),
        *(("ZADD", "worker-monitor:servers", "1", "x"), ("ZREM", "worker-monitor:logs", "eu-2")),
        *(("DEL", key) for key in _keys_of("eu-2")),
        *(("DEL", key) for key in _keys_of("eu-1:x")),
        *(("DEL", key) for key in _keys_of("*")),
    )
    allowed = [command for command in others if state_store.do("ACL", "DRYRUN", user, *command) == b"OK"]
    assert allowed == []
    state_store.do("ACL", "DELUSER", user)
    brings.publisher.close()


def test_the_manual_has_the_user_that_the_command_prints() -> None:
    (line,) = [line for line in MANUAL.read_text("utf-8").splitlines() if line.startswith("ACL SETUSER")]
    assert line == monitor_acl.rule("worker-1")


def test_a_sample_under_another_name_is_nobody_s(state_store: Store) -> None:
    """A server that copies its sample to another's key tells nothing of that one."""
    forged = Server("eu-2", "h", START, POLL, cpu_raw=99.0).encode()
    state_store.client.hset(state_keys.server_metrics("eu-1"), mapping=forged)  # type: ignore[arg-type]
    state_store.client.zadd(state_keys.SERVERS, {"eu-1": START})
    assert servers_queries.fetch(state_store.client) == ()
    assert gate_queries.samples(state_store.client, START) == {}


def test_a_server_that_tells_a_gigabyte_costs_nothing_and_hides_no_other(state_store: Store) -> None:
    client = state_store.client
    for id in ("eu-1", "eu-2"):
        client.hset(state_keys.server_metrics(id), mapping=Server(id, "h", START, POLL).encode())  # type: ignore[arg-type]
        client.zadd(state_keys.SERVERS, {id: START})
    client.setrange("planted", 64 * 2**20, b"x")
    for field in ("processes", "cpu_raw", "planted"):
        client.hset(state_keys.server_metrics("eu-1"), field, client.get("planted"))  # type: ignore[arg-type]
    tracemalloc.start()
    assert [server.id for server in servers_queries.fetch(client)] == ["eu-2"]
    assert list(gate_queries.samples(client, START)) == ["eu-2"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_keys_that_are_no_server_s_list_nobody(state_store: Store) -> None:
    client = state_store.client
    for name in ("a:b:metrics", ":metrics", "%:metrics", "x"):
        client.set(f"worker-monitor:{name}", "x")
    client.set("worker-monitor:eu~3A1:logs", "x")
    servers_queries.list_new(client, 0, START)
    assert (client.zrange(state_keys.SERVERS, 0, -1), client.zrange(state_keys.SHIPPING, 0, -1)) == ([], [b"eu:1"])


def _keys_of(server: str) -> list[str]:
    keys = (state_keys.server_metrics(server), state_keys.server_history(server, "1m"), state_keys.logs(server))
    return [key.decode() for key in (*keys, state_keys.log_labels(server), state_keys.log_offsets(server))]


def _courier(url: str, told: Told) -> SamplePublisher:
    environ = {"UNSTALL_STATE_URL": url}
    return agent.make_publisher(environ, StoreClock(START, 0.0), told.append)


def _bring(one: SamplePublisher, numbers: range | list[int], *, host: str = "h", poll: int = POLL) -> None:
    """Samples at these polls, each with its number as its CPU."""
    for number in numbers:
        cpu = float(number % 100)
        server = Server("eu-1", host, START + number * POLL, poll, started_at=START, cpu_raw=cpu, cpu_ema=cpu)
        one.bring(server, number * POLL / 1000)
