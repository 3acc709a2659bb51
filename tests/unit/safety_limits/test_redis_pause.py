"""The Redis pause: when it holds, why, and how it lets go."""

from __future__ import annotations

import json

import pytest

from recovery.domain.safety_limits.redis_pause import PATIENCE, RedisObservation, RedisPause, RedisPauseTrigger
from recovery.domain.time_units import MINUTE, SECOND

NOW = 1_800_000_000_000
CALM = RedisObservation(NOW, active=1_000, lost=0, run_id="a", role="master", lock_length=10 * SECOND)
KNOWN = RedisPause().seen(CALM)


def look(at: int = NOW + 5 * SECOND, **values: object) -> RedisObservation:
    known = {"active": 1_000, "lost": 0, "run_id": "a", "role": "master", "lock_length": 10 * SECOND}
    return RedisObservation(at, **(known | values))  # type: ignore[arg-type] - values by name


def why(pause: RedisPause, now: int) -> list[RedisPauseTrigger]:
    return [hold.why for hold in pause.holding(now)]


def test_a_calm_look_engages_nothing() -> None:
    assert KNOWN.holding(NOW) == ()
    assert KNOWN.words(NOW) == ("Not active.",)


@pytest.mark.parametrize(
    ("active", "lost", "holds"),
    [(1_000, 251, True), (1_000, 250, False), (20, 20, True), (19, 19, False), (80, 20, False), (79, 20, True)],
)
def test_more_than_a_quarter_and_at_least_twenty_lost_locks_engage_it(active: int, lost: int, holds: bool) -> None:
    seen = look(active=active, lost=lost)
    assert why(KNOWN.seen(seen), seen.at) == ([RedisPauseTrigger.LOCKS] if holds else [])


def test_jobs_whose_worker_is_gone_are_no_sign_of_a_bad_store() -> None:
    died = look(active=100, lost=60, gone=60)
    assert why(KNOWN.seen(died), died.at) == []
    both = look(active=100, lost=60, gone=30)
    assert why(KNOWN.seen(both), both.at) == [RedisPauseTrigger.LOCKS]


def test_what_is_not_known_engages_nothing() -> None:
    unknown = look(active=None, lost=None, run_id="", role="")
    assert why(KNOWN.seen(unknown), unknown.at) == []


def test_a_change_is_seen_over_a_look_that_knew_nothing() -> None:
    pause = KNOWN.seen(look(run_id="")).seen(look(NOW + 9 * SECOND, run_id="b"))
    assert why(pause, NOW + 9 * SECOND) == [RedisPauseTrigger.RUN]


@pytest.mark.parametrize(
    ("change", "reason"), [({"run_id": "b"}, RedisPauseTrigger.RUN), ({"role": "slave"}, RedisPauseTrigger.ROLE)]
)
def test_a_changed_run_id_or_role_holds_for_two_lock_lengths(change: dict[str, str], reason: RedisPauseTrigger) -> None:
    seen = look(**change)
    pause = KNOWN.seen(seen)
    assert why(pause, seen.at + 20 * SECOND - 1) == [reason]
    assert why(pause, seen.at + 20 * SECOND) == []


def test_a_longer_lock_that_is_learned_meanwhile_makes_it_hold_longer() -> None:
    pause = KNOWN.seen(look(run_id="b")).seen(look(NOW + 9 * SECOND, run_id="b", lock_length=30 * SECOND))
    assert why(pause, NOW + 5 * SECOND + 59 * SECOND) == [RedisPauseTrigger.RUN]
    assert why(pause, NOW + 5 * SECOND + 60 * SECOND) == []


def test_a_store_that_has_just_started_holds_even_where_nothing_is_remembered() -> None:
    fresh = RedisPause().seen(look(uptime=4 * SECOND))
    assert why(fresh, NOW + 5 * SECOND) == [RedisPauseTrigger.STARTED]
    assert why(fresh, NOW + 21 * SECOND) == []
    assert why(RedisPause().seen(look(uptime=20 * SECOND)), NOW + 5 * SECOND) == []


def test_lost_locks_ask_a_person_and_let_go_after_a_while() -> None:
    pause = KNOWN.seen(look(lost=900))
    assert why(pause, NOW + 5 * SECOND + PATIENCE - 1) == [RedisPauseTrigger.LOCKS]
    assert why(pause, NOW + 5 * SECOND + PATIENCE) == []


def test_without_patience_lost_locks_wait_for_a_person_however_long() -> None:
    pause = KNOWN.seen(look(lost=900), patience=None)
    assert why(pause, NOW + 1_000 * PATIENCE) == [RedisPauseTrigger.LOCKS]
    assert why(pause.seen(look(NOW + MINUTE, lost=900)), NOW + 1_000 * PATIENCE) == [RedisPauseTrigger.LOCKS]
    assert why(pause.released(NOW + MINUTE, "ann"), NOW + MINUTE) == []


def test_the_same_again_prolongs_it_and_keeps_since_when() -> None:
    pause = KNOWN.seen(look(lost=900)).seen(look(NOW + MINUTE, lost=400))
    (hold,) = pause.holding(NOW + MINUTE)
    assert (hold.since, hold.until) == (NOW + 5 * SECOND, NOW + MINUTE + PATIENCE)


