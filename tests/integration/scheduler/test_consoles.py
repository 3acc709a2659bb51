"""Two consoles on one Redis, each with its own database: exactly one acts, both say so, and the other takes over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.actions.bulk import bulk_runs
from recovery.actions.bulk.bulk_runs import BulkRunner
from recovery.alerts.detectors import AlertDetectors
from recovery.backends.redis_common import consoles as told
from recovery.domain.actions.types import Action
from recovery.domain.alerts.types import AlertKind
from recovery.domain.jobs import JobState
from recovery.domain.scheduler import consoles
from recovery.domain.scheduler.consoles import Console
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.reads.bulk import queries as progress_of
from recovery.reads.scanners import scheduler_status
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.scanners.other_consoles import OtherConsoles
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.integration.scanners.test_scanner_actions import made, requeue
from tests.support.acting import Bench, all_of, finish, set_up
from tests.support.processes import schedulers
from tests.support.processes.schedulers import Process
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.support.waiting import until

OURS, THEIRS = "a" * 32, "b" * 32
SHORT = 400  # ms that a word of a console lives
TAKES_OVER = 30.0  # seconds behind the end of the one that acts


@pytest.fixture
def bench(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with set_up(valkey, state_store, tmp_path, monkeypatch) as bench:
        yield bench


@pytest.fixture
def console() -> Iterator[Callable[..., OtherConsoles]]:
    with ExitStack() as stack:

        def make(installation: str) -> OtherConsoles:
            made = OtherConsoles(registry.registry(), installation, f"host-{installation[0]}", 41, 1_790_000_000_000)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consoles, "LIFE", SHORT)


def test_the_one_that_was_there_first_acts_and_both_see_the_other(
    bench: Bench, console: Callable[..., OtherConsoles]
) -> None:
    ours, theirs = console(OURS), console(THEIRS)
    ours.run(0)
    theirs.run(0)
    assert not bench.client.keys("unstall:*"), "who only watches writes nothing"
    assert not ours.rival("main"), "it is about to act"
    for one in (theirs, ours):
        one.run(0, ["main"])
    assert (ours.rival("main"), ours.others()[0].acts) == ("", False)
    (other,) = theirs.others()
    assert other == Console("main", OURS, "host-a", 41, 1_790_000_000_000, acts=True)
    assert theirs.rival("main") == (
        "Another console acts on main: host-a (process 41, installation aaaaaaaa), since 2026-09-21 14:13 UTC. "
        "Scanners and bulk runs are paused here, and resume when it has not been seen for 16 s."
    )
    assert theirs.rival("a-table") == ""


def test_when_it_is_silent_the_other_acts_and_stays_so(
    short: None, bench: Bench, console: Callable[..., OtherConsoles]
) -> None:
    ours, theirs = console(OURS), console(THEIRS)
    ours.run(0, ["main"])
    theirs.run(0, ["main"])
    until(lambda: (theirs.run(0), not theirs.rival("main"))[1], 10, "it has taken over")
    assert "not yet known" in ours.rival("main"), "a word that has ended lets nobody act"
    ours.run(0)
    assert "host-b" in ours.rival("main")


def test_what_is_told_is_read_without_writing_and_ends_by_itself(
    short: None, bench: Bench, console: Callable[..., OtherConsoles]
) -> None:
    console(THEIRS).run(0, ["main"])
    with wired(bench.queues.url) as wire:
        (one,) = told.read(wire)
        assert (one.installation, one.acts) == (THEIRS, True)
        until(lambda: told.read(wire) == (), 10, "it is gone")
        told.announce(wire, replace(one, installation=OURS))
        assert bench.client.get("unstall:fence:{consoles}") == OURS.encode(), "the name of the other is gone too"


def test_where_nothing_of_ours_may_be_written_the_fence_alone_keeps_them_apart(
    bench: Bench, console: Callable[..., OtherConsoles]
) -> None:
    bench.client.execute_command("ACL", "SETUSER", "default", "resetkeys", "~bull:*")
    try:
        ours = console(OURS)
        ours.run(0, ["main"])
        assert (ours.rival("main"), ours.others()) == ("", ())
    finally:
        bench.client.execute_command("ACL", "SETUSER", "default", "~*")


@pytest.mark.django_db(transaction=True)
def test_a_scanner_does_nothing_where_another_console_acts(bench: Bench) -> None:
    bench.orphan("1")
    words = "Another console acts on main."
    by = made(leader_token=LeaderToken(7, lambda: True, OURS, lambda deployment: words if deployment == "main" else ""))
    before = bench.dump()
    (find,) = requeue(bench, by, "1")
    assert (find.outcome, find.policy, by.holds, by.is_stopped) == (None, words, [words], False)
    assert bench.dump() == before


@pytest.mark.django_db(transaction=True)
def test_a_bulk_run_waits_for_the_other_console_and_says_so(bench: Bench) -> None:
    bench.failed("1", "2")
    held = ["Another console acts on main."]
    hands = BulkRunner(registry.registry(), LeaderToken(7, lambda: True, OURS, lambda _: held[0] if held else ""))
    try:
        run = all_of(bench, Action.RETRY)
        hands.run(0)
        found = progress_of.progress(run.pk, now_ms())
        assert (found.is_open, found.done, found.trouble) == (True, 0, held[0])
        held.clear()
        assert finish(hands, run).done == 2
    finally:
        hands.close()
    assert bench.ids(JobState.FAILED) == []


@pytest.mark.django_db(transaction=True)
def test_a_bulk_run_goes_on_as_soon_as_the_other_console_is_gone_however_long_it_waited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runs, "HOLD", 0.01)
    bench.failed("1")
    held = ["Another console acts on main."]
    hands = BulkRunner(registry.registry(), LeaderToken(7, lambda: True, OURS, lambda _: held[0] if held else ""))
    try:
        run = all_of(bench, Action.RETRY)
        for _ in range(8):
            until(lambda: hands.run(0), 10, "it is tried again")
        assert hands._held[run.pk][1] == bulk_runs.HOLD
        held.clear()
        until(lambda: hands.run(0), 1, "it goes on")
        assert progress_of.progress(run.pk, now_ms()).done == 1
    finally:
        hands.close()


@pytest.mark.django_db(transaction=True)
def test_there_is_an_alert_of_each(bench: Bench) -> None:
    one = Console("main", THEIRS, "host-b", 41, 1_790_000_000_000, acts=True)
    bench.state.client.set(state_keys.SCHEDULER, SchedulerStatus("here", 1, 7, 0, 0, "me", (one,)).encode())
    found = AlertDetectors(registry.registry(), lambda: None).look(now_ms())
    (finding,) = [finding for finding in found.findings if finding.kind is AlertKind.CONSOLE]
    assert (finding.key, finding.words) == (f"main/{THEIRS}", f"{one.words} {one.meaning}")


@pytest.mark.long
@pytest.mark.timeout(180)
def test_when_the_acting_console_is_killed_the_other_recovers_its_orphans(tmp_path: Path, valkey: Store) -> None:
    """Real schedulers, each with its own database and state store, both allowed to act."""
    bullmq(valkey.client, "bull:mail")
    with ExitStack() as stack:
        first, second = (_house(stack, tmp_path / name, valkey) for name in "ab")
        _lost(valkey, "1")
        until(lambda: valkey.client.llen("bull:mail:wait") == 1, 120, "one of them acts")
        # One that never saw the lost job has said nothing of itself, but sees the one that acted.
        pairs = ((first, second), (second, first))
        first, second = until(lambda: next(filter(_is_seen_to_act, pairs), None), 20, "the other one sees it")
        for _, store in (first, second):  # the Redis of this test is young, which holds scanners for a minute
            until(lambda store=store: not store.client.exists(state_keys.SCANNER_HOLDS), 90, "nothing is paused")  # type: ignore[misc]
        first[0].send(signal.SIGKILL)
        _lost(valkey, "2")
        began = time.monotonic()
        until(lambda: valkey.client.llen("bull:mail:wait") == 2, TAKES_OVER, "the other one acts")
        assert time.monotonic() - began < TAKES_OVER
        until(lambda: _sign(second).consoles == (), 20, "the first one is gone")
    assert [valkey.client.hget(f"bull:mail:{id}", "stc") for id in "12"] == [b"1", b"1"]


def _house(stack: ExitStack, directory: Path, queues: Store) -> tuple[Process, Store]:
    directory.mkdir()
    schedulers.furnish(directory)
    (directory / "unstall.toml").write_text(
        '[thresholds]\nstalled_interval = 1\n[policy]\norphan_watch = { mode = "enabled" }\n'
    )
    store = stack.enter_context(Store())
    environ = {"UNSTALL_REDIS_URL": queues.url, "UNSTALL_STATE_URL": store.url}
    process = Process(directory, "scheduler", schedulers.script(), environ)
    stack.callback(process.end)
    process.says("It is the leader")
    until(lambda: scheduler_status.fetch(store.client), 20, "its sign")
    return process, store


def _lost(queues: Store, id: str) -> None:
    add(queues.client, "bull:mail", id)
    queues.client.lrem("bull:mail:wait", 0, id)
    queues.client.hset(f"bull:mail:{id}", mapping={"processedOn": now_ms() - 60_000, "ats": 1, "atm": 1})
    queues.client.lpush("bull:mail:active", id)


def _is_seen_to_act(pair: tuple[tuple[Process, Store], tuple[Process, Store]]) -> bool:
    """The first one, by the second."""
    return [one.acts for one in _sign(pair[1]).consoles] == [True]


def _sign(house: tuple[Process, Store]) -> Any:
    return scheduler_status.fetch(house[1].client) or SchedulerStatus("", 0, None, 0, 0, "")
