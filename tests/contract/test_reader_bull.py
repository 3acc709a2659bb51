"""Bull 3 and 4 hold to the reader's contract."""

from __future__ import annotations

from recovery.domain.jobs import JobState
from recovery.domain.queues.types import QueueLibrary
from tests.contract.counted import MetricsContract
from tests.contract.reader import HOUR, ReaderContract
from tests.contract.scene import Scene
from tests.support.waiting import until


class TestBull3(ReaderContract):
    generation = "bull3"
    kind = QueueLibrary.BULL

    def test_an_idle_queue_that_left_only_its_counter_is_bull(self, scene: Scene) -> None:
        scene.queue.add("first", removeOnComplete=True)
        scene.queue.work("ok")
        until(lambda: not scene.store.client.exists(scene.queue.key("1")))
        scene.store.client.delete(scene.queue.key("stalled-check"))
        assert scene.store.client.keys(f"{scene.queue.base}:*") == [scene.queue.key("id").encode()]
        assert scene.flavour.library is QueueLibrary.BULL

    def test_a_rate_limited_job_is_delayed_and_the_limit_seen(self, scene: Scene) -> None:
        scene.queue.add_many(3)
        scene.queue.work("ok", limiter={"max": 1, "duration": HOUR})
        until(lambda: scene.queue.counts()["delayed"] == 2)
        sample = scene.sample
        assert sample.limited_for is not None
        assert 0 < sample.limited_for <= HOUR
        assert len(scene.page(JobState.DELAYED).rows) == 2


class TestBull4(MetricsContract, TestBull3):
    generation = "bull4"
