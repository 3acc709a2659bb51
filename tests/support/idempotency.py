"""Claims by hand, for tests of the ledger and of what shows it."""

from __future__ import annotations

import redis

from recovery.domain.idempotency import ClaimReply, ClaimRequest, ClaimStep, IdempotencyLimits
from recovery.idempotency.ledger import Ledger
from tests.support.stores.stores import Store
from tests.support.waiting import until

LONG = 600_000
DAY = 86_400_000


class Desk:
    """One ledger, told what to do in few words."""

    def __init__(self, store: redis.Redis, terms: IdempotencyLimits | None = None) -> None:
        self.store = store
        self.ledger = Ledger(store, terms or IdempotencyLimits())

    @classmethod
    def of(cls, store: Store, **terms: int) -> Desk:
        return cls(store.client, IdempotencyLimits(**terms))

    def claim(self, key: str, span: int = LONG, owner: str = "w", by: str = "ci") -> ClaimReply:
        return self.ledger.do(ClaimRequest(ClaimStep.CLAIM, key, span=span, owner=owner, by=by))

    def token(self, key: str, span: int = LONG, owner: str = "w") -> int:
        """Of a claim that is won."""
        won = self.claim(key, span, owner)
        assert won.claim, won
        assert won.claim.owner == owner, won
        return won.claim.token

    def complete(self, key: str, token: int, result: bytes = b"", keep: int = DAY) -> ClaimReply:
        return self.ledger.do(ClaimRequest(ClaimStep.COMPLETE, key, token, keep, result=result))

    def step(self, step: ClaimStep, key: str, token: int, span: int = LONG) -> ClaimReply:
        return self.ledger.do(ClaimRequest(step, key, token, span))

    def show(self, key: str) -> ClaimReply:
        return self.ledger.do(ClaimRequest(ClaimStep.SHOW, key))

    def done(self, key: str, result: bytes = b"", keep: int = DAY) -> int:
        token = self.token(key)
        self.complete(key, token, result, keep)
        return token

    def expired(self, key: str, owner: str = "dead") -> int:
        """The token of a claim whose time has passed."""
        token = self.token(key, 1, owner)
        self.passes(key)
        return token

    def passes(self, key: str) -> None:
        until(lambda: self.show(key).state.value != "claimed", what=f"{key} expires")
