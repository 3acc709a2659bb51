"""The ledger's one script on a real Valkey and a real Redis: who may do what with a key, and what is left of it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from recovery.domain.idempotency import ClaimStep, ClaimStepResult, IdempotencyLimits, IdempotencyState
from recovery.errors import Garbled
from recovery.idempotency import script_call
from recovery.stores.state import state_keys
from tests.support.idempotency import DAY, LONG, Desk
from tests.support.stores.stores import Store
from tests.support.waiting import until

KEYS = ("order:17", "", " ", "a\tb\nc\0", "ключ/ü", "x" * 512, "\udc80\udcff")
INDEXES = (state_keys.IDEMPOTENCY_ENDS, state_keys.IDEMPOTENCY_HELD, state_keys.IDEMPOTENCY_NEWEST)


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk.of(store)


def left(store: Store) -> dict[bytes, int]:
    """How many entries there are of each kind; of a ledger in order the first three are alike."""
    pipeline = store.client.pipeline()
    pipeline.hlen(state_keys.IDEMPOTENCY_RECORDS)
    pipeline.hlen(state_keys.IDEMPOTENCY_RESULTS)
    for index in INDEXES:
        pipeline.zcard(index)
    names = (state_keys.IDEMPOTENCY_RECORDS, state_keys.IDEMPOTENCY_RESULTS, *INDEXES)
    return dict(zip(names, pipeline.execute(), strict=True))


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_one_gets_it_and_the_others_hear_who(desk: Desk, key: str) -> None:
    won = desk.claim(key, owner="w 1", by="billing")
    refused = desk.claim(key, owner="w 2")
    assert (won.word, refused.word) == (ClaimStepResult.WON, ClaimStepResult.CLAIMED)
    assert won.claim
    assert refused.claim == won.claim
    assert (won.claim.key, won.claim.owner, won.claim.by) == (key, "w 1", "billing")
    assert won.claim.until - won.claim.since == LONG
    assert abs(won.now - time.time() * 1000) < 60_000
    assert desk.show(key).claim == won.claim


def test_a_completed_key_answers_with_its_result_and_the_first_stands(desk: Desk) -> None:
    token = desk.token("k")
    assert desk.complete("k", token, b'{"n":1}').word is ClaimStepResult.DONE
    again = desk.complete("k", token, b'{"n":2}')
    assert (again.word, again.result) == (ClaimStepResult.AGAIN, b'{"n":1}')
    refused = desk.claim("k")
    assert (refused.word, refused.result, refused.state) == (
        ClaimStepResult.COMPLETED,
        b'{"n":1}',
        IdempotencyState.COMPLETED,
    )
    for step in (ClaimStep.RENEW, ClaimStep.RELEASE):
        assert desk.step(step, "k", token).word is ClaimStepResult.COMPLETED


def test_whoever_was_replaced_is_refused_by_the_token_and_changes_nothing(desk: Desk) -> None:
    dead = desk.expired("k")
    won = desk.claim("k", owner="heir")
    assert won.word is ClaimStepResult.WON
    assert won.claim
    assert won.claim.token > dead
    for step in (ClaimStep.RENEW, ClaimStep.COMPLETE, ClaimStep.RELEASE, ClaimStep.FORGET):
        refused = desk.step(step, "k", dead)
        assert (refused.word, refused.claim) == (ClaimStepResult.LATE, won.claim)
    assert desk.complete("k", won.claim.token, b"1").word is ClaimStepResult.DONE
    assert desk.complete("k", dead, b"2").word is ClaimStepResult.LATE
    assert desk.show("k").result == b"1"
    assert desk.store.hget(state_keys.IDEMPOTENCY_COUNTS, "replaced") == b"1"


def test_a_late_completion_is_taken_while_nobody_else_claimed_it(desk: Desk) -> None:
    token = desk.expired("k")
    assert desk.show("k").state is IdempotencyState.EXPIRED
    assert desk.complete("k", token, b"1").word is ClaimStepResult.DONE
    assert desk.claim("k").word is ClaimStepResult.COMPLETED


def test_a_renewal_moves_the_end_and_only_that(desk: Desk) -> None:
    won = desk.claim("k", 5_000).claim
    renewed = desk.step(ClaimStep.RENEW, "k", won.token, LONG).claim if won else None
    assert won
    assert renewed
    assert renewed.until >= won.since + LONG
    assert (renewed.token, renewed.since, renewed.owner) == (won.token, won.since, won.owner)


def test_a_released_key_is_free_and_its_old_token_is_worth_nothing(desk: Desk, store: Store) -> None:
    token = desk.token("k")
    assert desk.step(ClaimStep.RELEASE, "k", token).word is ClaimStepResult.RELEASED
    assert set(left(store).values()) == {0}
    assert desk.complete("k", token).word is ClaimStepResult.FREE
    assert desk.token("k") > token


def test_only_what_is_completed_can_be_forgotten(desk: Desk, store: Store) -> None:
    token = desk.token("k")
    assert desk.step(ClaimStep.FORGET, "k", token).word is ClaimStepResult.CLAIMED
    desk.complete("k", token, b"12345")
    assert desk.step(ClaimStep.FORGET, "k", token).word is ClaimStepResult.FORGOTTEN
    assert set(left(store).values()) == {0}
    assert store.client.hget(state_keys.IDEMPOTENCY_COUNTS, "bytes") == b"0"


def test_tokens_rise_over_all_keys_and_after_everything_was_lost(desk: Desk, store: Store) -> None:
    tokens = [desk.token(f"k{number % 3}-{number}") for number in range(20)]
    store.flush()
    tokens += [desk.token("k"), desk.token("l")]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 2**53


def test_a_token_rises_also_while_the_clock_stands_behind_the_last_one(desk: Desk, store: Store) -> None:
    ahead = 2**52
    store.client.hset(state_keys.IDEMPOTENCY_COUNTS, "token", ahead)
    assert [desk.token("a"), desk.token("b")] == [ahead + 1, ahead + 2]


@pytest.mark.parametrize("ending", ["completed", "expired"])
def test_what_has_ended_is_free_before_it_is_dropped_and_then_leaves_nothing(store: Store, ending: str) -> None:
    desk = Desk.of(store, linger=1)
    if ending == "completed":
        desk.done("k", b"12", keep=1)
    else:
        desk.claim("k", 1)
    until(lambda: desk.show("k").state is IdempotencyState.FREE, what="its time is over")
    assert left(store)[state_keys.IDEMPOTENCY_RECORDS] == 1, "to look drops nothing"
    assert desk.ledger.prune() == 1
    assert desk.ledger.prune() == 0
    assert set(left(store).values()) == {0}
    assert store.client.hget(state_keys.IDEMPOTENCY_COUNTS, "bytes") == b"0"


def test_a_key_whose_time_is_over_is_claimed_anew_with_nothing_of_its_past(desk: Desk, store: Store) -> None:
    desk.done("k", b"12", keep=1)
    until(lambda: desk.show("k").state is IdempotencyState.FREE, what="its time is over")
    assert desk.claim("k").word is ClaimStepResult.WON
    assert desk.show("k").result is None
    assert left(store) == {
        state_keys.IDEMPOTENCY_RECORDS: 1,
        state_keys.IDEMPOTENCY_RESULTS: 0,
        **dict.fromkeys(INDEXES, 1),
    }


def test_each_step_drops_more_than_it_can_add(store: Store) -> None:
    desk = Desk.of(store, linger=1)
    for number in range(40):
        desk.claim(f"dead-{number}", 100)
    until(lambda: desk.show("dead-39").state is IdempotencyState.FREE, what="the time of all is over")
    for number in range(5):
        desk.claim(f"new-{number}")
    assert left(store)[state_keys.IDEMPOTENCY_RECORDS] == 5, "ten for each one that came"


def test_a_full_ledger_refuses_new_keys_and_goes_on_with_known_ones(store: Store) -> None:
    desk = Desk.of(store, keys=3)
    tokens = [desk.token(f"k{number}") for number in range(3)]
    assert desk.claim("new").word is ClaimStepResult.FULL
    assert desk.show("new").state is IdempotencyState.FREE
    assert desk.complete("k0", tokens[0]).word is ClaimStepResult.DONE
    desk.step(ClaimStep.RELEASE, "k1", tokens[1])
    assert desk.claim("new").word is ClaimStepResult.WON
    desk.expired("new2") if desk.step(ClaimStep.RELEASE, "k2", tokens[2]).word is ClaimStepResult.RELEASED else None
    assert desk.claim("new2", owner="heir").word is ClaimStepResult.WON, "a expired one is no new key"


def test_results_beyond_the_room_are_dropped_and_the_work_counts_as_done(store: Store) -> None:
    desk = Desk.of(store, bytes=10)
    desk.done("a", b"123456")
    token = desk.token("b")
    done = desk.complete("b", token, b"12345")
    assert done.word is ClaimStepResult.DONE
    assert done.claim
    assert (done.claim.dropped, done.result) == (5, None)
    assert desk.claim("b").word is ClaimStepResult.COMPLETED
    assert store.client.hget(state_keys.IDEMPOTENCY_COUNTS, "bytes") == b"6"


def test_of_many_that_claim_at_once_one_gets_it(store: Store) -> None:
    start = threading.Barrier(32)

    def one(number: int) -> ClaimStepResult:
        client = store.connect()
        try:
            mine = Desk(client, IdempotencyLimits())
            start.wait()
            return mine.claim("k", owner=str(number)).word
        finally:
            client.close()

    with ThreadPoolExecutor(32) as threads:
        words = list(threads.map(one, range(32)))
    assert sorted(words) == sorted([ClaimStepResult.WON, *[ClaimStepResult.CLAIMED] * 31])


def test_a_script_that_the_server_forgot_is_sent_again(desk: Desk, store: Store) -> None:
    token = desk.token("k")
    store.do("SCRIPT", "FLUSH")
    assert desk.complete("k", token).word is ClaimStepResult.DONE


def test_everything_is_counted(desk: Desk, store: Store) -> None:
    token = desk.token("a")
    desk.claim("a")
    desk.step(ClaimStep.RENEW, "a", token)
    desk.complete("a", 1)
    desk.complete("a", token, b"12")
    desk.step(ClaimStep.RELEASE, "b", desk.token("b"))
    counted = {name.decode(): int(value) for name, value in store.client.hgetall(state_keys.IDEMPOTENCY_COUNTS).items()}
    counted.pop("token")
    assert counted == {"won": 2, "refused": 1, "renewed": 1, "late": 1, "completed": 1, "released": 1, "bytes": 2}


def test_a_record_of_another_hand_is_an_error_and_no_claim(desk: Desk, store: Store) -> None:
    store.client.hset(state_keys.IDEMPOTENCY_RECORDS, "k", "what is this")
    with pytest.raises(Exception, match=r"[Ll]ua|script|none of the ledger") as raised:
        desk.claim("k")
    assert not isinstance(raised.value, redis.RedisError), "it comes out as a StoreError"
    store.client.hset(state_keys.IDEMPOTENCY_RECORDS, "k", f"strange\t1\t1\t{2**52}\t{2**52}\t0\ta\tb")
    with pytest.raises(Garbled):
        desk.show("k")


def test_it_touches_its_six_keys_alone_and_they_do_not_end_by_themselves(desk: Desk, store: Store) -> None:
    desk.done("a", b"1")
    desk.token("b")
    found = set(store.client.keys("*"))
    assert found == set(script_call.KEYS)
    assert {store.client.ttl(key) for key in found} == {-1}
    assert desk.show("a").claim
    assert desk.show("a").claim.ends - desk.show("a").claim.until == DAY  # type: ignore[union-attr]


def test_one_token_leaves_room_for_the_others(store: Store) -> None:
    """Beyond three quarters of the keys only those claim who have less than a quarter."""
    desk = Desk.of(store, keys=40)
    words = [desk.claim(f"a{number}", by="greedy").word for number in range(35)]
    assert words == [ClaimStepResult.WON] * 30 + [ClaimStepResult.FULL] * 5
    assert [desk.claim(f"b{number}", by="other").word for number in range(11)] == [ClaimStepResult.WON] * 10 + [
        ClaimStepResult.FULL
    ]
    assert store.client.hgetall(state_keys.IDEMPOTENCY_SHARES) == {b"greedy": b"30", b"other": b"10"}


def test_a_share_is_given_back_with_the_key_and_goes_to_whoever_claims_it_anew(store: Store) -> None:
    desk = Desk.of(store, keys=40)
    token = desk.token("k")
    desk.complete("k", token)
    assert store.client.hgetall(state_keys.IDEMPOTENCY_SHARES) == {b"ci": b"1"}
    desk.step(ClaimStep.FORGET, "k", token)
    assert store.client.hgetall(state_keys.IDEMPOTENCY_SHARES) == {}
    desk.claim("l", 1)
    desk.passes("l")
    assert desk.claim("l", by="bob").word is ClaimStepResult.WON
    assert store.client.hgetall(state_keys.IDEMPOTENCY_SHARES) == {b"bob": b"1"}


def test_what_an_older_version_wrote_makes_no_share_negative(store: Store) -> None:
    desk = Desk.of(store)
    token = desk.token("k")
    store.client.delete(state_keys.IDEMPOTENCY_SHARES)
    desk.step(ClaimStep.RELEASE, "k", token)
    assert store.client.hgetall(state_keys.IDEMPOTENCY_SHARES) == {}
