"""How incidents end, and in whose name."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, ActionCommand, Actor, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.stuck.types import VerdictKind
from recovery.models import Incident
from recovery.reads.stuck import incidents
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, active, orphan, requeued

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("actor", "by"), [("person", "operator"), ("shell", "operator"), ("scanner", "scanner")])
def test_an_act_in_the_audit_closes_it_in_the_name_of_who_did_it(
    watch_bench: Make, valkey: Store, actor: str, by: str
) -> None:
    ref, one = QueueRef("main", "bull:acted"), watch_bench(valkey)
    orphan(one, valkey, ref)
    order = ActionCommand(Action.REQUEUE, ref, Actor(actor, "ada"), "it hung", (ExpectedJob("1", JobState.ACTIVE),))
    intent = audit_log.write_intent(order, {}, ["1"])
    requeued(valkey, ref)
    one.look()
    assert incidents.incidents_of_job(ref.job("1"))[0].closed_at is None  # its outcome is still to be written
    number = audit_log.write_outcome(intent, order, {}, {"1": Outcome.DONE})
    one.look()
    (incident,) = incidents.incidents_of_job(ref.job("1"))
    assert (incident.resolved_by, incident.audit) == (by, number)


def test_a_requeue_that_raised_the_stall_counter_was_the_watchdogs(watch_bench: Make, valkey: Store) -> None:
    ref, one = QueueRef("main", "bull:acted"), watch_bench(valkey)
    orphan(one, valkey, ref)
    requeued(valkey, ref)
    one.look()
    assert incidents.incidents_of_job(ref.job("1"))[0].resolved_by == "stalled-check"


def test_a_job_that_was_taken_away_closes_it_as_removed(watch_bench: Make, valkey: Store) -> None:
    ref, one = QueueRef("main", "bull:acted"), watch_bench(valkey)
    orphan(one, valkey, ref)
    valkey.client.delete(f"{ref.base}:active", f"{ref.base}:1")
    one.look()
    assert incidents.incidents_of_job(ref.job("1"))[0].resolved_by == "removed"


def test_a_removed_job_that_had_stalled_was_rescued_by_the_watchdog(watch_bench: Make, valkey: Store) -> None:
    ref, one = QueueRef("main", "bull:acted"), watch_bench(valkey)
    orphan(one, valkey, ref)
    valkey.client.delete(f"{ref.base}:active", f"{ref.base}:1")
    valkey.client.xadd(f"{ref.base}:events", {"event": "stalled", "jobId": "1"})
    valkey.client.xadd(f"{ref.base}:events", {"event": "completed", "jobId": "1", "returnvalue": "null"})
    one.look()
    assert incidents.incidents_of_job(ref.job("1"))[0].resolved_by == "stalled-check"


def test_a_holder_that_comes_back_closes_it_as_its_own(watch_bench: Make, valkey: Store) -> None:
    ref, one = QueueRef("main", "bull:acted"), watch_bench(valkey)
    orphan(one, valkey, ref)
    valkey.client.set(f"{ref.base}:1:lock", "w:1", px=30_000)
    valkey.client.set(f"{ref.base}:stalled-check", "1", px=20_000)
    one.look()
    assert incidents.incidents_of_job(ref.job("1"))[0].resolved_by == "worker"


@pytest.mark.parametrize(("left", "by"), [(580_000, "worker"), (455_000, None)])
def test_a_lock_that_nobody_renewed_is_no_sign_of_its_worker(
    watch_bench: Make, valkey: Store, left: int, by: str | None
) -> None:
    """The only worker was killed, another one connects before the lock of the dead one has ended."""
    ref, one = QueueRef("main", "bull:jobs"), watch_bench(valkey)
    active(valkey, ref.base, "1", flavour="bull", processedOn=1_760_000_000_000)
    valkey.client.set(f"{ref.base}:1:lock", "w", px=600_000)
    one.discover()
    assert one.look().counts == {VerdictKind.WORKER_LOST: 1}
    worker = valkey.connect()
    worker.client_setname("bull:am9icw==")
    valkey.client.set(f"{ref.base}:1:lock", "w", px=left)
    found = one.look(later=150_000)
    (incident,) = incidents.incidents_of_job(ref.job("1"))
    assert (incident.resolved_by or None, incident.closed_at is None) == (by, by is None)
    assert found.counts == {VerdictKind.RUNNING: 1}
    if by is None:
        valkey.client.delete(f"{ref.base}:1:lock")
        one.look(later=160_000)
        assert one.look(later=300_000).counts == {VerdictKind.ABANDONED: 1}
        assert incidents.incidents_of_job(ref.job("1"))[0].number == incident.number, "one loss, one incident"
    worker.close()


def test_a_third_incident_makes_quarantine(watch_bench: Make, valkey: Store) -> None:
    ref, one = QueueRef("main", "bull:toxic"), watch_bench(valkey)
    for time in range(3):
        active(valkey, ref.base, "1", stc=time)
        one.discover()
        (row,) = one.look().rows
        assert (row.verdict.orphaned, row.verdict.is_quarantined) == (time, time == 2)
        requeued(valkey, ref)
        assert one.look().stuck == 0


def test_what_the_watchdog_rescued_before_it_was_proven_is_proven_by_that(watch_bench: Make, valkey: Store) -> None:
    ref, one = QueueRef("main", "bull:old"), watch_bench(valkey, "[thresholds]\nstalled_interval = 60\n")
    active(valkey, ref.base, "1", flavour="bull")
    one.discover()
    one.look()
    one.look(later=5_000)
    (incident,) = incidents.incidents_of_job(ref.job("1"))
    assert (incident.kind, incident.proven_at) == ("unlocked", None)
    requeued(valkey, ref)
    one.look(later=10_000)
    (incident,) = incidents.incidents_of_job(ref.job("1"))
    assert (incident.resolved_by, incident.proven_at) == ("stalled-check", incident.closed_at)
    assert incident.took is not None
    assert 10_000 <= incident.took <= 12_000
    assert incidents.orphan_counts(ref, ["1", "2"], incident.proven_at or 0) == {"1": 1}


def test_a_moment_without_a_lock_is_no_incident(watch_bench: Make, valkey: Store) -> None:
    """An older library's job that was just taken: at the next look it has its lock."""
    ref, one = QueueRef("main", "bull:old"), watch_bench(valkey)
    active(valkey, ref.base, "1", flavour="bull")
    one.discover()
    one.look()
    valkey.client.set(f"{ref.base}:1:lock", "w", px=30_000)
    valkey.client.set(f"{ref.base}:stalled-check", "1", px=20_000)
    assert one.look(later=5_000).stuck == 0
    assert incidents.incidents_of_job(ref.job("1")) == ()


