"""Real schedulers: one is killed at the very moment at which a message was delivered, and the other goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.reads.scanners import scheduler_status
from tests.support.processes.schedulers import Process, furnish, script
from tests.support.receivers import Hooked, hooked
from tests.support.stores.stores import Store
from tests.support.stuck.watching import bullmq, now_ms
from tests.support.waiting import until

PATIENCE = 90.0  # seconds for whatever one of them has to do
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def hook() -> Iterator[Hooked]:
    with hooked() as made:
        yield made


@pytest.fixture
def both(hook: Hooked, valkey: Store, state_store: Store, tmp_path: Path) -> Iterator[list[Process]]:
    """One after the other: the first one leads."""
    furnish(tmp_path)
    (tmp_path / "unstall.toml").write_text(
        f"""[alerts]
kinds = ["abandoned"]
after = 0
calm = 2
[[alerts.webhooks]]
name = "ops"
url = "{hook.url}"
[policy.stale_check]
mode = "dry-run"
"""
    )
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url, "UNSTALL_ENVIRONMENT": "test"}
    started: list[Process] = []
    try:
        for name in ("first", "second"):
            started.append(Process(tmp_path, name, script(place=name), environ))
            until(lambda: state_store.client.exists("unstall:snapshot"), PATIENCE, "somebody leads")
        yield started
    finally:
        for one in started:
            one.end()


def test_a_leader_that_dies_over_a_message_costs_one_repetition_and_nothing_else(
    hook: Hooked, both: list[Process], valkey: Store, state_store: Store
) -> None:
    bullmq(valkey.client, "bull:mail")

    def kill() -> int:
        sign = scheduler_status.fetch(state_store.client)
        (leader,) = [one for one in both if sign and one.pid == sign.pid]
        leader.send(signal.SIGKILL)
        leader.child.wait()
        return 200

    hook.answers = [kill]
    valkey.client.hset(
        "bull:mail:1", mapping={"name": "mail", "timestamp": now_ms(), "processedOn": now_ms(), "ats": 1}
    )
    valkey.client.lpush("bull:mail:active", "1")
    until(lambda: len(hook.posted) >= 2, PATIENCE, "the other one tells it again")
    valkey.client.delete("bull:mail:active")
    until(lambda: hook.events()[-1] == "resolved", PATIENCE, "and its end")
    told: list[Any] = [one.told for one in hook.posted]
    firing = [one for one in told if one["event"] == "firing"]
    assert len({one["id"] for one in firing}) == 1
    assert [one["repeated"] for one in firing] == [False, *([True] * (len(firing) - 1))]
    assert told[0]["title"] == (
        "[test] 1 job is abandoned in main/bull:mail: no worker is connected, nothing will ever recover it."
    )
    assert len({one["id"] for one in told}) == 2
