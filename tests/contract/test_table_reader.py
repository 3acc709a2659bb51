"""The reader of job tables keeps what every reader promises, on each kind of database."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import JobCounts
from recovery.errors import JobMissing, QueueMissing, StatementRefused, Unsupported
from tests.support.stores.tables import FLAVOUR, REF, TABLE, Jobs, table_reader

pytestmark = pytest.mark.django_db
READER = table_reader()


def test_rows_are_counted_by_what_their_state_means(jobs: Jobs) -> None:
    for status, number in (("pending", 3), ("running", 2), ("done", 4), ("failed", 1), ("paused by hand", 2)):
        for _ in range(number):
            jobs.add(status)
    counts = READER.look(jobs.wire(), REF).counts
    assert counts == JobCounts(
        waiting=3, active=2, prioritized=0, delayed=0, waiting_children=0, completed=4, failed=1, paused=0
    )


def test_several_values_may_mean_the_same(jobs: Jobs) -> None:
    ids = [jobs.add("importing"), jobs.add("parsing"), jobs.add("pending")]
    page = READER.page(jobs.wire(running=["importing", "parsing"]), REF, JobState.ACTIVE)
    assert [row.id for row in page.rows] == ids[:2]


def test_the_oldest_of_each_and_the_owners_are_known(jobs: Jobs) -> None:
    jobs.add("pending", created_at=-100)
    jobs.add("pending", created_at=-500)
    jobs.add("running", started_at=-70, worker="a", beat_at=-9)
    jobs.add("running", started_at=-60, worker="a", beat_at=-3)
    jobs.add("running", started_at=-50, worker="b")
    jobs.add("running", started_at=-40)
    sample = READER.look(jobs.wire(), REF)
    assert sample.oldest_waiting_at == pytest.approx(sample.now - 500_000, abs=60_000)
    assert sample.oldest_active_at == pytest.approx(sample.now - 70_000, abs=60_000)
    assert [(owner.name, owner.rows) for owner in sample.owners or ()] == [("a", 2), ("b", 1)]
    heard = [owner.heard_at for owner in sample.owners or ()]
    assert heard[1] is None
    assert heard[0] == pytest.approx(sample.now - 3_000, abs=60_000)


def test_a_table_without_owners_does_not_say_that_there_are_none(jobs: Jobs) -> None:
    assert READER.look(jobs.wire(owner=None), REF).owners is None


def test_a_row_is_a_job(jobs: Jobs) -> None:
    id = jobs.add(
        "failed", kind="übung", tries=2, most_tries=5, error="it broke\nat line 3", worker="a",
        created_at=-90, started_at=-60, finished_at=-30, payload='{"to": "ada"}',
    )  # fmt: skip
    row = READER.row(jobs.wire(), REF, id)
    assert (row.state, row.name, row.attempts, row.attempts_limit) == (JobState.FAILED, "übung", 2, 5)
    assert (row.reason, row.worker) == ("it broke", "a")
    now = READER.look(jobs.wire(), REF).now
    times = [row.added_at, row.processed_at, row.finished_at]
    assert times == [pytest.approx(now - ago, abs=60_000) for ago in (90_000, 60_000, 30_000)]


def test_a_job_has_its_data_its_error_and_every_column_that_is_configured(jobs: Jobs) -> None:
    id = jobs.add("failed", error="it broke\nat line 3", payload='{"to": "ada"}')
    job = READER.job(jobs.wire(), REF, id)
    assert (job.data.value, job.reason) == ('{"to": "ada"}', "it broke\nat line 3")
    fields = {name: text.value for name, text in job.fields}
    assert (fields["id"], fields["status"], fields["most_tries"]) == (id, "failed", "")
    small = READER.job(jobs.wire(), REF, id, limit=5)
    assert small.data.value == '{"to"'
    assert small.data.is_cut


def test_pages_go_forth_and_back_and_pass_nothing_over(jobs: Jobs) -> None:
    ids = [jobs.add("pending") for _ in range(7)]
    wire = jobs.wire()
    first = READER.page(wire, REF, JobState.WAITING, size=3)
    second = READER.page(wire, REF, JobState.WAITING, size=3, cursor=first.next)
    third = READER.page(wire, REF, JobState.WAITING, size=3, cursor=second.next)
    assert [[row.id for row in page.rows] for page in (first, second, third)] == [ids[:3], ids[3:6], ids[6:]]
    assert (first.previous, third.next, first.total) == ("", "", 7)
    back = READER.page(wire, REF, JobState.WAITING, size=3, cursor=third.previous)
    assert [row.id for row in back.rows] == ids[3:6]
    start = READER.page(wire, REF, JobState.WAITING, size=3, cursor=back.previous)
    assert [row.id for row in start.rows] == ids[:3]
    assert start.previous == ""


def test_finished_rows_come_newest_first(jobs: Jobs) -> None:
    ids = [jobs.add("done") for _ in range(3)]
    page = READER.page(jobs.wire(), REF, JobState.COMPLETED, size=2)
    assert [row.id for row in page.rows] == [ids[2], ids[1]]
    rest = READER.page(jobs.wire(), REF, JobState.COMPLETED, size=2, cursor=page.next)
    assert [row.id for row in rest.rows] == [ids[0]]
    oldest = READER.page(jobs.wire(), REF, JobState.COMPLETED, oldest_first=True)
    assert [row.id for row in oldest.rows] == ids


@pytest.mark.parametrize(
    "id", ["abc", "1e0", "1 ", " 1", "01", "1; DROP TABLE jobs", "9" * 30, str(2**64), "\x00", "\udcff", "", "-"]
)
def test_an_id_that_no_row_can_have_is_missing_and_no_error(jobs: Jobs, id: str) -> None:
    jobs.add("pending")
    with pytest.raises(JobMissing):
        READER.row(jobs.wire(), REF, id)
    assert READER.page(jobs.wire(), REF, JobState.WAITING, cursor=f">{id}").total == 1


def test_pages_of_ids_of_nineteen_digits_come_to_an_end(jobs: Jobs) -> None:
    ids = [str(2**63 - number) for number in (3, 2, 1)]
    for id in ids:
        jobs.add("failed", id=int(id))
    wire, cursor, found = jobs.wire(), "", list[str]()
    for _ in range(9):
        page = READER.page(wire, REF, JobState.FAILED, size=1, cursor=cursor, oldest_first=True)
        found += [row.id for row in page.rows]
        if not (cursor := page.next):
            break
    assert found == ids
    assert READER.row(wire, REF, ids[-1]).id == ids[-1]


def test_ids_of_text_are_taken_to_the_letter(jobs: Jobs) -> None:
    jobs.place.run("DROP TABLE jobs")
    jobs.create("CREATE TABLE jobs (id VARCHAR(60) PRIMARY KEY, status VARCHAR(20) NOT NULL)")
    for id in ("Ä/1 %s", "a'b\"c"):
        jobs.place.run("INSERT INTO jobs (id, status) VALUES (?, 'pending')", id)
    bare = dict.fromkeys(("name_column", "attempts", "max_attempts", "last_error", "queued_at", "started_at"))
    bare |= dict.fromkeys(("finished_at", "lease_until", "heartbeat", "owner", "data"))
    wire = jobs.wire(**bare)
    assert {row.id for row in READER.page(wire, REF, JobState.WAITING).rows} == {"Ä/1 %s", "a'b\"c"}
    assert READER.row(wire, REF, "a'b\"c").state is JobState.WAITING
    with pytest.raises(JobMissing):
        READER.row(wire, REF, "ä/1 %s")


def test_a_search_finds_by_name_and_by_data_and_says_how_far_it_came(jobs: Jobs) -> None:
    for at in range(6):
        jobs.add("pending", kind=f"Mail {at}", payload=f'{{"to": "user-{at}%"}}')
    wire = jobs.wire()
    found = READER.search(wire, REF, JobState.WAITING, name="mAIL 4")
    assert [row.name for row in found.rows] == ["Mail 4"]
    assert (found.examined, found.total, found.next) == (6, 6, "")
    assert [row.name for row in READER.search(wire, REF, JobState.WAITING, data="user-3%").rows] == ["Mail 3"]
    assert READER.search(wire, REF, JobState.WAITING, data="user_3").rows == ()
    first = READER.search(wire, REF, JobState.WAITING, name="mail", budget=4)
    rest = READER.search(wire, REF, JobState.WAITING, name="mail", budget=4, cursor=first.next)
    assert (len(first.rows), len(rest.rows), rest.next) == (4, 2, "")


def test_a_state_that_rows_do_not_have_is_empty(jobs: Jobs) -> None:
    assert READER.page(jobs.wire(), REF, JobState.DELAYED).total == 0
    assert READER.search(jobs.wire(), REF, JobState.DELAYED, name="x").rows == ()


def test_what_a_table_has_not_is_nothing_and_no_error(jobs: Jobs) -> None:
    wire, id = jobs.wire(), jobs.add("pending")
    assert READER.logs(wire, REF, id).lines == ()
    assert READER.family(wire, REF, id).children == ()
    assert READER.schedulers(wire, REF) == ()
    assert READER.metrics(wire, REF, 0, minutes=5) is None
    capable = READER.capabilities(FLAVOUR)
    assert (capable.families, capable.schedulers, capable.metrics) == (False, False, False)


def test_a_database_is_not_asked_in_commands(jobs: Jobs) -> None:
    with pytest.raises(Unsupported):
        jobs.wire().call([(b"PING",)])


def test_what_is_configured_wrong_is_said_and_names_the_column(jobs: Jobs) -> None:
    with pytest.raises(StatementRefused, match="no column heard_of"):
        READER.look(jobs.wire(heartbeat="heard_of"), REF)
    with pytest.raises(StatementRefused, match="no table jobz"):
        READER.look(jobs.wire(table="jobz", name="jobs"), REF)
    with pytest.raises(QueueMissing):
        READER.look(jobs.wire(), QueueRef("app", "other"))
    with pytest.raises(StatementRefused, match="holds numbers"):
        READER.look(jobs.wire(state="tries"), REF)


def test_states_of_a_fixed_width_are_known(jobs: Jobs) -> None:
    jobs.place.run("DROP TABLE jobs")
    jobs.create("CREATE TABLE jobs (id INTEGER PRIMARY KEY, kind VARCHAR(80), status CHAR(12) NOT NULL)")
    padded = "pending     " if jobs.kind == "sqlite" else "pending"
    jobs.place.run("INSERT INTO jobs (id, status) VALUES (1, ?)", padded)
    bare = dict.fromkeys(set(TABLE) - {"table", "state", "queued", "name_column"})
    row = READER.row(jobs.wire(**bare), REF, "1")
    assert row.state is JobState.WAITING


def test_states_may_be_numbers(jobs: Jobs) -> None:
    jobs.add("x", tries=0)
    jobs.add("x", tries=1)
    jobs.add("x", tries=7)
    wire = jobs.wire(state="tries", attempts=None, queued=0, running=[1, 2], done=3, failed=4)
    counts = READER.look(wire, REF).counts
    assert (counts.waiting, counts.active) == (1, 1)


# -- who has a running row


def test_a_lease_that_runs_is_a_lock_and_one_that_is_over_is_none(jobs: Jobs) -> None:
    held, graced, over = (jobs.add("running", lease_until=at, worker="a") for at in (60, -2, -120))
    rows = {row.id: row for row in READER.page(jobs.wire(lease_grace=60), REF, JobState.ACTIVE).rows}
    assert rows[held].lock is not None
    assert rows[held].lock.token == "a"
    assert rows[held].lock.ttl == pytest.approx(120_000, abs=60_000)
    assert rows[graced].lock is not None
    assert (rows[over].lock, rows[over].lock_known) == (None, True)
    assert rows[over].lease_until is not None


def test_a_heartbeat_counts_where_there_is_no_lease(jobs: Jobs) -> None:
    young, old = jobs.add("running", beat_at=-1), jobs.add("running", beat_at=-500)
    leased = jobs.add("running", beat_at=-500, lease_until=600)
    rows = {row.id: row for row in READER.page(jobs.wire(heartbeat_limit=120), REF, JobState.ACTIVE).rows}
    assert rows[young].lock is not None
    assert (rows[old].lock, rows[old].lock_known) == (None, True)
    assert rows[leased].lock is not None


def test_of_age_alone_only_the_end_is_known(jobs: Jobs) -> None:
    young, old, ageless = jobs.add("running", started_at=-5), jobs.add("running", started_at=-900), jobs.add("running")
    wire = jobs.wire(age_limit=600, lease_until=None, heartbeat=None)
    rows = {row.id: row for row in READER.page(wire, REF, JobState.ACTIVE).rows}
    known = {id: (rows[id].lock, rows[id].lock_known) for id in (young, old, ageless)}
    assert known == {young: (None, False), old: (None, True), ageless: (None, False)}
