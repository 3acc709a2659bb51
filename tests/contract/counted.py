"""What a reader promises of the libraries' own metrics: for the generations that keep them."""

from __future__ import annotations

import time

from tests.contract.scene import Scene

MINUTE = 60_000


class MetricsContract:
    """Joined with `ReaderContract`, which brings the scene."""

    def test_the_open_minute_becomes_the_newest_closed_one(self, scene: Scene) -> None:
        scene.queue.add_many(3)
        scene.queue.work("ok", metrics={"maxDataPoints": 60})
        scene.finished(3)
        opened = int(scene.queue.metrics("completed")["meta"]["prevTS"]) // MINUTE
        now = (opened + 3) * MINUTE
        found = scene.reader.metrics(scene.pipe, scene.ref, now, minutes=5)
        assert found is not None
        completed, failed = found
        assert completed == (0, 0, 3, None, None)
        assert failed == (0, 0, 0, None, None)

    def test_older_minutes_are_those_the_library_lists(self, scene: Scene) -> None:
        scene.queue.add("first")
        scene.queue.work("ok", metrics={"maxDataPoints": 60})
        scene.finished(1)
        # A minute ago the first one finished: the next is counted in a minute of its own.
        then = int(time.time() * 1000) - 2 * MINUTE
        scene.store.client.hset(scene.queue.key("metrics", "completed"), "prevTS", then)
        scene.queue.add("second")
        scene.finished(2)
        theirs = scene.queue.metrics("completed")
        opened = int(theirs["meta"]["prevTS"]) // MINUTE
        found = scene.reader.metrics(scene.pipe, scene.ref, (opened + 1) * MINUTE, minutes=4)
        assert found is not None
        listed = [int(value) for value in theirs["data"]]
        assert sum(listed) == 1
        assert list(found[0][: 1 + len(listed)]) == [1, *listed]
