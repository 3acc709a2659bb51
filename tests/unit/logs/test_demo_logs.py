"""What the demo's workers write: lines that the page reads as those of real ones, and never a large file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recovery.demo import runtime
from recovery.domain.logs.levels import find_level
from recovery.domain.logs.timestamps import line_timestamp
from recovery.domain.logs.types import LogLevel
from recovery.processes import all_in_one

JOB = SimpleNamespace(id="7", name="charge", attemptsMade=0)


@pytest.fixture
def names() -> Iterator[tuple[str, str]]:
    """A worker that writes plain lines, and one that writes objects."""
    yield "payments", "emails"
    for name in ("payments", "emails"):
        log = logging.getLogger(f"demo.{name}")
        for handler in tuple(log.handlers):
            handler.close()
            log.removeHandler(handler)


async def test_each_line_has_its_moment_and_its_level_and_a_failure_its_trace(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    async def fail(_job: Any, _token: str) -> None:
        raise KeyError("discount")

    for name in names:
        log = runtime.worker_logger(name, tmp_path)
        with pytest.raises(KeyError):
            await runtime.with_job_logs(fail, log)(JOB, "")
        lines = (tmp_path / f"{name}.log").read_bytes().splitlines()
        assert line_timestamp(lines[0])
        assert [find_level(lines[at].decode()) for at in (0, 1)] == [LogLevel.INFO, LogLevel.ERROR]
        assert b"KeyError: 'discount'" in lines[-1]


async def test_a_file_is_turned_before_it_is_large(
    tmp_path: Path, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "LARGEST", 1000)
    log = runtime.worker_logger(names[0], tmp_path)
    for number in range(100):
        log.info("line %d", number)
    assert {file.name for file in tmp_path.iterdir()} == {"payments.log", "payments.log.1"}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2000


def test_without_a_folder_nothing_is_written(tmp_path: Path, names: tuple[str, str]) -> None:
    runtime.worker_logger(names[0], None).info("unheard")
    assert list(tmp_path.iterdir()) == []


def test_the_monitor_follows_them_unless_it_is_told_what_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UNSTALL_LOG_FILES", "UNSTALL_LOG_DOCKER", "UNSTALL_LOG_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    assert all_in_one._ships(Path("/data/[x]/logs")) == {"UNSTALL_LOG_FILES": "/data/[[]x]/logs/*.log"}
    monkeypatch.setenv("UNSTALL_LOG_JOURNAL", "worker.service")
    assert all_in_one._ships(Path("/data/logs")) == {}
