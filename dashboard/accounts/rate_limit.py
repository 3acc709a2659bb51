"""Limits the requests of one token per second, in one process."""

from __future__ import annotations

MOST = 1_000  # requests of one token within a second: twice what a busy cluster asks, and half a core
_SECOND = 1_000


class TokenRateLimit:
    """Request counts of the current second; earlier ones are dropped, so memory is bounded."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._second = 0
        self._asked: dict[str, int] = {}

    def allows(self, token: str, now: int) -> bool:
        if now // _SECOND != self._second:
            self._second = now // _SECOND
            self._asked.clear()
        self._asked[token] = asked = self._asked.get(token, 0) + 1
        return asked <= self.most
