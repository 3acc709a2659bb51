"""What a failure says of itself: whether trying again can help at all."""

from __future__ import annotations

import pytest

from recovery.domain.auto_retry.job_failure import STALLED, JobFailure
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.redaction.redact import MARK

NODE = "{}: {}\n    at Worker.processFn (/app/work.js:12:9)\n    at async Worker.run"
PYTHON = (
    "Traceback (most recent call last):\n"
    '  File "app.py", line 3, in work\n'
    "asyncio.exceptions.CancelledError\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    "Traceback (most recent call last):\n"
    '  File "app.py", line 5, in work\n'
    "{}"
)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("card declined", NODE.format("UnrecoverableError", "card declined")),
        ("card declined", PYTHON.format("bullmq.custom_errors.UnrecoverableError: card declined")),
        ("UnrecoverableError: card declined", ""),
    ],
)
def test_a_job_that_says_so_is_unrecoverable(reason: str, error: str) -> None:
    assert JobFailure(reason=reason, error=error).is_unrecoverable


@pytest.mark.parametrize(
    "error", ["", NODE.format("Error", "UnrecoverableError is what I fear"), "at UnrecoverableError"]
)
def test_a_job_that_only_mentions_it_is_not(error: str) -> None:
    assert not JobFailure(reason="no UnrecoverableError here", error=error).is_unrecoverable


def test_a_job_that_failed_with_attempts_left_was_told_not_to_try_again() -> None:
    assert JobFailure(reason="boom", attempts=1, attempts_limit=5).is_unrecoverable
    assert not JobFailure(reason="boom", attempts=5, attempts_limit=5).is_unrecoverable
    assert not JobFailure(reason="boom", attempts=6, attempts_limit=5).is_unrecoverable


def test_a_stall_is_recoverable_whatever_class_the_library_gives_it() -> None:
    stalled = JobFailure(reason=STALLED, error=NODE.format("UnrecoverableError", STALLED), attempts_limit=5)
    assert (stalled.is_stall, stalled.is_unrecoverable, stalled.is_cancelled) == (True, False, False)


@pytest.mark.parametrize(
    "reason",
    [
        "cancelled by an operator",
        "canceled",
        "Job cancelled",
        "The execution was cancelled manually",
        "This operation was aborted",
        "CancelledError: gone",
    ],
)
def test_a_cancelled_job_is_known_by_its_words(reason: str) -> None:
    assert JobFailure(reason=reason).is_cancelled


@pytest.mark.parametrize(
    "reason",
    ["subscription was cancelled", "cannot refund a cancelled order", "cancelled order 7 is not refundable", "timeout"],
)
def test_a_job_about_something_cancelled_is_not_cancelled_itself(reason: str) -> None:
    assert not JobFailure(reason=reason).is_cancelled


def test_a_cancelled_job_is_known_by_the_class_in_its_stack() -> None:
    assert JobFailure(reason="stop", error=NODE.format("AbortError", "stop")).is_cancelled
    assert JobFailure(reason="stop", error=PYTHON.format("asyncio.exceptions.CancelledError")).is_cancelled


def test_a_message_of_several_lines_is_not_taken_for_a_class() -> None:
    assert not JobFailure(reason="a", error="Error: a\nAbortError: in a log line\n    at x").is_cancelled


def test_what_python_caught_on_the_way_does_not_count() -> None:
    assert not JobFailure(reason="slow", error=PYTHON.format("TimeoutError: slow")).is_cancelled


def test_a_row_becomes_a_failure() -> None:
    row = JobRow(
        QueueRef("main", "bull:q").job("1"), JobState.FAILED, "mail", finished_at=7, attempts=2, reason="boom 12"
    )
    failure = JobFailure.of(row, "stack")
    assert (failure.name, failure.failed_at, failure.attempts, failure.error) == ("mail", 7, 2, "stack")
    assert failure.signature == "boom #"


@pytest.mark.parametrize(
    "secret", ["ghp_16C7e42F292c6912E7710c838347Ae178B4a", "AKIAIOSFODNN7EXAMPLE", "sk_live_4eC39HqLyjWDarjtT1zdp7dc"]
)
def test_a_signature_holds_no_letter_of_a_secret(secret: str) -> None:
    """Without its digits no format of a key fits it."""
    found = JobFailure(reason=f"upstream said 401: {secret} is unknown").signature
    assert found == f"upstream said #: {MARK} is unknown"
    assert JobFailure(reason=f"{'x ' * 95}{secret}").signature.endswith(f"x {MARK}")
