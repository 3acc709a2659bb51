"""How n8n's registry tells which process has left, and how it ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.n8n.instances import (
    EMPTY,
    InstanceEnding,
    InstanceHistory,
    InstanceRegistry,
    N8nInstance,
    add_reading,
    concerns,
    summary,
)
from recovery.domain.stuck.context import WorkerChange
from recovery.n8n.instance_store import decode, encode
from recovery.scanners.orphan_watch.n8n_instances import explain_departures

NOW = 1_795_000_000_000
SECOND = 1_000
DAY = 86_400_000


def worker(key: str, *, beat: int = 0, began: int = 3_600, pool: str = "") -> N8nInstance:
    """Whose last heartbeat was so many seconds before NOW, and which began so many before it."""
    return N8nInstance(
        key, "worker", "unset", f"worker-{key}", "2.41.1", NOW - began * SECOND, NOW - beat * SECOND, pool=pool
    )


def history(*instances: N8nInstance, at: int = NOW) -> InstanceHistory:
    return add_reading(EMPTY, InstanceRegistry(instances), at)


def endings(found: InstanceHistory) -> dict[str, InstanceEnding]:
    return {one.instance.key: one.ending for one in found.gone}


@pytest.mark.parametrize(
    ("beat", "later", "expired", "ending"),
    [
        (10, 5, False, InstanceEnding.STOPPED),  # its key had 50 s left: it was deleted
        (10, 5, True, InstanceEnding.DIED),  # the set still has it
        (50, 10, False, InstanceEnding.DIED),  # two heartbeats were missed before the key ended
        (29, 31, False, InstanceEnding.UNKNOWN),  # it may have been either
        (10, 300, False, InstanceEnding.UNKNOWN),  # nobody looked for five minutes
    ],
)
def test_how_a_process_ended_is_told_by_what_was_left_of_its_key(
    beat: int, later: int, expired: bool, ending: InstanceEnding
) -> None:
    before = history(worker("a", beat=beat), worker("b"))
    now = NOW + later * SECOND
    found = InstanceRegistry((replace(worker("b"), seen_at=now),), frozenset({"a"} if expired else ()))
    after = add_reading(before, found, now)
    assert endings(after) == {"a": ending}
    assert set(after.here) == {"b"}


def test_what_ended_is_kept_for_an_hour_and_a_registry_that_cannot_be_read_ends_nobody() -> None:
    gone = add_reading(history(worker("a")), InstanceRegistry(), NOW + SECOND)
    assert endings(gone) == {"a": InstanceEnding.STOPPED}
    silent = add_reading(gone, InstanceRegistry(fault="NOPERM"), NOW + 2 * SECOND)
    assert (endings(silent), silent.fault) == ({"a": InstanceEnding.STOPPED}, "NOPERM")
    assert endings(add_reading(gone, InstanceRegistry(), NOW + DAY)) == {}
    back = add_reading(gone, InstanceRegistry((worker("a"),)), NOW + 2 * SECOND)
    assert (endings(back), set(back.here)) == ({}, {"a"})


def left(*, ago: int = 20, since: int | None = None) -> WorkerChange:
    return WorkerChange("", NOW - ago * SECOND, since=None if since is None else NOW - since * SECOND)


def told(
    changes: tuple[WorkerChange, ...], known: InstanceHistory, *here: int, queue: str = "jobs"
) -> list[tuple[str, str]]:
    """`here`: since how many seconds the other workers have been connected."""
    found = explain_departures(changes, known, queue, [NOW - since * SECOND for since in here], NOW)
    return [(one.instance, one.ending) for one in found]


def test_the_process_that_registered_right_before_the_connection_was_it() -> None:
    """At once: both are due for a heartbeat, so silence tells nothing yet."""
    known = history(worker("a", beat=25, began=905), worker("b", beat=25, began=3_605))
    assert told((left(since=900),), known, 3_600) == [("worker-a", "")]


def test_where_two_began_together_a_heartbeat_tells_who_lives() -> None:
    two = (worker("a", beat=25, began=905), worker("b", beat=25, began=904))
    assert told((left(since=900),), history(*two), 901) == [("", "")]
    assert told((left(since=900),), history(two[0], replace(two[1], seen_at=NOW)), 901) == [("worker-a", "")]


def test_a_process_that_is_silent_beyond_its_heartbeat_has_died() -> None:
    known = history(worker("a", beat=36), worker("b", beat=5))
    assert told((left(),), known) == [("worker-a", "died")]


def test_a_process_that_took_itself_out_was_stopped() -> None:
    known = add_reading(
        history(worker("a", beat=30), worker("b", beat=25)), InstanceRegistry((worker("b"),)), NOW - 21_000
    )
    assert told((left(),), known) == [("worker-a", "stopped")]


def test_two_that_left_at_once_are_named_only_as_far_as_that_is_sure() -> None:
    known = history(worker("a", beat=40, began=905), worker("b", beat=40, began=3_605), worker("c"))
    both = (left(since=900), left(since=3_600))
    assert told(both, known, 1_800) == [("worker-a", "died"), ("worker-b", "died")]
    assert told((left(), left()), known) == [("", ""), ("", "")]


def test_who_was_named_before_it_was_dead_is_told_to_have_died_later() -> None:
    named = replace(left(), instance="worker-a")
    known = history(worker("a", beat=40), worker("b", beat=40))
    assert told((named, left()), known) == [("worker-a", "died"), ("worker-b", "died")]


def test_who_was_named_and_is_heard_of_after_all_is_named_no_more() -> None:
    named = replace(left(), instance="worker-b")
    assert told((named,), history(worker("b", beat=1))) == [("", "")]


def test_workers_of_other_pools_mains_and_later_ones_are_not_taken_for_it() -> None:
    main = replace(worker("m", beat=50), type="main")
    known = history(main, worker("g", beat=50, pool="gpu"), worker("n", beat=15, began=15))
    assert told((left(),), known) == [("", "")]
    assert told((left(),), known, queue="jobs-gpu") == [("worker-g", "died")]


def test_what_nobody_explained_for_ten_minutes_and_what_is_explained_stays() -> None:
    known = history(worker("a", beat=50))
    old, done = left(ago=601), replace(left(), instance="worker-z", ending="stopped")
    assert told((old,), known) == [("", "")]
    assert told((done,), known) == [("worker-z", "stopped")]
    assert told((left(),), replace(known, fault="NOPERM")) == [("", "")]


def main(key: str = "m", *, beat: int = 0, role: str = "leader", version: str = "2.41.1") -> N8nInstance:
    return replace(worker(key, beat=beat), type="main", role=role, host=f"main-{key}", version=version)


@pytest.mark.parametrize(
    ("instances", "told"),
    [
        ([main(), worker("a")], []),
        ([], []),
        ([worker("a")], ["No main process is alive: nothing is triggered, and what waits is not resumed."]),
        (
            [main(beat=50), worker("a")],
            [
                "The main main-m has sent no heartbeat for 50 s.",
                "No main process is alive: nothing is triggered, and what waits is not resumed.",
            ],
        ),
        (
            [main(role="follower")],
            ["None of the main processes leads: nothing is triggered by time, and what waits is not resumed."],
        ),
        ([main(version="2.40.7"), worker("a")], ["Its processes run several versions of n8n: 2.40.7, 2.41.1."]),
    ],
)
def test_what_is_amiss_among_the_processes_is_said(instances: list[N8nInstance], told: list[str]) -> None:
    assert list(concerns(history(*instances), NOW)) == told


def test_what_cannot_be_known_of_the_processes_is_said_and_nothing_else() -> None:
    assert list(concerns(replace(history(worker("a")), fault="NOPERM"), NOW)) == ["NOPERM."]
    (unknown, _) = concerns(replace(history(worker("a")), unknown=2), NOW)
    assert unknown == "2 in n8n's registry are of a form that is not known here, and are not listed."


def test_a_thousand_silent_processes_and_versions_are_told_in_a_few_lines() -> None:
    many = [replace(worker(str(number), beat=50), version=f"2.{number:03}.0") for number in range(1_000)]
    told = list(concerns(history(*many), NOW))
    assert len(told) == 7
    assert told[5] == "995 more processes have sent no heartbeat."
    assert told[6].endswith("2.004.0 and 995 more.")
    assert summary(many).endswith("and 995 more: 1,000 workers")


def test_the_version_of_the_mains_counts_where_they_agree() -> None:
    assert history(main(), replace(worker("a"), version="2.40.7")).main_version == "2.41.1"
    assert history(main(), main("n", version="2.40.7")).main_version == ""
    assert history(worker("a")).main_version == ""


def test_mains_are_listed_first_and_the_leader_before_all() -> None:
    known = history(worker("a"), main("z", role="follower"), main("y"))
    assert [one.key for one in known.instances] == ["y", "z", "a"]


def test_histories_come_back_as_they_were() -> None:
    known = add_reading(history(main(), worker("a")), InstanceRegistry((main(),)), NOW + SECOND)
    assert decode(encode({"n8n": known})) == {"n8n": known}
    assert decode(b"x") == {}
