"""The whole way: a real worker's log is rotated, a real monitor ships it, and the page shows each line once."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from recovery.stores.state import state_keys
from tests.browser.log_site import LogSite, texts
from tests.support.logs.shipping import SERVER, monitor
from tests.support.processes.driver import NODE_DIRECTORY, lacking, node
from tests.support.processes.processes import end, spawn
from tests.support.stores.stores import Store
from tests.support.waiting import until

pytestmark = pytest.mark.browser
JOBS = 90
# Writes a line for each of its jobs, and opens its log anew when it is told so, as logrotate does it.
_WORKER = """
const { createRequire } = require("node:module");
const { Queue, Worker } = createRequire(process.argv[2] + "/")("bullmq5");
const { appendFileSync, openSync, closeSync } = require("node:fs");
const [path, port, jobs] = process.argv.slice(3);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
let log = openSync(path, "a");
process.on("SIGHUP", () => { closeSync(log); log = openSync(path, "a"); });
const write = (text) => appendFileSync(log, `${new Date().toISOString()} INFO ${text}\\n`);
new Worker("render", async (job) => {
  await new Promise((done) => setTimeout(done, 20));
  write(`job ${job.id} rendered`);
}, { connection });
new Queue("render", { connection }).addBulk(Array.from({ length: Number(jobs) }, () => ({ name: "render", data: {} })));
"""


@contextmanager
def worker(folder: Path, queues: Store) -> Iterator[subprocess.Popen[bytes]]:
    program = node()
    assert program
    script = folder / "worker.cjs"
    script.write_text(_WORKER)
    process = spawn([program, script, NODE_DIRECTORY, folder / "worker.log", str(queues.port), str(JOBS)])
    try:
        yield process
    finally:
        end(process)


def test_a_workers_log_is_followed_through_rotation(
    open_page: Callable[..., Page], site: LogSite, valkey: Store, tmp_path: Path
) -> None:
    if reason := lacking():
        pytest.skip(reason)
    log = tmp_path / "worker.log"
    log.touch()
    page = open_page(f"/logs?source=servers&label=server%3D{SERVER}", site=site)
    with monitor(site.state, log):
        until(lambda: site.state.client.exists(state_keys.log_offsets(SERVER)), 60, "the monitor follows the file")
        with worker(tmp_path, valkey) as process:
            for turn in range(1, 3):
                until(lambda: len(texts(page)) > turn * JOBS // 3, 60, "a part has come")  # noqa: B023
                log.rename(tmp_path / f"worker.log.{turn}")
                process.send_signal(signal.SIGHUP)
            until(lambda: len(texts(page)) >= JOBS, 60, "all have come")
        expected = [f"job {number} rendered" for number in range(1, JOBS + 1)]
        assert [line.partition("INFO ")[2] for line in texts(page)] == expected
        assert len(list(tmp_path.glob("worker.log*"))) == 3, "it was rotated while it was written"
    expect(page.locator("[data-rows] li[data-level=info]")).to_have_count(JOBS)
