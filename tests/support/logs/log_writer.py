"""Lines in the state store as a server's monitor ships them, written at once and without one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from recovery.domain.logs.line_batches import LineBatch, Raw
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store

_LINES = 1000  # in one entry; a monitor puts about as many into one


class LogWriter:
    """One server. `write("a", "b", container="mail")` ships two lines of now, `at=` (ns) of then."""

    def __init__(self, store: Store, server: str = "eu-1") -> None:
        self.store = store
        self.server = server

    def write(self, *texts: str | bytes, at: int | None = None, step: int = 1, **labels: str) -> None:
        """Each line comes `step` ns after the one before."""
        first = time.time_ns() if at is None else at
        raw = [text.encode() if isinstance(text, str) else text for text in texts]
        for start in range(0, len(raw), _LINES):
            some = raw[start : start + _LINES]
            self.ship([(first + step * number, line) for number, line in enumerate(some, start)], **labels)

    def ship(self, lines: Sequence[Raw], **labels: str) -> None:
        """One parcel; the moments may be any."""
        now = int(time.time() * 1000)
        parcel = LineBatch(tuple(lines), labels)
        fields = parcel.encode()
        client = self.store.client
        client.zadd(state_keys.SHIPPING, {self.server: now})
        client.hset(state_keys.log_labels(self.server), str(fields["labels"]), str(now))
        client.xadd(state_keys.logs(self.server), fields)  # type: ignore[arg-type] # a dict is invariant

    def trim(self, entries: int = 0) -> None:
        """As the cap of the stream does it: the oldest entries leave."""
        self.store.client.xtrim(state_keys.logs(self.server), maxlen=entries, approximate=False)

    def forget(self) -> None:
        """As if it had never shipped."""
        self.store.client.delete(state_keys.logs(self.server), state_keys.log_labels(self.server))
        self.store.client.zrem(state_keys.SHIPPING, self.server)
