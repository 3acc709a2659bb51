"""`manage.py scan`: one run by hand, with the policies, the safety limits and the audit of one that is due."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError

from recovery.actions import scanner_control as actions
from recovery.backends.redis_common.fencing import epoch_key_of
from recovery.domain.jobs import JobState
from recovery.domain.scanners.types import ScannerKind
from recovery.models import AuditEntry, ScanFind, ScannerPause, ScanRun
from recovery.scheduler.lease_row import LeaseRow
from recovery.stores import registry
from tests.integration.actions.test_act_command import Ran, run
from tests.support.acting import ADMIN, Bench
from tests.support.stores.fences import hold
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)

ARMED = '\n[policy]\norphan_watch = { mode = "enabled" }\n'
EPOCH = 1_795_000_000


@pytest.fixture
def armed(bench: Bench, tmp_path: Path) -> Bench:
    """The policy lets the orphan-watch act. Somebody has led, and leads no more."""
    with (tmp_path / "unstall.toml").open("a") as file:
        file.write(ARMED)
    registry.reset()
    row = LeaseRow()
    row.read()
    row._ask("UPDATE {table} SET epoch = %s", EPOCH)
    row.close()
    return bench


def scan(name: str, *arguments: str) -> Ran:
    return run("scan", name, "--json", *arguments)


def orphan(bench: Bench) -> None:
    """Taken in this life of the store, by a clock that runs ahead: so its start is no reason to hold."""
    bench.orphan("1", processedOn=now_ms() + 60_000)


def test_it_acts_where_the_policy_lets_it_and_is_written_down(armed: Bench) -> None:
    orphan(armed)
    ran = scan("orphan-watch")
    assert ran.status == 0, ran.error
    (find,) = ran.document["finds"]
    assert (find["base"], find["job"], find["act"], find["outcome"]) == ("bull:mail", "1", "requeue", "done")
    assert armed.ids(JobState.WAITING) == ["1"]
    run = ScanRun.objects.get(pk=ran.document["run"])
    assert (run.scanner, run.status, run.epoch, run.acted) == ("orphan-watch", "ended", EPOCH, 1)
    assert ScanFind.objects.get().outcome == "done"
    done = AuditEntry.objects.get(number=find["audit"])
    assert (done.actor_kind, done.actor) == ("scanner", "orphan-watch")
    assert AuditEntry.objects.filter(actor_kind="shell", act="scan").count() == 1, "and who had it run"
    assert armed.client.get(epoch_key_of(armed.base)) == str(EPOCH).encode()


def test_with_observe_it_looks_only(armed: Bench) -> None:
    orphan(armed)
    before = armed.dump()
    ran = scan("orphan-watch", "--dry-run")
    assert ran.status == 0, ran.error
    (find,) = ran.document["finds"]
    assert (find["act"], find["outcome"], find["policy"]) == (None, None, "This was a dry run.")
    assert armed.dump() == before


def test_while_nobody_can_say_who_leads_it_acts_not_at_all(armed: Bench, silent: Callable[[], None]) -> None:
    orphan(armed)
    before = armed.dump()
    silent()
    ran = run("scan", "orphan-watch")
    assert ran.status == 3
    assert "The leader" in ran.error
    assert armed.dump() == before
    assert scan("orphan-watch", "--dry-run").document["found"] == 1


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The database that says who leads is away."""

    def refuse() -> Any:
        raise DatabaseError("gone")

    return lambda: monkeypatch.setattr(LeaseRow, "read", lambda _: refuse())


def test_where_another_epoch_has_begun_meanwhile_it_is_refused(armed: Bench) -> None:
    orphan(armed)
    hold(armed.client, armed.base, EPOCH + 1)
    ran = scan("orphan-watch")
    assert ran.status == 3
    assert f"epoch {EPOCH + 1}" in " ".join(ran.document["holds"])
    assert armed.ids(JobState.ACTIVE) == ["1"]


def test_a_pause_holds_whoever_runs_it(armed: Bench) -> None:
    orphan(armed)
    ScannerPause.objects.create(scanner="orphan-watch", by="ada", at=now_ms(), reason="a migration")
    ran = scan("orphan-watch")
    assert ran.status == 3
    assert ran.document["holds"] == ["Orphan-watch is paused by ada: a migration"]
    assert armed.ids(JobState.ACTIVE) == ["1"]


def test_one_queue_alone(armed: Bench) -> None:
    orphan(armed)
    assert scan("orphan-watch", "--queue", "main/bull:other").document["finds"] == []
    assert armed.ids(JobState.ACTIVE) == ["1"]
    assert scan("orphan-watch", "--queue", "bull:mail").document["acted"] == 1


def test_in_words_it_says_what_it_did_and_under_which_policy(armed: Bench) -> None:
    orphan(armed)
    ran = run("scan", "orphan-watch")
    assert ran.status == 0, ran.error
    assert ran.out.startswith("orphan-watch: 1 checked, 1 matched, 1 changed.")
    assert "requeue: done" in ran.out
    assert "in the file, for all queues" in ran.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("collect",),
        ("nonsense",),
        ("startup-sweep",),
        ("startup-sweep", "--table", "nowhere"),
        ("stale-check", "--table", "nowhere"),
        ("stale-check", "--queue", "a", "--table", "b"),
    ],
)
def test_a_wrong_call_does_nothing(armed: Bench, arguments: tuple[str, ...]) -> None:
    ran = run("scan", *arguments)
    assert ran.status in (1, 2)
    assert ran.error
    assert not ScanRun.objects.exists()


@pytest.mark.parametrize("name", ["stale-check", "auto-retry", "prune"])
def test_each_scanner_runs_by_hand(armed: Bench, name: str) -> None:
    for arguments in ((), ("--dry-run",)):
        ran = scan(name, *arguments)
        assert ran.status == 0, ran.error or ran.out
        assert ran.document["scanner"] == name


def test_a_store_that_does_not_answer_is_told_by_the_exit_status(armed: Bench, valkey: Store) -> None:
    valkey.pause()
    try:
        ran = run("scan", "stale-check", "--dry-run")
    finally:
        valkey.resume()
    assert ran.status == 4


def test_a_run_that_waits_for_the_scheduler_is_not_taken(armed: Bench) -> None:
    waiting = actions.order(ADMIN, ScannerKind.STALE_CHECK, True, None, "later")
    scan("stale-check", "--dry-run")
    waiting.refresh_from_db()
    assert waiting.status == "waiting"
    assert ScanRun.objects.count() == 2
