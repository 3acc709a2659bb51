"""The auto-retrying of failed jobs, over a real store and a real database, under a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.context import QUARANTINE_AFTER
from recovery.domain.time_units import DAY
from recovery.models import AuditEntry, Incident
from recovery.scanners.auto_retry import candidates, queue_run
from recovery.scanners.auto_retry.scanner import N8N
from tests.support.stuck.auto_retrying import ARMED, AutoRetrying, done, noted

pytestmark = pytest.mark.django_db


def test_failed_jobs_go_oldest_first_and_the_audit_names_scanner_and_policy(jobs: AutoRetrying) -> None:
    jobs.fails("2", ago=3_000_000)
    jobs.fails("1", ago=9_000_000)
    report = jobs.run()
    assert done(report) == ["1", "2"], report
    assert jobs.ids(JobState.WAITING) == ["2", "1"]
    entry = AuditEntry.objects.get(phase="intent")
    assert (entry.actor_kind, entry.actor, entry.act) == ("scanner", "auto-retry", Action.RETRY)
    assert entry.reason.startswith("Enabled")


def test_by_default_it_says_what_it_would_do_and_does_nothing(make: Callable[..., AutoRetrying]) -> None:
    jobs = make("")
    jobs.fails("1", "2")
    before = jobs.dump()
    report = jobs.run()
    assert [find.job.id for find in report.finds] == ["1", "2"]
    assert all(find.outcome is None and "ry run" in find.policy for find in report.finds)
    assert jobs.dump() == before
    assert jobs.pasts() == []


def test_asked_to_look_only_it_does_nothing(jobs: AutoRetrying) -> None:
    jobs.fails("1")
    before = jobs.dump()
    assert [find.outcome for find in jobs.run(dry_run=True).finds] == [None]
    assert jobs.dump() == before


def test_without_a_note_why_jobs_may_run_twice_it_observes(make: Callable[..., AutoRetrying]) -> None:
    jobs = make('[policy.auto_retry]\nmode = "enabled"')
    jobs.fails("1")
    report = jobs.run()
    assert done(report) == []
    assert "the idempotency note is not set" in report.finds[0].policy


@pytest.mark.parametrize(
    ("toml", "fields", "said"),
    [
        ("", {"stacktrace": '["UnrecoverableError: no\\n at x"]'}, "marked unrecoverable"),
        ("", {"opts": '{"attempts": 3}'}, "stopped further attempts"),
        ("", {"failedReason": "The job was cancelled by ada"}, "cancelled"),
        ('[policy.never]\nnames = ["ma*"]', {}, "never auto-retries jobs named"),
        ('[policy.never]\nsignatures = ["no route"]', {}, "never auto-retries after"),
        ("", {"name": "x" * 20_000}, "too long to be read"),
        ("", {"stacktrace": '["' + "x" * 70_000 + '"]'}, "too long to be read"),
        ('[policy.backoff."*"]\nfirst = 7200', {}, "is due in"),
        ('[policy.backoff."*"]\nattempts = 0', {}, "allows no auto-retry"),
    ],
)
def test_what_must_not_go_stays_and_is_said(
    make: Callable[..., AutoRetrying], toml: str, fields: dict[str, Any], said: str
) -> None:
    jobs = make(ARMED + toml)
    jobs.fails("1", **fields)
    before = jobs.dump()
    report = jobs.run()
    assert jobs.dump() == before
    (find,) = report.finds
    assert (find.job.id, find.outcome) == ("", None)
    assert "1 failed job is not auto-retried" in find.what
    assert said in find.policy


def test_a_policy_may_want_failures_to_be_older(make: Callable[..., AutoRetrying]) -> None:
    jobs = make(ARMED + "after = 7200")
    jobs.fails("1", ago=3_600_000)
    jobs.fails("2", ago=7_300_000)
    assert done(jobs.run()) == ["2"]


def test_what_somebody_cancelled_or_failed_stays_until_somebody_retries_it(jobs: AutoRetrying) -> None:
    jobs.fails("1", "2", "3")
    noted(jobs, Action.CANCEL, "1", "3")
    noted(jobs, Action.FAIL, "2")
    noted(jobs, Action.RETRY, "3")
    assert done(jobs.run()) == ["3"]


def test_a_quarantined_job_waits_for_a_person(jobs: AutoRetrying) -> None:
    jobs.fails("1", "2")
    for number in range(QUARANTINE_AFTER):
        at = jobs.clock() - 3_600_000 * (number + 1)
        Incident.objects.create(
            deployment="main", base=jobs.ref.slug, job="1", kind="orphan", opened_at=at, proven_at=at, closed_at=at + 1
        )
    report = jobs.run()
    assert done(report) == ["2"]
    assert "only a person can retry it" in report.finds[-1].policy


def test_a_quarantined_job_is_known_before_its_last_incident_is_closed(jobs: AutoRetrying) -> None:
    """Its library failed it a moment ago, and the watch has not looked since."""
    jobs.fails("1", "2", "3")
    for job, proven in (("1", True), ("2", False)):
        for number in range(QUARANTINE_AFTER):
            at = jobs.clock() - 3_600_000 * (number + 1)
            closed, is_sure = (at + 1, True) if number else (None, proven)
            Incident.objects.create(
                deployment="main",
                base=jobs.ref.slug,
                job=job,
                kind="orphan" if is_sure else "worker-lost",
                opened_at=at,
                proven_at=at if is_sure else None,
                closed_at=closed,
            )
    assert done(jobs.run()) == ["3"]


def test_malformed_jobs_stay(make: Callable[..., AutoRetrying], tmp_path: Path) -> None:
    (tmp_path / "mail.json").write_text('{"type": "object", "required": ["to"]}')
    jobs = make(f'[[queues]]\nname = "main/bull:mail"\nschema = "{tmp_path / "mail.json"}"\n{ARMED}')
    jobs.fails("1", data='{"to": "ada"}')
    jobs.fails("2", data="{}")
    report = jobs.run()
    assert done(report) == ["1"]
    assert "violates the schema" in report.finds[-1].policy


def test_n8n_waits_for_a_person(jobs: AutoRetrying) -> None:
    jobs.base, jobs.ref = "bull:jobs", QueueRef("main", "bull:jobs")
    jobs.flavour = LibraryVersion(QueueLibrary.BULL, 4)
    jobs.client.set("bull:jobs:id", 1)
    jobs.fails("1")
    report = jobs.run()
    assert [(find.job.id, find.policy) for find in report.finds] == [("1", N8N)]
    assert jobs.ids(JobState.FAILED) == ["1"]


def test_a_deployment_that_is_read_only_is_only_looked_at(make: Callable[..., AutoRetrying]) -> None:
    jobs = make(f"read_only = true\n{ARMED}")
    jobs.fails("1")
    report = jobs.run()
    assert [(find.job.id, find.outcome) for find in report.finds] == [("1", None)]
    assert "read only" in report.finds[0].policy
    assert (report.faults, jobs.pasts()) == ((), [])


def test_a_queue_that_is_not_there_is_a_fault(jobs: AutoRetrying) -> None:
    assert jobs.run(queue=QueueRef("main", "bull:other")).faults == ("There is no queue main/bull:other.",)


def test_a_quarantined_job_waits_for_a_person_also_after_its_three_days(jobs: AutoRetrying) -> None:
    jobs.fails("1", ago=10 * DAY)
    for number in range(QUARANTINE_AFTER):
        at = jobs.clock() - 10 * DAY - 3_600_000 * (number + 1)
        Incident.objects.create(
            deployment="main", base=jobs.ref.slug, job="1", kind="orphan", opened_at=at, proven_at=at, closed_at=at + 1
        )
    assert done(jobs.run()) == []


def test_the_oldest_goes_first_also_when_it_went_before(jobs: AutoRetrying) -> None:
    jobs.fails("again")
    jobs.works = lambda _: False
    jobs.run()
    jobs.clock.pass_by(1_000)
    jobs.clock.pass_by(600_000)
    jobs.follow()
    jobs.fails("new", ago=60_000)
    assert done(jobs.run()) == ["again", "new"]


def test_thousands_of_hopeless_jobs_hide_nothing_behind_them(
    jobs: AutoRetrying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "LOOKED", 100)
    monkeypatch.setattr(queue_run, "LOOKED", 100)
    jobs.fails(*(f"bad{number:03}" for number in range(180)), reason="UnrecoverableError: no", ago=9_000_000)
    jobs.fails("good", ago=3_000_000)
    first = jobs.run()
    assert done(first) == []
    assert "100 of 181 failed jobs" in " ".join(first.holds)
    assert done(jobs.run()) == ["good"]
