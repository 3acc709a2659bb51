"""What hooks hear, where a job names the application's row, and which stage that row gets."""

from __future__ import annotations

import json

import pytest

from recovery.domain.hooks.types import Hook, HookEvent, HookRowUpdate, parse_job_data, row_id, stage_for
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState

MAIL = QueueRef("shop", "bull:mail")
FOLLOW = HookRowUpdate("app", "imports", "id", ("import", "id"), "stage", ("importing",), "pending", failed="broken")


def row(state: JobState, **more: object) -> JobRow:
    return JobRow(MAIL.job("1"), state, **more)  # type: ignore[arg-type] # fields of a row


def test_a_hook_hears_its_own_queue_in_the_deployments_it_is_for() -> None:
    anywhere = Hook("a", "", "bull:mail", frozenset({HookEvent.LOST}))
    here = Hook("a", "shop", "bull:mail", frozenset({HookEvent.LOST}))
    elsewhere = Hook("a", "n8n", "bull:mail", frozenset({HookEvent.LOST}))
    assert anywhere.hears(HookEvent.LOST, MAIL)
    assert here.hears(HookEvent.LOST, MAIL)
    assert not elsewhere.hears(HookEvent.LOST, MAIL)
    assert not here.hears(HookEvent.RECOVERED, MAIL)
    assert not here.hears(HookEvent.LOST, QueueRef("shop", "bull:other"))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"import": {"id": 42}}, 42),
        ({"import": {"id": "a-1"}}, "a-1"),
        ({"import": {"id": True}}, None),
        ({"import": {"id": 1.5}}, None),
        ({"import": {"id": None}}, None),
        ({"import": {"id": ""}}, None),
        ({"import": {"id": "x" * 501}}, None),
        ({"import": {"id": [1]}}, None),
        ({"import": []}, None),
        ({"import": "id"}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_data_names_the_row_or_nothing_does(data: object, found: object) -> None:
    assert row_id(FOLLOW, "7", json.dumps(data).encode()) == found


def test_a_step_of_a_path_may_be_a_place_in_a_list() -> None:
    follow = HookRowUpdate("app", "imports", "id", ("files", "1"), "stage", ("importing",), "pending")
    assert row_id(follow, "7", b'{"files": ["a", "b"]}') == "b"
    assert row_id(follow, "7", b'{"files": ["a"]}') is None


def test_without_a_path_the_job_has_the_id_of_the_row() -> None:
    follow = HookRowUpdate("app", "imports", "id", (), "stage", ("importing",), "pending")
    assert row_id(follow, "7", None) == "7"


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff", None])
def test_what_is_no_json_names_nothing(data: bytes | None) -> None:
    assert parse_job_data(data) is None
    assert row_id(FOLLOW, "7", data) is None


@pytest.mark.parametrize(
    ("found", "act", "stage"),
    [
        (row(JobState.WAITING), "requeue", "pending"),
        (row(JobState.DELAYED), "", "pending"),
        (row(JobState.ACTIVE), "", "pending"),  # lost, and nobody has it
        (row(JobState.ACTIVE, lock=JobLock("t", 1000)), "", ""),  # it runs again
        (row(JobState.ACTIVE, lock_known=False), "", ""),
        (row(JobState.COMPLETED), "", ""),
        (row(JobState.UNKNOWN), "", ""),
        (row(JobState.FAILED), "fail", "broken"),
        (None, "fail", "broken"),  # removed when it failed
        (None, "requeue", ""),  # it ran and was removed
        (row(JobState.ACTIVE, missing=True), "", ""),
    ],
)
def test_a_row_follows_only_a_job_that_nobody_works_on(found: JobRow | None, act: str, stage: str) -> None:
    assert stage_for(FOLLOW, found, act) == stage
