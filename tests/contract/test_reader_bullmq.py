"""BullMQ 3 to 6 hold to the reader's contract."""

from __future__ import annotations

from recovery.domain.jobs import JobState
from recovery.domain.queues.types import QueueLibrary
from tests.contract.counted import MetricsContract
from tests.contract.families import FamilyContract, IgnoredFailures
from tests.contract.reader import HOUR, ReaderContract
from tests.contract.scene import Scene
from tests.support.waiting import until


class TestBullMQ3(FamilyContract, MetricsContract, ReaderContract):
    generation = "bullmq3"
    kind = QueueLibrary.BULLMQ

    def test_the_version_is_what_the_producer_wrote(self, scene: Scene) -> None:
        scene.queue.add("first")
        flavour = scene.flavour
        assert flavour.version == scene.queue.library.version
        assert f"meta.version = bullmq:{flavour.version} (written by a producer)" in flavour.evidence


class TestBullMQ4(TestBullMQ3):
    generation = "bullmq4"
    keeps = (JobState.PRIORITIZED,)

    def test_a_marker_before_a_prioritized_job_is_no_job(self, scene: Scene) -> None:
        job = scene.queue.add("urgent", priority=1)
        scene.queue.add("later", delay=HOUR)
        counts = scene.sample.counts
        assert (counts.waiting, counts.prioritized) == (0, 1)
        assert scene.ids(JobState.WAITING) == []
        assert scene.heads[1] == (job, "")


class TestBullMQ5(IgnoredFailures, TestBullMQ4):
    generation = "bullmq5"

    def test_a_named_worker_is_known_by_its_name(self, scene: Scene) -> None:
        job = scene.queue.add("long")
        scene.queue.work("hang", name="mail-3")
        scene.running()
        (worker,) = scene.workers
        assert worker.name == "mail-3"
        assert scene.row(job).worker == "mail-3"
        assert scene.row(job).starts == 1

    def test_limits_of_the_whole_queue_are_read(self, scene: Scene) -> None:
        scene.queue.call("setGlobalConcurrency", 4)
        scene.queue.call("setGlobalRateLimit", 10, 2000)
        sample = scene.sample
        assert (sample.concurrency, sample.limit_max, sample.limit_duration) == (4, 10, 2000)

    def test_a_job_that_stalled_too_often_failed_and_says_so(self, scene: Scene) -> None:
        job = scene.queue.add("long")
        hung = scene.queue.work("hang", lockDuration=300, apart=True, maxStalledCount=0, stalledInterval=200)
        scene.running()
        hung.kill()
        scene.queue.work("ok", maxStalledCount=0, stalledInterval=200)
        until(lambda: scene.queue.counts()["failed"] == 1)
        row = scene.row(job)
        assert (row.state, row.stalls) == (JobState.FAILED, 1)
        assert "stalled" in row.reason


class TestBullMQ6(TestBullMQ5):
    generation = "bullmq6"

    def test_a_paused_queue_leaves_its_jobs_where_they_are(self, scene: Scene) -> None:
        scene.queue.pause()
        scene.queue.add("waits")
        counts = scene.sample.counts
        assert (counts.waiting, counts.paused) == (1, 0)
        assert JobState.PAUSED not in scene.reader.capabilities(scene.flavour).states
