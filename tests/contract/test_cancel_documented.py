"""The workers of docs/cancel.md, run as they are written there: a wish ends the job, and it is not tried again."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.backends.bullmq.pause_cancel import cancel_channel
from recovery.domain.actions.types import Action
from recovery.domain.jobs import JobState
from tests.contract.desk import GENERATIONS, Desk, desk_of
from tests.support.processes.driver import NODE_DIRECTORY, node
from tests.support.processes.fleet import Fleet
from tests.support.processes.processes import end, spawn
from tests.support.stores.stores import Store
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
_SEND = {
    "js": "const send = (data, signal) => new Promise((_, stop) => signal.addEventListener('abort', stop));\n",
    "python": "async def send(data):\n    await asyncio.Event().wait()\n\n\n",
}


@pytest.fixture(params=GENERATIONS)
def desk(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk


def test_a_node_worker_that_listens_ends_the_job(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(NODE_DIRECTORY / "node_modules")
    script = tmp_path / "worker.mjs"
    text = _written("js", desk).replace('"bullmq"', f'"{desk.queue.library.name}"')
    script.write_text(text)
    _hold_and_cancel(desk, [str(node()), str(script)], tmp_path)


def test_a_python_worker_that_listens_ends_the_job(valkey: Store, libraries: Fleet, tmp_path: Path) -> None:
    with desk_of("bullmq6", libraries, valkey) as desk:
        script = tmp_path / "worker.py"
        script.write_text(_written("python", desk))
        _hold_and_cancel(desk, [sys.executable, str(script)], tmp_path)


def _hold_and_cancel(desk: Desk, command: list[str], directory: Path) -> None:
    job = desk.queue.add("long", attempts=3)
    with (directory / "log").open("wb") as log:
        process = spawn(command, stdout=log, stderr=subprocess.STDOUT, directory=directory)
    try:
        until(lambda: process.poll() is not None or desk.queue.counts()["active"] == 1)
        assert process.poll() is None, (directory / "log").read_text()
        desk.running()
        channel = cancel_channel(desk.queue.base)
        until(lambda: desk.store.client.pubsub_numsub(channel)[0][1])
        desk.does(Action.CANCEL, job)
        desk.ended(job, JobState.FAILED)
        assert desk.hash(job)["failedReason"] == "cancelled by an operator"
        assert desk.row(job).attempts == 1
    finally:
        end(process)


def _written(language: str, desk: Desk) -> str:
    """The document's own lines, with this store and this queue put in."""
    text = (ROOT / "docs" / "cancel.md").read_text()
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found
    lines = found[1].replace("6379", str(desk.store.port)).replace("mail", desk.queue.name)
    before = "const connection" if language == "js" else "running = {}"
    return lines.replace(before, _SEND[language] + before, 1)
