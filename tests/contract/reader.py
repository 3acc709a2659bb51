"""What every reader promises, whatever library keeps the queue: each generation joins with a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from recovery.domain.jobs import JobState
from recovery.domain.queues.types import QueueLibrary as Kind
from recovery.errors import JobMissing, WrongType
from tests.contract.scene import Scene
from tests.support.processes.fleet import Fleet
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store
from tests.support.waiting import until

HOUR = 3_600_000


class ReaderContract:
    """Claims about one generation. `keeps` are the states of its own."""

    generation: ClassVar[str]
    kind: ClassVar[Kind]
    keeps: ClassVar[tuple[JobState, ...]] = ()

    @pytest.fixture
    def scene(self, store_for: Callable[[str], Store], libraries: Fleet) -> Iterator[Scene]:
        store = store_for(self.generation)
        pipe = Pipe(store.client)
        yield Scene(libraries[self.generation].queue(store), store, pipe)
        pipe.close()

    # -- which library it is

    def test_the_library_is_recognised_by_what_it_left(self, scene: Scene) -> None:
        scene.queue.add("first")
        flavour = scene.flavour
        assert flavour.library is self.kind
        assert not flavour.mixed
        assert not flavour.read_only
        assert flavour.evidence

    def test_the_major_is_recognised_or_lies_in_the_range(self, scene: Scene) -> None:
        scene.queue.add("first")
        scene.queue.work("ok")
        scene.finished(1)
        flavour = scene.flavour
        assert flavour.major is not None
        assert flavour.major <= scene.queue.library.major <= (flavour.upto or flavour.major)

    # -- the sample

    def test_counts_are_those_of_the_library(self, scene: Scene) -> None:
        self._fill(scene)
        theirs, ours = scene.queue.counts(), scene.sample.counts
        assert ours.waiting == theirs["waiting"] == (3 if JobState.PRIORITIZED in self.keeps else 5)
        assert ours.prioritized == theirs.get("prioritized", 0)
        assert (ours.active, ours.delayed) == (theirs["active"], theirs["delayed"]) == (1, 2)
        assert (ours.completed, ours.failed) == (theirs["completed"], theirs["failed"]) == (2, 1)
        assert ours.backlog == 5

    def test_a_queue_with_only_a_delayed_job_has_nothing_waiting(self, scene: Scene) -> None:
        scene.queue.add("later", delay=HOUR)
        scene.queue.work("ok")
        until(lambda: scene.workers)
        until(lambda: scene.sample.stalled_check_ttl)
        assert scene.sample.counts.waiting == 0
        assert scene.ids(JobState.WAITING) == []
        assert scene.page(JobState.WAITING).total == 0
        assert scene.heads[1] == ("", "")

    def test_the_heads_are_the_next_to_run_and_the_oldest_running(self, scene: Scene) -> None:
        first = scene.queue.add("first")
        scene.queue.work("hang")
        scene.running()
        waiting = [scene.queue.add("next"), scene.queue.add("last")]
        assert scene.heads[1] == (waiting[0], first)

    def test_the_times_of_a_head_are_asked_by_the_age_plan(self, scene: Scene) -> None:
        job = scene.queue.add("first")
        (reply,) = scene.pipe.call([scene.reader.age_plan(scene.ref, job)])
        theirs = scene.queue.job(job)
        assert theirs is not None
        assert int(reply[0]) == theirs["timestamp"]
        assert reply[1] is None

    def test_a_paused_queue_is_said_to_be_paused_and_keeps_its_backlog(self, scene: Scene) -> None:
        scene.queue.add("waits")
        assert scene.sample.is_paused is False
        scene.queue.pause()
        scene.queue.add("waits too")
        sample = scene.sample
        assert sample.is_paused is True
        assert sample.counts.backlog == 2
        assert scene.flavour.mixed is False

    def test_the_watchdog_is_seen_while_a_worker_lives(self, scene: Scene) -> None:
        scene.queue.add("first")
        assert scene.sample.stalled_check_ttl is None
        scene.queue.work("ok", stalledInterval=20_000)
        ttl = until(lambda: scene.sample.stalled_check_ttl)
        assert 0 < ttl <= 20_000

    def test_the_counter_tells_how_many_were_added(self, scene: Scene) -> None:
        scene.queue.add_many(7)
        assert scene.sample.added == 7

    def test_the_next_delayed_job_is_known(self, scene: Scene) -> None:
        scene.queue.add("later", delay=2 * HOUR)
        job = scene.queue.add("sooner", delay=HOUR)
        theirs = scene.queue.job(job)
        assert theirs is not None
        due = scene.sample.next_delayed_at
        assert due is not None
        assert abs(due - theirs["timestamp"] - HOUR) < 1000

    # -- workers

    def test_each_worker_is_counted_once(self, scene: Scene) -> None:
        for _ in range(2):
            scene.queue.work("ok")
        until(lambda: len(scene.workers) == 2)
        scene.queue.add_many(3)
        scene.finished(3)
        assert len(scene.workers) == 2

    def test_a_busy_worker_is_still_a_worker(self, scene: Scene) -> None:
        scene.queue.add("long")
        scene.queue.work("hang")
        scene.running()
        assert len(scene.workers) == 1

    # -- pages

    def test_waiting_jobs_are_listed_next_to_run_first(self, scene: Scene) -> None:
        jobs = [scene.queue.add(name) for name in ("one", "two", "three")]
        assert scene.ids(JobState.WAITING) == jobs
        assert scene.ids(JobState.WAITING, oldest_first=False) == jobs[::-1]

    def test_prioritized_jobs_are_listed_next_to_run_first(self, scene: Scene) -> None:
        slow, quick = scene.queue.add("slow", priority=9), scene.queue.add("quick", priority=1)
        state = JobState.PRIORITIZED if JobState.PRIORITIZED in self.keeps else JobState.WAITING
        page = scene.page(state)
        assert [(row.id, row.priority, row.state) for row in page.rows] == [(quick, 1, state), (slow, 9, state)]

    def test_delayed_jobs_are_listed_soonest_first_with_their_time(self, scene: Scene) -> None:
        later, sooner = scene.queue.add("later", delay=2 * HOUR), scene.queue.add("sooner", delay=HOUR)
        rows = scene.page(JobState.DELAYED).rows
        assert [row.id for row in rows] == [sooner, later]
        assert [(row.due_at or 0) - (row.added_at or 0) for row in rows] == [HOUR, 2 * HOUR]

    def test_finished_jobs_are_listed_newest_first(self, scene: Scene) -> None:
        jobs = scene.queue.add_many(5)
        scene.queue.work("ok")
        scene.finished(5)
        assert scene.ids(JobState.COMPLETED) == jobs[::-1]
        assert scene.ids(JobState.COMPLETED, oldest_first=True) == jobs

    @pytest.mark.parametrize("state", [JobState.WAITING, JobState.COMPLETED, JobState.DELAYED])
    @pytest.mark.parametrize("oldest_first", [True, False])
    def test_pages_hold_every_job_once(self, scene: Scene, state: JobState, oldest_first: bool) -> None:
        jobs = scene.queue.add_many(23, delay=HOUR if state is JobState.DELAYED else 0)
        if state is JobState.COMPLETED:
            scene.queue.work("ok", concurrency=10)
            scene.finished(23)
        seen: list[str] = []
        cursor = ""
        while True:
            page = scene.page(state, cursor=cursor, size=5, oldest_first=oldest_first)
            assert page.total == 23
            seen += [row.id for row in page.rows]
            cursor = page.next
            if not cursor:
                break
        assert sorted(seen, key=int) == jobs

    @pytest.mark.parametrize("state", [JobState.WAITING, JobState.COMPLETED])
    def test_the_previous_page_is_the_page_before(self, scene: Scene, state: JobState) -> None:
        scene.queue.add_many(12)
        if state is JobState.COMPLETED:
            scene.queue.work("ok")
            scene.finished(12)
        first = scene.page(state, size=5)
        second = scene.page(state, size=5, cursor=first.next)
        third = scene.page(state, size=5, cursor=second.next)
        assert first.previous == ""
        assert scene.ids(state, size=5, cursor=third.previous) == [row.id for row in second.rows]
        back = scene.page(state, size=5, cursor=second.previous)
        assert back.rows == first.rows
        assert scene.ids(state, size=5, cursor=back.next) == [row.id for row in second.rows]

    def test_an_active_job_shows_its_lock(self, scene: Scene) -> None:
        job = scene.queue.add("long")
        scene.queue.work("hang", lockDuration=20_000)
        scene.running()
        (row,) = scene.page(JobState.ACTIVE).rows
        assert (row.id, row.state, row.lock_known) == (job, JobState.ACTIVE, True)
        assert row.lock is not None
        assert row.lock.ttl is not None
        assert 0 < row.lock.ttl <= 20_000
        assert row.lock.holder
        assert row.processed_at is not None

    def test_the_job_of_a_dead_worker_is_active_and_has_no_lock(self, scene: Scene) -> None:
        job = scene.queue.add("long")
        worker = scene.queue.work("hang", lockDuration=300, lockRenewTime=150, apart=True)
        scene.running()
        worker.kill()
        row = until(lambda: next((row for row in scene.page(JobState.ACTIVE).rows if row.lock is None), None))
        assert (row.id, row.missing, row.lock_known) == (job, False, True)
        assert scene.row(job) == row
        assert scene.workers == ()

    def test_a_row_says_what_happened(self, scene: Scene) -> None:
        failing = scene.queue.add("send", {"reason": "no such host\nreally"}, attempts=3, backoff=1)
        scene.queue.work("fail")
        until(lambda: scene.queue.counts()["failed"] == 1)
        row = scene.row(failing)
        assert (row.name, row.state, row.attempts, row.attempts_limit) == ("send", JobState.FAILED, 3, 3)
        assert row.reason == "no such host"
        assert row.data_size == len('{"reason":"no such host\\nreally"}')
        assert None not in (row.added_at, row.processed_at, row.finished_at)

    def test_a_result_is_shown_in_one_line(self, scene: Scene) -> None:
        job = scene.queue.add("send", {"result": {"sent": [1, 2]}})
        scene.queue.work("ok")
        scene.finished(1)
        assert scene.row(job).result == '{"sent":[1,2]}'

    def test_every_state_is_told_by_where_the_id_is(self, scene: Scene) -> None:
        self._fill(scene)
        for state in (
            *self.keeps,
            JobState.WAITING,
            JobState.DELAYED,
            JobState.ACTIVE,
            JobState.COMPLETED,
            JobState.FAILED,
        ):
            if state is JobState.WAITING_CHILDREN:
                continue
            rows = scene.page(state).rows
            assert rows
            for row in rows:
                assert scene.row(row.id).state is state, row

    def test_a_job_of_a_paused_queue_is_found(self, scene: Scene) -> None:
        scene.queue.pause()
        job = scene.queue.add("waits")
        assert scene.row(job).state in (JobState.PAUSED, JobState.WAITING)

    def test_a_job_that_is_not_there_is_missing(self, scene: Scene) -> None:
        scene.queue.add("first")
        with pytest.raises(JobMissing):
            scene.row("999")
        with pytest.raises(JobMissing):
            scene.job("nobody")

    def test_an_id_without_a_hash_is_a_ghost(self, scene: Scene) -> None:
        scene.queue.add("first")
        scene.store.client.lpush(scene.queue.key("active"), "gone")
        (row,) = scene.page(JobState.ACTIVE).rows
        assert (row.id, row.missing) == ("gone", True)
        assert scene.row("gone").missing
        assert scene.job("gone").fields == ()

    # -- the whole job

    def test_a_job_is_shown_in_full(self, scene: Scene) -> None:
        id = scene.queue.add("send", {"reason": "no such host", "to": "Zoë"}, attempts=2, backoff=1)
        scene.queue.work("fail")
        until(lambda: scene.queue.counts()["failed"] == 1)
        job = scene.job(id)
        assert job.row == scene.row(id)
        assert '"to":"Zoë"' in job.data.value
        assert not job.data.is_cut
        assert '"attempts":2' in job.options.value
        assert job.reason == "no such host"
        assert len(job.stack) == 2
        assert "no such host" in job.stack[0]
        assert {"name", "data", "opts", "timestamp", "failedReason"} <= {name for name, _ in job.fields}
        assert job.log_count == 0

    def test_progress_and_logs_are_those_of_the_job(self, scene: Scene) -> None:
        id = scene.queue.add("talk", {"lines": 7})
        scene.queue.work("log")
        scene.finished(1)
        assert scene.job(id).log_count == 7
        page = scene.reader.logs(scene.pipe, scene.ref, id, start=2, size=3)
        assert (page.lines, page.start, page.total) == (("line 3", "line 4", "line 5"), 2, 7)

    def test_progress_is_shown_in_one_line(self, scene: Scene) -> None:
        id = scene.queue.add("talk", {"progress": {"done": 3}})
        scene.queue.work("progress")
        scene.finished(1)
        assert scene.row(id).progress == '{"done":3}'

    # -- schedulers, metrics, search

    def test_schedules_are_listed_with_their_rhythm(self, scene: Scene) -> None:
        scene.queue.schedule("nightly", {"pattern": "0 3 * * *", "tz": "Europe/Berlin"}, "tick")
        scene.queue.schedule("often", {"every": HOUR}, "tock")
        rows = {row.name: row for row in scene.reader.schedulers(scene.pipe, scene.ref)}
        assert set(rows) == {"tick", "tock"}
        assert (rows["tick"].pattern, rows["tick"].timezone) == ("0 3 * * *", "Europe/Berlin")
        assert rows["tock"].every == HOUR
        assert all(row.next_at for row in rows.values())

    def test_metrics_are_unknown_where_workers_keep_none(self, scene: Scene) -> None:
        scene.queue.add("first")
        scene.queue.work("ok")
        scene.finished(1)
        assert scene.reader.metrics(scene.pipe, scene.ref, 0, minutes=5) is None

    def test_a_search_finds_by_name_and_by_payload(self, scene: Scene) -> None:
        scene.queue.add_many(60, "noise", {"to": "nobody"})
        job = scene.queue.add("Invoice", {"to": "Zoë <zoe@example.org>"})
        scene.queue.add_many(60, "noise", {"to": "nobody"})
        search = scene.reader.search
        for wanted in ({"name": "invoi"}, {"data": "Zoë <zoe"}, {"name": "INVOICE", "data": "example.org"}):
            found = search(scene.pipe, scene.ref, JobState.WAITING, **wanted)  # type: ignore[arg-type] # names of texts
            assert [row.id for row in found.rows] == [job]
            assert (found.examined, found.total, found.next, found.skipped) == (121, 121, "", 0)
        assert search(scene.pipe, scene.ref, JobState.WAITING, data="zoë").rows == ()

    def test_a_search_stops_at_its_budget_and_goes_on_from_there(self, scene: Scene) -> None:
        scene.queue.add_many(130, "noise")
        seen, cursor, slices = 0, "", 0
        while True:
            found = scene.reader.search(scene.pipe, scene.ref, JobState.WAITING, name="noise", cursor=cursor, budget=60)
            assert found.examined <= 60
            seen, cursor, slices = seen + len(found.rows), found.next, slices + 1
            if not cursor:
                break
        assert (seen, slices) == (130, 3)

    # -- what is invalid

    def test_a_key_of_the_wrong_type_is_unknown_and_the_rest_is_not(self, scene: Scene) -> None:
        scene.queue.add("first")
        ours, flavour = scene.reader, scene.flavour
        scene.store.client.set(scene.queue.key("failed"), "nonsense")
        sample, _ = ours.sample(scene.ref, flavour, scene.pipe.call(ours.sample_plan(scene.ref)), 0)
        assert sample.counts.failed is None
        assert sample.counts.waiting == 1
        assert "WRONGTYPE" in sample.error
        with pytest.raises(WrongType, match="WRONGTYPE"):
            ours.page(scene.pipe, scene.ref, JobState.FAILED)

    def test_reading_needs_no_right_to_write(self, scene: Scene) -> None:
        self._fill(scene)
        ours, flavour = scene.reader, scene.flavour
        client = scene.store.client
        client.acl_setuser("observer", enabled=True, nopass=True, keys=["*"], commands=["+@read", "+@connection"])
        watching = scene.store.connect(username="observer", password="any")
        pipe = _Strict(watching)
        ours.sample(scene.ref, flavour, pipe.call(ours.sample_plan(scene.ref)), 0)
        for state in (*self.keeps, JobState.WAITING, JobState.ACTIVE, JobState.COMPLETED, JobState.FAILED):
            for row in ours.page(pipe, scene.ref, state).rows:
                ours.job(pipe, scene.ref, row.id)
                ours.logs(pipe, scene.ref, row.id)
                ours.family(pipe, scene.ref, row.id)
            ours.search(pipe, scene.ref, state, data="x")
        ours.schedulers(pipe, scene.ref)
        ours.metrics(pipe, scene.ref, 0, minutes=5)
        pipe.close()
        watching.close()
        client.acl_deluser("observer")

    def _fill(self, scene: Scene) -> None:
        """Some of everything: 2 completed, 1 failed, 1 active, 3 waiting, 2 with a priority, 2 delayed."""
        queue = scene.queue
        queue.add_many(2)
        worker = queue.work("ok")
        scene.finished(2)
        worker.close()
        queue.add("bad")
        worker = queue.work("fail")
        scene.finished(3)
        worker.close()
        queue.add("long")
        queue.work("hang")
        scene.running()
        queue.add_many(3)
        queue.add("urgent", priority=5)
        queue.add("less urgent", priority=7)
        queue.add("later", delay=HOUR)
        queue.add("much later", delay=2 * HOUR)


class _Strict(Pipe):
    """Fails on the first refusal."""

    def call(self, commands: object) -> list[object]:  # type: ignore[override] # only passed on
        replies = super().call(commands)  # type: ignore[arg-type] # only passed on
        refused = [
            (command, reply) for command, reply in zip(commands, replies, strict=True) if isinstance(reply, Exception)
        ]  # type: ignore[call-overload] # as above
        assert not refused
        return replies
