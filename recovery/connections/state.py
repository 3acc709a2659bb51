"""The names of all that we keep in the state store: one function (or constant) a key, and nobody else makes names."""

from __future__ import annotations

from recovery.domain.refs import QueueRef, raw, text

SNAPSHOT = b"unstall:snapshot"  # string: the newest snapshot, encoded
SNAPSHOT_CHANNEL = b"unstall:snapshot:new"  # channel: the number of each snapshot, once it is there
SCHEDULER = b"unstall:scheduler"  # string with a TTL: there while a scheduler is alive
DOCTOR = b"unstall:doctor"  # string for a moment: may we write?

_FOUND = b"unstall:found:"
_HISTORY = b"unstall:history:"

# Patterns of the keys that belong to one deployment each, for `deployment_of`.
OF_DEPLOYMENTS = (_FOUND + b"*", _HISTORY + b"*")


def found(deployment: str) -> bytes:
    """Hash: base → what is known of the queue, for every queue that was discovered."""
    return _FOUND + raw(deployment)


def history(ref: QueueRef, resolution: str) -> bytes:
    """String used as a ring of fixed cells: what finished in each period of this resolution."""
    return _HISTORY + raw(f"{resolution}:{ref}")


def server_metrics(server: str) -> bytes:
    """Hash with a TTL: what the monitor of this server measured last."""
    return b"worker-monitor:metrics:" + raw(server)


def deployment_of(key: bytes) -> str:
    """The deployment that a key of `OF_DEPLOYMENTS` belongs to. Its name has neither : nor /."""
    if key.startswith(_FOUND):
        return text(key.removeprefix(_FOUND))
    _, _, ref = key.removeprefix(_HISTORY).partition(b":")
    return text(ref.partition(b"/")[0])