def test_an_incident_lasts_until_its_job_was_missed_however_long_the_proof_takes(
    watch_bench: Make, valkey: Store
) -> None:
    ref, one = QueueRef("main", "bull:acted"), watch_bench(valkey)
    orphan(one, valkey, ref)
    order = ActionCommand(Action.REQUEUE, ref, Actor("person", "ada"), "it hung", (ExpectedJob("1", JobState.ACTIVE),))
    intent = audit_log.write_intent(order, {}, ["1"])
    requeued(valkey, ref)
    missed = one.look()
    audit_log.write_outcome(intent, order, {}, {"1": Outcome.DONE})
    one.look(later=40_000)
    assert incidents.incidents_of_job(ref.job("1"))[0].closed_at == missed.checked_at


def test_a_dead_database_costs_no_look_and_is_caught_up_with(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, one = QueueRef("main", "bull:acted"), watch_bench(valkey)
    active(valkey, ref.base, "1")
    one.discover()

    def refuse(*_: object, **__: object) -> None:
        raise OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(Incident.objects, "bulk_create", refuse)
        inbox = one.look()
    assert inbox.stuck == 1
    assert inbox.faults == ("Incidents cannot be written: OperationalError.",)
    first = inbox.checked_at
    assert one.look(later=5_000).faults == ()
    assert incidents.incidents_of_job(ref.job("1"))[0].opened_at == first
