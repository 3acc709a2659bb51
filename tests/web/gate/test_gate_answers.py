"""What the gate answers, by the samples in a real state store and a clock that is set: no process, no waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dashboard.gate import responses
from dashboard.gate.admissions import ALONE_MS
from dashboard.gate.decision_log import CALLERS, OTHERS, PENDING
from recovery.config.gate import GateConfig, ServerGateConfig, WithoutSample
from recovery.domain.gate.state_machine import CALM, FRESH_POLLS, Gate, GateSample, GateState, GateThresholds
from recovery.domain.servers.samples import SampleOrigin
from recovery.gate import queries as gate_queries
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store
from tests.support.stuck.gating import POLL, tell
from tests.web.asking import START, Desk

FIELDS = ["ready", "cpu_effective", "cpu_raw", "cpu_ema", "threshold", "source", "server", "sampled_at", "reason"]


@pytest.fixture
def desk(state_store: Store) -> Desk:
    return Desk(state_store.url)


@pytest.fixture
def others(state_store: Store) -> Iterator[None]:
    """Two web processes look at this store, as the one that is asked sees it."""
    with ExitStack() as stack:
        for _ in range(2):
            listener = stack.enter_context(state_store.client.pubsub())
            listener.subscribe(state_keys.SNAPSHOT_CHANNEL)
            assert listener.get_message(timeout=10)
        yield


def measured(cpu: float, at: int) -> Gate:
    return Gate("web-1", GateState.OPEN, at, sample=GateSample(at, at, POLL, cpu, cpu, SampleOrigin.LOCAL), lows=CALM)


def test_an_open_gate_says_so_with_all_that_it_went_by(desk: Desk) -> None:
    desk.settle(cpu=33.34)
    told = desk.ask()
    assert (told.status, list(told.body)) == (200, FIELDS)
    assert told.body == {
        "ready": True,
        "cpu_effective": 33.3,
        "cpu_raw": 33.3,
        "cpu_ema": 33.3,
        "threshold": 80.0,
        "source": "worker-monitor",
        "server": "eu-1",
        "sampled_at": desk.now,
        "reason": "open",
    }
    assert told.headers["cache-control"] == "no-store"
    assert "retry-after" not in told.headers


def test_a_closed_gate_says_what_it_waits_for_and_when_to_ask_again(desk: Desk) -> None:
    desk.settle()
    desk.see(95.0)
    told = desk.ask()
    assert (told.status, told.reason, told.body["threshold"], told.body["ready"]) == (503, "closed", 70.0, False)
    assert told.headers["retry-after"] == str(CALM * POLL // 1000)
    desk.see(20.0)
    assert desk.ask().reason == "closed"


def test_of_ten_that_ask_at_once_one_is_let_in_each_settling_period(desk: Desk) -> None:
    desk.settle()
    for _ in range(3):
        told = desk.ask_at_once(10)
        assert sorted(one.status for one in told) == [200] + 9 * [503]
        assert {one.reason for one in told if one.status == 503} == {"settling"}
        assert {one.headers.get("retry-after") for one in told if one.status == 503} == {"10"}
        desk.see(20.0)
        assert desk.ask().reason == "settling"
        desk.see(20.0)


def test_it_goes_on_settling_until_a_sample_began_after_the_admission(desk: Desk) -> None:
    desk.settle()
    assert desk.ask().status == 200
    desk.now += 2 * POLL + 1  # no sample came meanwhile
    assert desk.ask().reason == "settling"


def test_a_process_that_has_just_started_settles_first(desk: Desk) -> None:
    tell(desk.client, "eu-1", 20.0, START)
    desk.client.hset(
        state_keys.GATES, "eu-1", Gate("eu-1", GateState.OPEN, 1, sample=GateSample(START - 1, 1, POLL, 20.0)).encode()
    )
    desk.look()
    desk.look()
    assert desk.ask().reason == "settling"


def test_whom_another_process_let_in_counts_here_too(desk: Desk) -> None:
    desk.settle()
    desk.client.set(state_keys.gate_settling("eu-1"), "x", px=2 * POLL)
    desk.look()
    assert desk.ask().reason == "settling"
    desk.client.delete(state_keys.gate_settling("eu-1"))
    desk.see(20.0, 20.0)
    assert desk.ask().status == 200


def test_a_server_that_has_just_begun_is_not_open_yet(desk: Desk) -> None:
    desk.see(20.0)
    assert desk.ask().reason == "too_few_samples"


def test_without_a_fresh_sample_it_refuses_and_never_passes_silently(desk: Desk) -> None:
    desk.settle()
    desk.now += FRESH_POLLS * POLL + 1
    told = desk.ask()
    assert (told.status, told.reason, told.headers["retry-after"]) == (503, "no_fresh_sample", "5")
    desk.client.delete(state_keys.server_metrics("eu-1"))
    desk.look()
    told = desk.ask()
    assert (told.status, told.reason, told.body["cpu_effective"]) == (503, "no_fresh_sample", None)


def test_it_passes_without_a_sample_where_that_is_configured_and_still_lets_in_one_at_a_time(
    state_store: Store,
) -> None:
    desk = Desk(state_store.url, GateConfig(without_sample=WithoutSample.PASS))
    desk.settle()
    desk.now += FRESH_POLLS * POLL + 1
    told = desk.ask_at_once(3)
    assert [one.reason for one in told] == ["passed_without_sample", "settling", "settling"]
    assert told[0].status == 200


def test_an_old_sample_of_this_machine_is_made_good_by_measuring_where_that_is_configured(state_store: Store) -> None:
    desk = Desk(state_store.url, GateConfig(without_sample=WithoutSample.MEASURE))
    for server in ("web-1", "eu-1"):
        desk.settle(server)
    desk.now += FRESH_POLLS * POLL + 1
    desk.local = measured(12.0, desk.now)
    told = desk.ask("server=web-1")
    assert (told.status, told.body["source"], told.body["cpu_raw"]) == (200, "local", 12.0)
    assert told.reason == f"open: {responses.MEASURED}"
    assert desk.ask("server=eu-1").reason == "no_fresh_sample"  # another machine's CPU is none


def test_without_a_server_it_is_this_one_else_the_only_one_else_this_one_as_it_measures_it(desk: Desk) -> None:
    desk.now += 3 * POLL  # it has settled after its start
    desk.look()
    desk.local = measured(12.0, desk.now)
    told = desk.ask("")
    assert (told.status, told.body["server"], told.body["source"]) == (200, "web-1", "local")
    desk.settle("eu-1")
    assert desk.ask("").body["server"] == "eu-1"
    desk.settle("eu-2")
    desk.see(20.0, server="eu-1")
    assert (desk.ask("").body["server"], desk.ask("").body["source"]) == ("web-1", "local")
    desk.settle("web-1")
    told = desk.ask("")
    assert (told.reason, told.body["server"], told.body["source"]) == ("open", "web-1", "worker-monitor")


def test_the_only_server_stays_the_answer_when_it_falls_silent(desk: Desk) -> None:
    desk.client.zadd(state_keys.SERVERS, {"old": 1})
    desk.settle("eu-1")
    assert desk.ask("").body["server"] == "eu-1"
    desk.client.delete(state_keys.server_metrics("eu-1"))
    desk.look()
    told = desk.ask("")
    assert (told.status, told.body["server"], told.reason) == (503, "eu-1", "no_fresh_sample")


def test_nothing_measured_yet_is_no_fresh_sample(desk: Desk) -> None:
    assert desk.ask("").reason == "no_fresh_sample"


def test_an_unknown_server_is_told_with_those_that_are_known(state_store: Store) -> None:
    desk = Desk(state_store.url, GateConfig(servers={"eu-9": ServerGateConfig("", GateThresholds())}))
    desk.see(20.0)
    told = desk.ask("server=eu-7")
    assert (told.status, told.body["error"], told.body["servers"]) == (404, "unknown_server", ["eu-1", "eu-9"])
    assert desk.ask("server=eu-9").reason == "no_fresh_sample"


def test_beside_another_process_the_store_decides_who_lets_one_in(desk: Desk, others: None) -> None:
    desk.settle()
    second = Desk(desk.url)
    second.now = desk.now
    second.settle()
    desk.now = second.now
    desk.look()
    assert [desk.ask().status, second.ask().status] == [200, 503]
    assert second.ask().reason == "settling"
    assert desk.client.pttl(state_keys.gate_settling("eu-1")) > 0


def test_beside_another_process_nobody_is_let_in_while_the_store_is_away(serve: object) -> None:
    store = serve()  # type: ignore[operator]  # a factory
    desk = Desk(store.url)
    with store.client.pubsub() as one, store.client.pubsub() as two:
        for listener in (one, two):
            listener.subscribe(state_keys.SNAPSHOT_CHANNEL)
            assert listener.get_message(timeout=10)
        desk.settle()
    store.stop()
    told = desk.ask()
    assert (told.status, told.reason.partition(":")[0], told.headers["retry-after"]) == (503, "not_confirmed", "1")
    assert str(store.port) in told.reason


def test_one_process_alone_needs_no_store_to_answer(serve: object) -> None:
    store = serve()  # type: ignore[operator]  # a factory
    desk = Desk(store.url)
    desk.settle()
    store.stop()
    assert desk.ask().status == 200


def test_a_look_that_is_old_says_nothing_of_other_processes_so_the_store_decides(desk: Desk) -> None:
    desk.settle()
    desk.client.set(state_keys.gate_settling("eu-1"), "x", px=2 * POLL)  # one that began since has let somebody in
    desk.now += ALONE_MS + 1
    assert desk.ask().status == 503


def test_refusals_of_one_caller_are_one_note_and_admissions_one_each(desk: Desk) -> None:
    desk.settle()
    desk.ask_at_once(3, "server=eu-1&caller=import%00s")
    desk.ask("server=eu-1&caller=mail")
    desk.flush()
    found = gate_queries.decisions(desk.client, "eu-1", 0)
    assert {(one.caller, one.ready, one.reason, one.times) for one in found} == {
        ("import␀s", True, "open", 1),
        ("import␀s", False, "settling", 2),
        ("mail", False, "settling", 1),
    }
    assert all((one.cpu, one.at, one.server, one.token) == (20.0, desk.now, "eu-1", "") for one in found)
    assert 0 < desk.client.ttl(state_keys.gate_decisions("eu-1")) <= gate_queries.KEPT_S
    assert desk.client.pttl(state_keys.gate_settling("eu-1")) > 0


def test_notes_are_bounded_and_wait_for_the_store(serve: object) -> None:
    store = serve()  # type: ignore[operator]  # a factory
    desk = Desk(store.url)
    desk.settle()
    store.stop()
    for number in range(CALLERS + 50):
        desk.ask(f"server=eu-1&caller=c{number}")
        if number == CALLERS // 2:
            desk.flush()
    desk.flush()
    assert len(desk.notes._pending) <= PENDING
    store.start()
    desk.flush()
    found = gate_queries.decisions(store.client, "eu-1", 0)
    assert sum(one.times for one in found) == CALLERS + 50
    assert not desk.notes._pending


def test_callers_beyond_those_told_apart_are_counted_together(desk: Desk) -> None:
    desk.settle()
    for number in range(CALLERS + 50):
        desk.ask(f"server=eu-1&caller=c{number}")
    desk.flush()
    found = {one.caller: one.times for one in gate_queries.decisions(desk.client, "eu-1", 0)}
    assert (len(found), found[OTHERS]) == (CALLERS + 2, 49)


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        ({"method": "POST"}, 405),
        ({"method": "HEAD"}, 405),
        ({"query": "server=eu-1&token=unstall_" + "x" * 40}, 400),
        ({"query": "x" * 3_000}, 414),
        ({"client": ("10.0.0.7", 40_000)}, 401),
        ({"client": ("127.0.0.1", 0)}, 401),
        ({"headers": [(b"x-forwarded-for", b"127.0.0.1")]}, 401),
        ({"headers": [(b"sec-fetch-site", b"cross-site")]}, 401),
        ({"headers": [(b"sec-fetch-site", b"none")]}, 200),
    ],
)
def test_who_may_not_ask_is_not_answered_and_nobody_is_let_in(desk: Desk, scope: dict, status: int) -> None:  # type: ignore[type-arg]
    desk.settle()
    assert desk.ask(**scope).status == status
    assert desk.ask().status == (503 if status == 200 else 200)


def test_more_than_a_thousand_questions_a_second_are_turned_away(desk: Desk) -> None:
    desk.settle()
    told = desk.ask_at_once(1_010)
    assert [one.status for one in told[1_000:]] == [429] * 10
    desk.now += 1_000
    assert desk.ask().status == 503


def test_what_no_server_can_be_called_and_half_a_query_harm_nobody(desk: Desk) -> None:
    for query in ("server=%ff%00", "server", "&&&=;=", "server=" + "%41" * 600, "server=eu-1&server=eu-2"):
        assert desk.ask(query).status in (404, 503)
