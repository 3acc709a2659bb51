"""The keys that Bull and BullMQ have in common, one name each (`bull-reference`: key layout)."""

from __future__ import annotations

from recovery.domain.identifiers import encode_name


class Keys:
    """Keys of one queue. Ids and suffixes are bytes: nothing is lost on the way."""

    __slots__ = ("base",)

    def __init__(self, base: str) -> None:
        self.base = encode_name(base)

    def named(self, suffix: bytes) -> bytes:
        return b"%b:%b" % (self.base, suffix)

    @property
    def counter(self) -> bytes:
        """String that is raised with every job that was added, whatever id it was given."""
        return self.named(b"id")

    @property
    def wait(self) -> bytes:
        """List that is pushed on the left and popped on the right: the tail runs next."""
        return self.named(b"wait")

    @property
    def paused(self) -> bytes:
        """List that `wait` becomes while the queue is paused (Bull, BullMQ ≤ 5)."""
        return self.named(b"paused")

    @property
    def active(self) -> bytes:
        """List of active jobs: the head is the newest, the tail the oldest."""
        return self.named(b"active")

    @property
    def delayed(self) -> bytes:
        return self.named(b"delayed")

    @property
    def completed(self) -> bytes:
        return self.named(b"completed")

    @property
    def failed(self) -> bytes:
        return self.named(b"failed")

    @property
    def watchdog(self) -> bytes:
        """Key that the last stalled check set; while it lives no other check runs."""
        return self.named(b"stalled-check")

    @property
    def limiter(self) -> bytes:
        return self.named(b"limiter")

    @property
    def meta(self) -> bytes:
        return self.named(b"meta")

    @property
    def events(self) -> bytes:
        return self.named(b"events")

    @property
    def repeat(self) -> bytes:
        """Sorted set of schedulers or repeatable jobs, by the time of their next run."""
        return self.named(b"repeat")

    def scheduler(self, id: bytes) -> bytes:
        return self.named(b"repeat:" + id)

    def metrics(self, outcome: bytes) -> bytes:
        return self.named(b"metrics:" + outcome)

    def metrics_points(self, outcome: bytes) -> bytes:
        return self.named(b"metrics:%b:data" % outcome)

    def job(self, id: bytes) -> bytes:
        return self.named(id)

    def lock(self, id: bytes) -> bytes:
        return self.named(id + b":lock")

    def logs(self, id: bytes) -> bytes:
        return self.named(id + b":logs")
