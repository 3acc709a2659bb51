"""Formats how long something took or has lasted, in few words."""

from __future__ import annotations

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def age(ms: int) -> str:
    """Formats an age in ms for a quick look: `4 s`, `18 min`, `3 h 20 min`, `4 d 3 h`. A negative one reads 0 s."""
    ms = max(0, ms)
    if ms < MINUTE:
        return f"{ms // SECOND} s"
    if ms < HOUR:
        return f"{ms // MINUTE} min"
    if ms < DAY:
        return _two(ms, HOUR, "h", MINUTE, "min")
    return _two(ms, DAY, "d", HOUR, "h")


def elapsed(ms: int) -> str:
    """Formats how long a run took: like `age`, but finer for short runs: `320 ms`, `3.2 s`."""
    ms = max(0, ms)
    if ms < SECOND:
        return f"{ms} ms"
    if ms < 10 * SECOND:
        return f"{ms / SECOND:.1f} s"
    if ms < MINUTE or ms >= HOUR:
        return age(ms)
    return _two(ms, MINUTE, "min", SECOND, "s")


def _two(ms: int, large: int, large_word: str, small: int, small_word: str) -> str:
    whole, rest = divmod(ms, large)
    part = rest // small
    return f"{whole} {large_word} {part} {small_word}" if part else f"{whole} {large_word}"
