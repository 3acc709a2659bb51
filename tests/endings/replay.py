"""A recording, looked at as the orphan-watch would have: what it says of each lost job, look by look. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recovery.backends import client_list
from recovery.backends.redis_common.active_jobs import NO_KEY, ActiveJobFacts, ConsistentJobRead
from recovery.config import Config
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import JobCounts, LibraryVersion, QueueLibrary, QueueSample
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.servers.samples import Server, ServerProcess
from recovery.domain.stuck.types import Verdict
from recovery.reads.stuck import verdict_context
from recovery.scanners.orphan_watch.assessment import assess_queue
from recovery.scanners.orphan_watch.queue_state import CandidateJob, QueueState, lock_from_ttl
from recovery.scanners.orphan_watch.worker_changes import QueueWorkerChanges, WorkerChanges, merge_changes
from tests.support.clients import client, listing


@dataclass(frozen=True, slots=True)
class Said:
    """Of one job at one look; `at` is in seconds since the first."""

    at: float
    job: str
    workers: int
    verdict: Verdict


def replay(path: Path) -> list[Said]:
    """Of every job that has lost its worker, or seems to have."""
    recorded = json.loads(path.read_text())
    library, major, version = recorded["flavour"]
    watch = _Watch(QueueRef("main", recorded["base"]), LibraryVersion(QueueLibrary(library), major, version))
    return [said for look in _whole(recorded["looks"]) for said in watch.look(look)]


def _whole(looks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A look leaves out what is as it was at the one before."""
    whole: dict[str, Any] = {}
    for look in looks:
        whole = whole | look
        yield whole


@dataclass(slots=True)
class _Watch:
    """As `watching.beat.Beat` goes about it, with what was recorded in place of a wire."""

    ref: QueueRef
    flavour: LibraryVersion
    arrivals: WorkerChanges = field(default_factory=WorkerChanges)
    post: QueueState | None = None
    run: str = ""
    restarted_at: int | None = None
    began: int = 0

    def look(self, look: dict[str, Any]) -> Iterator[Said]:
        now: int = look["at"]
        self.began = self.began or now
        if self.run not in ("", look["run"]):
            self.restarted_at = now
            self.arrivals.forget()
        self.run = look["run"]
        where = AddressMap.of(map(_server, look["servers"]), now)
        here = client_list.parse(
            listing(*(client(name, id=id, addr=at, cmd=cmd) for id, at, name, cmd in look["clients"])), [self.ref]
        )
        moves = self.arrivals.since(here, now, where).get(self.ref, QueueWorkerChanges())
        check = look["check"]
        sample = QueueSample(
            self.ref,
            self.flavour,
            JobCounts(active=len(look["active"])),
            stalled_check_ttl=None if check == NO_KEY else check,
            workers=len(here),
        )
        post = self.post = self.post or QueueState(self.ref, sample)
        post.begin(sample)
        post.learn_watchdog(now)
        memory = post.memory
        post.memory = replace(
            memory, left=merge_changes(memory.left, moves.left, now), came=merge_changes(memory.came, moves.came, now)
        )
        post.jobs.arrange([id.encode() for id, _ in look["active"]])
        post.jobs.learn(range(len(post.jobs)), [ttl for _, ttl in look["active"]], now)
        for at, (id, _) in enumerate(look["active"]):
            post.jobs.state(at, _facts(look["jobs"][id]))
        post.learn_locks(now)
        around = verdict_context.build_context(
            sample, here, post.memory, Config(), now, taken_at=now, restarted_at=self.restarted_at, where=where
        )
        post.set_apart(around)
        for one in post.found:
            if post.is_suspect(one, around):
                post.take(ConsistentJobRead(_row(self.ref, one, look["jobs"][one.id.decode()]), is_steady=True), now)
        found = assess_queue(post, around, lambda _: {})
        post.end()
        together = Counter(one.mark.lockless_since for one in found)
        for one in found:
            if one.kind.is_lost:
                crowd = together[one.mark.lockless_since] if one.mark.lockless_since is not None else 0
                verdict = one.verdict(replace(around, lost_together=crowd))
                yield Said((now - self.began) / 1000, one.row.id, len(here), verdict)


def _server(told: dict[str, Any]) -> Server:
    plain = {name: value for name, value in told.items() if name != "processes"}
    processes = (ServerProcess(pid, "node", "", 0, cpu, sockets=tuple(ends)) for pid, cpu, ends in told["processes"])
    return Server(host="", **plain, processes=tuple(processes))


def _facts(job: dict[str, str]) -> ActiveJobFacts:
    return ActiveJobFacts(
        int(job["processedOn"]) if "processedOn" in job else None, job.get("pb", ""), "", is_there=True
    )


def _row(ref: QueueRef, one: CandidateJob, job: dict[str, str]) -> JobRow:
    return JobRow(
        ref.job(one.id.decode()),
        JobState.ACTIVE,
        processed_at=_facts(job).processed_at,
        starts=int(job["ats"]) if "ats" in job else None,
        attempts=int(job.get("atm") or job.get("attemptsMade") or 0),
        stalls=int(job.get("stc") or job.get("stalledCounter") or 0),
        worker=job.get("pb", ""),
        lock=lock_from_ttl(one.ttl),
    )
