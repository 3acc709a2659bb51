"""A process that looks at a hostile Redis as the scheduler and the pages do, and tells what that took.

`main` takes a directory that has an unstall.toml, and the bases of queues; it prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

from recovery import shared_clock
from recovery.backends.registry import reader
from recovery.config import load
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample
from recovery.errors import StoreError
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.orphan_watch.active_job_reader import ActiveJobReader
from recovery.scanners.orphan_watch.queue_state import QueueState
from recovery.stores.registry import ConnectionRegistry

_BULLMQ = LibraryVersion(QueueLibrary.BULLMQ, 5)
_STATES = (JobState.ACTIVE, JobState.WAITING, JobState.DELAYED, JobState.FAILED, JobState.COMPLETED)


def main(directory: str, *bases: str) -> None:
    registry = ConnectionRegistry(load({}, directory=Path(directory)))
    refs = [QueueRef("main", base) for base in bases]
    roster = KnownQueues()
    roster.replace("main", [KnownQueue(ref, _BULLMQ, 0, 0) for ref in refs])
    collector = Collector(registry, roster)
    collector.look(_now())  # connections, scripts, code
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    seconds = {"discovery": _timed(lambda: Discoverer(registry, roster, remembers=False).run(_now()))}
    roster.replace("main", [KnownQueue(ref, _BULLMQ, 0, 0) for ref in refs])
    seconds["looks"] = max(_timed(lambda at=at: collector.look(_now() + at)) for at in range(0, 150_000, 30_000))
    seconds["watch"] = _timed(lambda: _watch(registry, refs))
    seconds["pages"] = max(
        _timed(lambda ref=ref, state=state: _page(registry, ref, state)) for ref in refs for state in _STATES
    )
    newest = collector.look(_now() + 400_000)
    gc.collect()
    told = {
        "seconds": seconds,
        "peak": _memory("VmHWM") - before,
        "kept": _memory("VmRSS") - before,
        "error": newest.deployments[0].error,
        "errors": {sample.ref.base: sample.error for sample in newest.queues},
        "waiting": {sample.ref.base: sample.counts.waiting for sample in newest.queues},
    }
    sys.stdout.write(json.dumps(told))
    collector.close()
    registry.close()


def _watch(registry: ConnectionRegistry, refs: list[QueueRef]) -> None:
    posts = {ref: QueueState(ref, QueueSample(ref, _BULLMQ)) for ref in refs}
    job_reader = ActiveJobReader(registry.wire("main"), posts)
    job_reader.find(_now())
    job_reader.inquire(_now())


def _page(registry: ConnectionRegistry, ref: QueueRef, state: JobState) -> None:
    with suppress(StoreError):
        page = reader(_BULLMQ).page(registry.wire("main"), ref, state)
        for row in page.rows[:3]:
            reader(_BULLMQ).job(registry.wire("main"), ref, row.id)


def _timed(act: object) -> float:
    started = time.monotonic()
    act()  # type: ignore[operator]
    return round(time.monotonic() - started, 2)


def _memory(name: str) -> int:
    """In MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) // 1000


def _now() -> int:
    return shared_clock.now()
