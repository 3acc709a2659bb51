"""Keys that only BullMQ has."""

from __future__ import annotations

from recovery.backends.redis_common.keys import Keys


class BullMQKeys(Keys):
    __slots__ = ()

    @property
    def prioritized(self) -> bytes:
        """Sorted set of BullMQ ≥ 4: score is priority * 2^32 + a counter."""
        return self.named(b"prioritized")

    @property
    def priority_counter(self) -> bytes:
        return self.named(b"pc")

    @property
    def marker(self) -> bytes:
        """Key of BullMQ ≥ 5 on which idle workers block."""
        return self.named(b"marker")

    @property
    def waiting_children(self) -> bytes:
        return self.named(b"waiting-children")

    def dependencies(self, id: bytes) -> bytes:
        """Set of children that are not done."""
        return self.named(id + b":dependencies")

    def processed(self, id: bytes) -> bytes:
        """Hash of children that are done, with what they returned."""
        return self.named(id + b":processed")

    def ignored(self, id: bytes) -> bytes:
        """Hash of children whose failure the parent does not mind, with the reason (≥ 5.2)."""
        return self.named(id + b":failed")

    def unsuccessful(self, id: bytes) -> bytes:
        """Sorted set of children whose failure fails the parent (≥ 5.42)."""
        return self.named(id + b":unsuccessful")
