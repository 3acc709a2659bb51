"""A fire drill that is killed, interrupted or asked to end: its workers go with it, and so do its keys."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.management.commands.drill import INTERRUPTED
from tests.support.processes.drilling import SHORT_WORDS, alive, left, workers_of
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until


class Shell:
    """`manage.py drill` as somebody runs it, with what it said."""

    def __init__(self, directory: Path, url: str, *arguments: str) -> None:
        self._said = directory / "said.log"
        with self._said.open("wb") as file:
            command = [sys.executable, str(ROOT / "manage.py"), "drill", "--library=python", *arguments]
            environ = environ_of(directory, {"UNSTALL_STATE_URL": url, "UNSTALL_SECRET_KEY": "k" * 64})
            self.process = spawn(command, stdout=file, stderr=file, environ=environ, directory=directory)

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def says(self, words: str) -> None:
        until(lambda: words in self.said or self.process.poll() is not None, 60, words)
        assert words in self.said, self.said


@pytest.fixture
def shell(tmp_path: Path, state_store: Store) -> Iterator[Shell]:
    started = Shell(tmp_path, state_store.url, *SHORT_WORDS, "--wait=50s")
    yield started
    end(started.process)


# SIGKILL leaves it no time for anything: the kernel ends the workers, and the cleaner sees it gone. SIGTERM is what the
# scheduler sends, and is tried with it.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_however_it_ends_its_workers_and_its_keys_are_gone(
    number: signal.Signals, shell: Shell, state_store: Store
) -> None:
    shell.says("a worker has the job")
    workers = workers_of(shell.process.pid)
    assert len(workers) >= 2
    assert left(state_store)
    os.kill(shell.process.pid, number)
    code = shell.process.wait(30)
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else INTERRUPTED)
    until(lambda: not alive(workers), what="its workers are gone")
    until(lambda: not left(state_store), 20, "its keys are gone")