def test_a_person_releases_what_is_known_and_not_what_comes_later() -> None:
    pause = KNOWN.seen(look(lost=900, run_id="b", uptime=SECOND)).released(NOW + 6 * SECOND, "ann")
    same = pause.seen(look(NOW + 7 * SECOND, run_id="b", uptime=3 * SECOND))
    assert why(same, NOW + 7 * SECOND) == []
    assert same.words(NOW + 8 * SECOND) == ("Not active. ann released it 2 s ago.",)
    again = same.seen(look(NOW + 9 * SECOND, run_id="c"))
    assert why(again, NOW + 9 * SECOND) == [RedisPauseTrigger.RUN]


def test_it_says_why_and_until_when() -> None:
    pause = KNOWN.seen(look(lost=900, run_id="b", role="slave", uptime=2 * SECOND))
    assert pause.words(NOW + 5 * SECOND) == (
        (
            "900 of 1,000 active jobs lost their locks between two checks; their workers may still be running them. "
            "Auto-recovery stays paused for 15 min more or until a person resumes it."
        ),
        "The store restarted or was replaced: its run id changed. Auto-recovery stays paused for 20 s more.",
        "The store's role changed from master to slave. Auto-recovery stays paused for 20 s more.",
        "The store was started 2 s ago. Auto-recovery stays paused for 18 s more.",
    )
    asked = KNOWN.seen(look(lost=900), patience=None)
    assert asked.words(NOW + 5 * SECOND)[0].endswith(
        "Auto-recovery has been paused for 0 s, until a person resumes it."
    )


def test_it_survives_the_store_and_junk_is_refused() -> None:
    pause = KNOWN.seen(look(lost=900, run_id="b"), patience=None).released(NOW, "ann").seen(look(lost=900))
    assert RedisPause.from_json(json.loads(json.dumps(pause.as_json()))) == pause
    for key, junk in {"holds": [["odd", 1, 1, ""]], "run_id": None, "lock_length": -1}.items():
        with pytest.raises(ValueError, match=r"not |negative"):
            RedisPause.from_json(pause.as_json() | {key: junk})


def test_a_start_is_no_reason_where_every_job_was_taken_after_it() -> None:
    assert why(RedisPause().seen(look(uptime=4 * SECOND, older=1)), NOW + 5 * SECOND) == [RedisPauseTrigger.STARTED]
    fresh = RedisPause().seen(look(uptime=4 * SECOND, older=0))
    assert why(fresh, NOW + 5 * SECOND) == []
    only_the_store = look(NOW + 6 * SECOND, active=None, lost=None, uptime=5 * SECOND)
    assert why(fresh.seen(only_the_store), NOW + 6 * SECOND) == []
    unseen = RedisPause().seen(only_the_store)
    assert why(unseen, NOW + 6 * SECOND) == [RedisPauseTrigger.STARTED]
    assert why(unseen.seen(look(NOW + 7 * SECOND, uptime=6 * SECOND, older=0)), NOW + 7 * SECOND) == []


def test_after_a_restart_all_that_have_no_lock_count_and_connections_say_nothing() -> None:
    """All of them are new then, so that each holder seems to be gone; and nobody may have looked in between."""
    unwatched = look(lost=0, bare=900, run_id="b")
    assert why(KNOWN.seen(unwatched), unwatched.at) == [RedisPauseTrigger.LOCKS, RedisPauseTrigger.RUN]
    watched = look(lost=900, gone=900, run_id="b")
    assert why(KNOWN.seen(watched), watched.at) == [RedisPauseTrigger.LOCKS, RedisPauseTrigger.RUN]
    same = look(lost=900, gone=900, bare=900)
    assert why(KNOWN.seen(same), same.at) == []


def test_a_restart_that_was_noticed_between_two_looks_is_new_to_the_next_look_all_the_same() -> None:
    noticed = KNOWN.seen(look(active=None, lost=None, run_id="b"))
    assert why(noticed, NOW + 5 * SECOND) == [RedisPauseTrigger.RUN]
    later = noticed.seen(look(NOW + 6 * SECOND, lost=900, gone=900, run_id="b"))
    assert RedisPauseTrigger.LOCKS in why(later, NOW + 6 * SECOND)
    calm = later.seen(look(NOW + 7 * SECOND, run_id="b")).released(NOW + 7 * SECOND, "ann")
    assert why(calm.seen(look(NOW + 8 * SECOND, bare=900, run_id="b")), NOW + 8 * SECOND) == []


@pytest.mark.parametrize(("silent", "holds"), [(4_999, False), (5_000, True)])
def test_a_silence_in_which_locks_may_have_run_out_holds_for_two_lock_lengths(silent: int, holds: bool) -> None:
    pause = KNOWN.seen(look(silent=silent))
    assert why(pause, NOW + 25 * SECOND - 1) == ([RedisPauseTrigger.SILENT] if holds else [])
    assert why(pause, NOW + 25 * SECOND) == []


def test_what_is_seen_late_does_not_engage_what_was_released_meanwhile() -> None:
    pause = KNOWN.released(NOW + 6 * SECOND, "ann").seen(look(lost=900))
    assert why(pause, NOW + 6 * SECOND) == []


def test_one_that_cannot_be_read_holds_until_somebody_or_its_patience_ends() -> None:
    pause = RedisPause.doubtful(NOW)
    assert pause.words(NOW) == (
        (
            "The recorded state of the store cannot be read. "
            "Auto-recovery stays paused for 15 min more or until a person resumes it."
        ),
    )
    assert why(pause.seen(look()), NOW + PATIENCE - 1) == [RedisPauseTrigger.UNREAD]
    assert why(pause, NOW + PATIENCE) == []
    assert why(pause.released(NOW, "ann"), NOW) == []
