"""The breaker against a plain recount of what it was told."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.safety_limits.circuit_breaker import (
    COUNTED_FOR,
    ENOUGH,
    OUT_FOR,
    AutoRetryOutcome,
    BreakerStage,
    CircuitBreaker,
)

moves = st.lists(
    st.tuples(
        st.sampled_from(["go", "go", "go", "end"]),
        st.sampled_from(
            [AutoRetryOutcome.FAILED, AutoRetryOutcome.FAILED, AutoRetryOutcome.SUCCEEDED, AutoRetryOutcome.UNKNOWN]
        ),
        st.sampled_from([0, 0, 0, 1_000, 600_000, 7 * 3_600_000, 90 * 3_600_000]),
    ),
    max_size=200,
)


@given(moves)
def test_it_opens_by_the_rule_and_only_a_probe_closes_it(steps: list[tuple[str, AutoRetryOutcome, int]]) -> None:
    breaker, now, out, known, went = (
        CircuitBreaker("boom"),
        1_800_000_000_000,
        dict[str, int](),
        list[tuple[int, bool]](),
        0,
    )
    for move, ended, passed in steps:
        now += passed
        out = {id: at for id, at in out.items() if at > now - OUT_FOR}
        known = [(at, failed) for at, failed in known if at > now - COUNTED_FOR]
        before = breaker.stage(now)
        if move == "go":
            went += 1
            if breaker.room(now):
                assert before is not BreakerStage.OPEN
                breaker = breaker.retried(str(went), now)
                out[str(went)] = now
            assert before is not BreakerStage.HALF_OPEN or breaker.room(now) == 0  # one probe
        elif out:
            id = next(iter(out))
            is_probe = id == breaker.probe
            del out[id]
            breaker = breaker.settled(id, ended, now, "boom")
            if before is BreakerStage.CLOSED and ended is not AutoRetryOutcome.UNKNOWN:
                known = [*known, (now, ended is AutoRetryOutcome.FAILED)][-ENOUGH:]
                failed = sum(failed for _, failed in known)
                assert (breaker.opened_at is not None) == (len(known) >= ENOUGH and failed * 2 > len(known))
            elif before is not BreakerStage.CLOSED:
                assert (breaker.opened_at is None) == (is_probe and ended is AutoRetryOutcome.SUCCEEDED)
                known = [] if breaker.opened_at is None else known
        assert breaker.words(now)
        breaker = CircuitBreaker.from_json(json.loads(json.dumps(breaker.as_json())))
