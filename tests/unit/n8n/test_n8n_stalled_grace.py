"""What n8n does with a stalled job, and when its execution is an error, by its version."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.n8n.stalled_grace import error_after
from recovery.domain.n8n.versions import Version
from recovery.domain.stuck.context import LocklessObservation, VerdictContext
from recovery.domain.stuck.job_rules import verdict_for_job
from recovery.domain.tuning.worker_setup import TuningOptions, setups
from recovery.domain.tuning.workloads import Workload, WorkloadKind

NOW = 1_795_000_000_000
JOB = QueueRef("main", "bull:jobs").job("7")
OPEN: Version = (2, 1_000_000, 1_000_000)  # 2.x, as a person writes it


@pytest.mark.parametrize(
    ("version", "fails", "words", "after"),
    [
        ((1, 123, 5), None, "; n8n runs it again then.", 0),
        ((2, 40, 7), False, "; n8n fails it then.", 0),
        ((2, 41, 0), None, "; n8n fails it then, and its execution is an error up to 30 s later.", 30_000),
        (None, True, "; n8n fails it then, and from 2.41 on its execution is an error up to 30 s later.", None),
        (None, False, "; n8n runs it again then.", None),
        (
            None,
            None,
            "; n8n 2 and later fail it then, and from 2.41 on its execution is an error up to 30 s later.",
            None,
        ),
    ],
)
def test_the_clock_of_each_version(version: Version | None, fails: bool | None, words: str, after: int | None) -> None:
    """The exact version wins over what the tables tell."""
    near = VerdictContext(
        NOW, workers=2, stalled_check_ttl=9_000, is_n8n=True, n8n_version=version, fails_stalled=fails
    )
    orphan = verdict_for_job(
        JobRow(JOB, JobState.ACTIVE, processed_at=NOW - 90_000), near, sighting=LocklessObservation(NOW - 90_000, 2)
    )
    assert orphan.fate.endswith(words)
    assert error_after(version) == after


@pytest.mark.parametrize(("version", "seconds"), [((2, 40, 7), 0.0), ((2, 41, 1), 30.0), (OPEN, 30.0)])
def test_tuning_counts_it_in(version: Version, seconds: float) -> None:
    worker = Workload("worker", WorkloadKind.ENVIRONMENT, "worker.env", 1, image="n8nio/n8n", words=("n8n", "worker"))
    (setup,) = setups((worker,), TuningOptions(version=version))
    assert setup.timing.error_after == seconds
