"""A command in a pipe ends quietly when its reader leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.processes.processes import run


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "command", [("doctor",), ("doctor", "--json"), ("tuning", "--library", "bullmq", "--lock", "1m")]
)
def test_a_reader_who_has_read_enough_is_no_fault(command: tuple[str, ...], tmp_path: Path) -> None:
    """As `| head` leaves: its end of the pipe is closed before anything was written."""
    reading, writing = os.pipe()
    os.close(reading)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("UNSTALL_", "DATABASE_"))}
    ended = run(
        "manage.py", *command, environ={**clean, "UNSTALL_DATA_DIR": str(tmp_path)}, stdout=writing, seconds=120
    )
    os.close(writing)
    assert ended.stderr == ""
    assert ended.returncode == 128 + 13
