"""The ledger against a model, with claimers that die and wake up: one holder at any time, and tokens that rise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from recovery.domain.idempotency import ClaimStep, ClaimStepResult, IdempotencyLimits, IdempotencyState
from recovery.stores.state import state_keys
from tests.support.idempotency import LONG, Desk
from tests.support.stores.stores import Store

KEYS = st.sampled_from(("a", "b", "ü/\t"))


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with Store() as server:
        yield server


@dataclass(slots=True)
class Known:
    """What has to be true of a key that is not free."""

    token: int
    state: IdempotencyState
    result: bytes | None = None


class Ledgers(RuleBasedStateMachine):
    server: Store

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(self.server.client, IdempotencyLimits())
        self.known: dict[str, Known] = {}
        self.given: dict[str, list[int]] = {}  # every token of a key, of which the last one alone may count
        self.last = 0

    @initialize()
    def empty(self) -> None:
        self.server.flush()

    @rule(key=KEYS, dies=st.booleans())
    def claim(self, key: str, dies: bool) -> None:
        before = self.known.get(key)
        answer = self.desk.claim(key, 1 if dies else LONG)
        if before and before.state is not IdempotencyState.EXPIRED:
            assert answer.word.value == before.state.value
            assert answer.claim
            assert (answer.claim.token, answer.result) == (before.token, before.result)
            return
        assert answer.word is ClaimStepResult.WON
        assert answer.claim
        assert answer.claim.token > self.last, "tokens rise over all keys"
        self.last = answer.claim.token
        self.given.setdefault(key, []).append(self.last)
        self.known[key] = Known(self.last, IdempotencyState.CLAIMED)
        if dies:
            self.desk.passes(key)
            self.known[key].state = IdempotencyState.EXPIRED

    @rule(
        key=KEYS, chosen=st.randoms(use_true_random=False), step=st.sampled_from((ClaimStep.RENEW, ClaimStep.RELEASE))
    )
    def renew_or_release(self, key: str, chosen: object, step: ClaimStep) -> None:
        token = self._any(key, chosen)
        word, known = self.desk.step(step, key, token).word, self.known.get(key)
        if refused := self._refused(key, token):
            assert word is refused
        elif known and known.state is IdempotencyState.COMPLETED:
            assert word is ClaimStepResult.COMPLETED
        elif step is ClaimStep.RENEW and known:
            assert word is ClaimStepResult.RENEWED
            known.state = IdempotencyState.CLAIMED
        else:
            assert word is ClaimStepResult.RELEASED
            del self.known[key]

    @rule(key=KEYS, chosen=st.randoms(use_true_random=False), result=st.sampled_from((b"", b"1", b'{"a":2}')))
    def complete(self, key: str, chosen: object, result: bytes) -> None:
        token = self._any(key, chosen)
        answer, known = self.desk.complete(key, token, result), self.known.get(key)
        if refused := self._refused(key, token):
            assert answer.word is refused
            return
        assert known
        if known.state is IdempotencyState.COMPLETED:
            assert answer.word is ClaimStepResult.AGAIN
        else:
            assert answer.word is ClaimStepResult.DONE
            known.state, known.result = IdempotencyState.COMPLETED, result or None
        assert answer.result == known.result

    @rule(key=KEYS, chosen=st.randoms(use_true_random=False))
    def forget(self, key: str, chosen: object) -> None:
        token = self._any(key, chosen)
        word, known = self.desk.step(ClaimStep.FORGET, key, token).word, self.known.get(key)
        if refused := self._refused(key, token):
            assert word is refused
        elif known and known.state is IdempotencyState.COMPLETED:
            assert word is ClaimStepResult.FORGOTTEN
            del self.known[key]
        else:
            assert word is ClaimStepResult.CLAIMED

    @invariant()
    def it_shows_what_is_known(self) -> None:
        for key in ("a", "b", "ü/\t"):
            answer, known = self.desk.show(key), self.known.get(key)
            assert answer.state is (known.state if known else IdempotencyState.FREE)
            assert (answer.claim.token if answer.claim else None) == (known.token if known else None)
            assert answer.result == (known.result if known else None)

    @invariant()
    def the_indexes_agree(self) -> None:
        store = self.server.client
        done = sum(known.state is IdempotencyState.COMPLETED for known in self.known.values())
        assert (
            store.hlen(state_keys.IDEMPOTENCY_RECORDS)
            == store.zcard(state_keys.IDEMPOTENCY_ENDS)
            == store.zcard(state_keys.IDEMPOTENCY_NEWEST)
        )
        assert (store.hlen(state_keys.IDEMPOTENCY_RECORDS), store.zcard(state_keys.IDEMPOTENCY_HELD)) == (
            len(self.known),
            len(self.known) - done,
        )
        kept = sum(len(value) for value in store.hgetall(state_keys.IDEMPOTENCY_RESULTS).values())
        assert int(store.hget(state_keys.IDEMPOTENCY_COUNTS, "bytes") or 0) == kept
        assert int(store.hget(state_keys.IDEMPOTENCY_SHARES, "ci") or 0) == len(self.known)

    def _any(self, key: str, chosen: object) -> int:
        """A token of this key: the newest, or one of a claimer that was replaced and wakes up."""
        return chosen.choice([*self.given.get(key, [1]), self.last or 1])  # type: ignore[attr-defined,no-any-return]

    def _refused(self, key: str, token: int) -> ClaimStepResult | None:
        known = self.known.get(key)
        if known is None:
            return ClaimStepResult.FREE
        return ClaimStepResult.LATE if known.token != token else None


@pytest.mark.usefixtures("processes")
def test_one_holder_at_any_time_and_whoever_was_replaced_is_refused(server: Store) -> None:
    machine = type("Machine", (Ledgers,), {"server": server})
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))


@pytest.mark.long
def test_the_same_for_long(server: Store) -> None:
    machine = type("Machine", (Ledgers,), {"server": server})
    run_state_machine_as_test(machine, settings=settings(max_examples=1_500, stateful_step_count=60, deadline=None))
