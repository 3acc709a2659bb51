"""What one scrape tells, and what it leaves out because nobody knows it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from dashboard.metrics.exposition import MetricsFormat
from dashboard.metrics.render import render_page
from recovery.config import Config
from recovery.config.metrics import MetricsConfig
from recovery.domain.identifiers import QueueRef
from recovery.domain.metrics.queue_totals import QueueTotal
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import VerdictKind
from recovery.version import VERSION
from tests.support.prometheus import promtool
from tests.support.scraping import MAIL, Series, counted, full, named, picture_of, read, value
from tests.support.stuck import samples
from tests.support.stuck.samples import NOW

OF_MAIL = {"deployment": "main", "queue": "bull:mail"}


@pytest.fixture(scope="module")
def series() -> Series:
    return read(full(), streams=4)


def test_both_formats_tell_the_same(series: Series) -> None:
    def told(found: Series) -> Series:
        return {key: value for key, value in found.items() if not key[0].startswith(("process_", "python_"))}

    assert told(read(full(), MetricsFormat.OPEN, streams=4)) == told(series)
    assert len(told(series)) > 100


def test_what_is_known_of_a_queue_is_told(series: Series) -> None:
    expected = {
        "unstall_queue_readable": 1,
        "unstall_queue_paused": 0,
        "unstall_oldest_waiting_seconds": 90,
        "unstall_oldest_active_seconds": 4.5,
        "unstall_orphaned_jobs": 2,
        "unstall_unlocked_active_jobs": 3,
        "unstall_person_needed_jobs": 2,
        "unstall_stalled_check_age_seconds": 18,
        "unstall_workers": 2,
        "unstall_jobs_completed_total": 1_200,
        "unstall_jobs_failed_total": 30,
        "unstall_jobs_left_total": 1_230,
        "unstall_budget_spent": 3,
        "unstall_budget_limit": 10,
        "unstall_quarantined_jobs": 1,
    }
    assert {name: value(series, name, **OF_MAIL) for name in expected} == expected
    assert value(series, "unstall_jobs", **OF_MAIL, state="waiting") == 7
    assert value(series, "unstall_jobs", **OF_MAIL, state="waiting-children") == 0
    assert value(series, "unstall_stuck_jobs", **OF_MAIL, verdict="abandoned") == 2
    assert value(series, "unstall_stuck_jobs", **OF_MAIL, verdict="missing-data") == 0
    assert value(series, "unstall_breakers", **OF_MAIL, stage="open") == 2
    assert value(series, "bullmq_job_count", deployment="main", prefix="bull", queue="mail", state="waiting") == 7


def test_what_is_known_of_the_house_is_told(series: Series) -> None:
    expected = {
        "unstall_snapshot_timestamp_seconds": NOW / 1000,
        "unstall_snapshot_stale": 0,
        "unstall_state_store_up": 1,
        "unstall_scheduler_up": 1,
        "unstall_scheduler_leads": 1,
        "unstall_leader_term": 3,
        "unstall_queues_left_out": 0,
        "unstall_streams": 4,
    }
    assert {name: value(series, name) for name in expected} == expected
    assert value(series, "unstall_build_info", version=VERSION) == 1
    assert value(series, "unstall_scanner_last_success_timestamp_seconds", scanner="collect") == (NOW - 1_900) / 1000
    assert value(series, "unstall_server_cpu_raw_ratio", server="eu-1") == 0.915
    assert value(series, "unstall_server_cpu_smoothed_ratio", server="eu-1") == 0.84
    assert value(series, "unstall_gate_open", server="eu-1") == 0
    assert value(series, "unstall_actions_total", action="requeue", result="done", by="shell") == 4
    assert value(series, "unstall_actions_total", action="fail", result="refused", by="scanner") == 0


def test_a_histogram_adds_up(series: Series) -> None:
    name = "unstall_incident_duration_seconds"
    bucket = {
        le: value(series, f"{name}_bucket", resolved_by="stalled-check", le=le) for le in ("1.0", "5.0", "30.0", "+Inf")
    }
    assert bucket == {"1.0": 0, "5.0": 1, "30.0": 3, "+Inf": 4}
    assert value(series, f"{name}_count", resolved_by="stalled-check") == 4
    assert value(series, f"{name}_sum", resolved_by="stalled-check") == 90_061
    assert value(series, f"{name}_count", resolved_by="operator") == 0


def test_unknown_values_are_absent_and_never_zero() -> None:
    unread = samples.queue(
        counts=samples.counts(waiting=3, failed=None), is_paused=None, workers=None, stalled_check_ttl=None
    )
    series = read(picture_of(samples.snapshot(unread)))
    assert value(series, "unstall_jobs", **OF_MAIL, state="waiting") == 3
    assert value(series, "unstall_jobs", **OF_MAIL, state="failed") is None
    absent = ("queue_paused", "workers", "stalled_check_age_seconds", "oldest_waiting_seconds", "orphaned_jobs")
    absent += (
        "person_needed_jobs",
        "jobs_completed_total",
        "stuck_jobs",
        "gate_open",
        "actions_total",
        "quarantined_jobs",
    )
    assert [name for name in absent if named(series, f"unstall_{name}")] == []


def test_an_empty_queue_waits_for_nothing() -> None:
    series = read(picture_of(samples.snapshot(samples.queue()), inbox=StuckInbox(NOW)))
    for name in ("oldest_waiting_seconds", "oldest_active_seconds", "orphaned_jobs", "unlocked_active_jobs"):
        assert value(series, f"unstall_{name}", **OF_MAIL) == 0, name


def test_of_a_deployment_that_is_silent_nothing_old_is_told() -> None:
    picture = picture_of(samples.snapshot(samples.queue(), silent="main"), totals={MAIL: QueueTotal(1, 5)})
    series = read(picture)
    assert value(series, "unstall_deployment_up", deployment="main") == 0
    assert value(series, "unstall_queue_readable", **OF_MAIL) == 0
    assert value(series, "unstall_jobs_completed_total", **OF_MAIL) == 5
    assert named(series, "unstall_jobs") + named(series, "bullmq_job_count") + named(series, "unstall_workers") == []


def test_a_queue_that_shows_what_was_read_before_tells_nothing_of_it() -> None:
    series = read(picture_of(samples.snapshot(samples.queue(error="WRONGTYPE", is_old=True))))
    assert value(series, "unstall_queue_readable", **OF_MAIL) == 0
    assert named(series, "unstall_jobs") == []


def test_an_old_snapshot_tells_how_old_it_is_and_no_number_of_it() -> None:
    later = NOW + 60_000
    series = read(
        picture_of(samples.snapshot(samples.queue()), now=later, inbox=StuckInbox(NOW), totals={MAIL: QueueTotal(1, 5)})
    )
    assert value(series, "unstall_snapshot_stale") == 1
    assert value(series, "unstall_snapshot_timestamp_seconds") == NOW / 1000
    assert value(series, "unstall_jobs_completed_total", **OF_MAIL) == 5
    queues = [name for name, labels in series if dict(labels).get("queue")]
    assert set(queues) == {"unstall_jobs_completed_total"}
    assert named(series, "unstall_deployment_up") == []


def test_looks_and_tallies_that_are_too_old_are_not_told_as_current() -> None:
    late, queue = NOW + 61_000, samples.queue(counts=samples.counts(active=1))
    inbox = StuckInbox(NOW, (), (StuckTally(MAIL, {VerdictKind.ORPHAN: 1}, looked=1, checked_at=NOW),))
    picture = picture_of(samples.snapshot(queue, taken_at=late), now=late, inbox=inbox, tallies=counted(NOW))
    series = read(picture)
    assert value(series, "unstall_jobs", **OF_MAIL, state="active") == 1
    gone = ("stuck_jobs", "orphaned_jobs", "budget_spent", "breakers", "quarantined_jobs", "incidents_open")
    assert [name for name in gone if named(series, f"unstall_{name}")] == []
    assert value(series, "unstall_actions_total", action="requeue", result="done", by="shell") == 4


def test_a_state_store_that_is_away_is_told_and_what_only_it_knows_is_not() -> None:
    picture = full()
    picture.image.fail(OSError("gone"), NOW)
    series = read(replace(picture, health=picture.image.health(NOW)))
    assert value(series, "unstall_state_store_up") == 0
    assert [name for name, _ in series if name.startswith(("unstall_sched", "unstall_scan", "unstall_server"))] == []
    assert value(series, "unstall_jobs", **OF_MAIL, state="waiting") == 7  # the snapshot is new still


def test_before_the_first_snapshot_there_is_little_to_tell() -> None:
    series = read(picture_of(None))
    assert value(series, "unstall_snapshot_stale") == 1
    assert named(series, "unstall_snapshot_timestamp_seconds") == []


def test_of_too_many_queues_the_stuck_ones_have_lines_and_the_rest_is_counted() -> None:
    queues = [samples.queue(f"bull:q{number}", counts=samples.counts(active=1)) for number in range(9)]
    inbox = StuckInbox(
        NOW, (), (StuckTally(QueueRef("main", "bull:q8"), {VerdictKind.ORPHAN: 1}, looked=1, checked_at=NOW),)
    )
    config = Config(metrics=MetricsConfig(queues=3))
    series = read(picture_of(samples.snapshot(*queues), config, inbox=inbox))
    listed = {labels["queue"] for labels in named(series, "unstall_jobs")}
    assert listed == {"bull:q0", "bull:q1", "bull:q8"}
    assert value(series, "unstall_queues_left_out") == 6
    assert value(series, "unstall_queues", deployment="main") == 9


def test_names_that_differ_never_look_the_same_whatever_they_hold() -> None:
    hostile = (
        "a\udcff",
        "a\udcfe",
        "a~FF",
        'say "hi"',
        "back\\slash",
        "two\nlines",
        "%s %d %%",
        "{x}",
        "ä ☃",
        "\u202eevil",
    )
    hostile += ("x" * 5_000, "x" * 4_999 + "y", "a\x00b", "a␀b", "~", "a\u2028b", "a\x85b", "a\u3000b")
    known = [samples.counts(waiting=index, failed=None) for index in range(len(hostile))]
    queues = [samples.queue(f"bull:{name}", counts=counts) for name, counts in zip(hostile, known, strict=True)]
    text = render_page(picture_of(samples.snapshot(*queues)), MetricsFormat.TEXT, 0)
    series = read(picture_of(samples.snapshot(*queues)))
    waiting = {labels["queue"] for labels in named(series, "unstall_jobs")}
    assert len(waiting) == len(hostile)
    assert {'bull:say "hi"', "bull:back\\slash", "bull:%s %d %%", "bull:{x}", "bull:ä ☃"} <= waiting
    assert max(map(len, waiting)) <= 200
    assert max(map(len, text.splitlines())) < 700
    assert len(named(series, "bullmq_job_count")) == 7 * len(hostile)


def test_a_job_table_has_no_lines_of_the_library() -> None:
    series = read(picture_of(samples.snapshot(samples.queue("imports", flavour=LibraryVersion(QueueLibrary.TABLE)))))
    assert named(series, "unstall_jobs")
    assert named(series, "bullmq_job_count") == []


@pytest.mark.usefixtures("processes")
def test_promtool_finds_nothing_to_complain_of() -> None:
    text = render_page(full(), MetricsFormat.TEXT, 1)
    run = subprocess.run(
        [promtool(), "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_the_ledger_is_counted_from_its_first_claim_on() -> None:
    counted = read(full())
    assert value(counted, "unstall_idempotency_steps_total", outcome="won") == 7
    assert value(counted, "unstall_idempotency_steps_total", outcome="released") == 0
    assert value(counted, "unstall_idempotency_replaced_total") == 2
    assert value(counted, "unstall_idempotency_keys") == 3
    assert value(counted, "unstall_idempotency_results_bytes") == 640
    assert not [name for name, _ in read(picture_of(None)) if name.startswith("unstall_idempotency")]
    planted = read(picture_of(None, idempotency={b"won": b"7", b"bytes": b"9" * 5_000}))
    assert (
        value(planted, "unstall_idempotency_steps_total", outcome="won"),
        value(planted, "unstall_idempotency_results_bytes"),
    ) == (7, 0)
