"""Keeps a limited number of queue names, and lets no namespace crowd out the others.

A worker that may write `bull:evil:*` only can plant any number of keys that look like queues there. When there is no
room left, a name of the largest namespace is dropped for one of a smaller one.
"""

from __future__ import annotations

from collections.abc import Iterable


def namespace(base: str) -> str:
    """Returns the first two parts of a base: `bull:evil` of `bull:evil:1`; `bull:mail` is a namespace of its own."""
    return ":".join(base.split(":", 2)[:2])


class NamespaceQuota:
    """The names that are kept, by namespace, the newest last."""

    def __init__(self, limit: int, names: Iterable[str] = ()) -> None:
        self._limit = limit
        self._groups: dict[str, dict[str, None]] = {}
        self._size = 0
        self._largest: dict[str, None] | None = None
        for name in names:
            self._put(name)

    def add(self, name: str) -> str | None:
        """Adds a name; returns the one that is dropped when there is no room: itself, if its namespace has the most."""
        if self._size < self._limit:
            self._put(name)
            return None
        if len(self._groups.get(namespace(name), ())) + 1 >= len(self._largest_group()):
            return name
        gone = self.take()
        self._put(name)
        return gone

    def take(self) -> str | None:
        """Takes out the newest name of the largest namespace; None when there is none left."""
        largest = self._largest_group()
        if not largest:
            return None
        gone, _ = largest.popitem()
        self._size -= 1
        self._largest = None
        return gone

    def _largest_group(self) -> dict[str, None]:
        if self._largest is None:
            self._largest = max(self._groups.values(), key=len, default={})
        return self._largest

    def _put(self, name: str) -> None:
        group = self._groups.setdefault(namespace(name), {})
        self._size += name not in group
        group[name] = None
        self._largest = None
