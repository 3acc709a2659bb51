"""Computes the slot of a cluster that a command belongs to: Redis's CRC16 over the key, or over its {tag}."""

from __future__ import annotations

import binascii

from recovery.stores.redis.pipeline import Command

SLOTS = 16384

# Where the key stands when it is not the first argument. Commands with a count of keys in front
# (EVAL and its kin) have none at all when the count is 0.
_COUNTED = {
    "EVAL": 2,
    "EVALSHA": 2,
    "EVAL_RO": 2,
    "EVALSHA_RO": 2,
    "FCALL": 2,
    "FCALL_RO": 2,
    "ZUNION": 1,
    "ZINTER": 1,
    "ZDIFF": 1,
    "ZINTERCARD": 1,
    "SINTERCARD": 1,
    "LMPOP": 1,
    "ZMPOP": 1,
}
_SECOND = frozenset({"OBJECT", "XINFO", "MEMORY", "DEBUG", "BITOP"})
# fmt: off
_KEYLESS = frozenset({
    "ACL", "AUTH", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "FUNCTION",
    "INFO", "KEYS", "LASTSAVE", "LATENCY", "MODULE", "PING", "PUBLISH", "PUBSUB", "RANDOMKEY",
    "ROLE", "SCAN", "SCRIPT", "SLOWLOG", "TIME", "WAIT",
})
# fmt: on


def slot(key: bytes) -> int:
    """Returns the key's slot. Only what stands between the first { and the next } counts, unless it is empty."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


def slot_of_command(command: Command) -> int | None:
    """Returns the command's slot; None when any node may answer it."""
    word = _text(command[0]).upper()
    if word in _KEYLESS or len(command) < 2:
        return None
    if word in _COUNTED:
        place = _COUNTED[word]
        keys = int(command[place]) if len(command) > place else 0
        return slot(_bytes(command[place + 1])) if keys else None
    place = 2 if word in _SECOND and len(command) > 2 else 1
    return slot(_bytes(command[place]))


def _text(part: bytes | str | int) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else str(part)


def _bytes(part: bytes | str | int) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogateescape")
