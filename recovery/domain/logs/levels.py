"""Detects the level of a log line by its text. A line without a word for it has no level: nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Set

from recovery.domain.logs.types import LogLevel

REACH = 400  # characters: behind them a text speaks of its matter; a level has its place at the beginning
_REACH_IN_JSON = 4096  # there it may stand behind the message
_WORDS_OF = {
    LogLevel.TRACE: ("trace", "trce", "silly", "finest", "finer"),
    LogLevel.DEBUG: ("debug", "dbug", "dbg", "verbose", "fine"),
    LogLevel.INFO: ("info", "information", "informational", "inf", "log", "notice", "http"),
    LogLevel.WARN: ("warn", "warning", "wrn"),
    LogLevel.ERROR: ("error", "err", "fail", "severe"),
    LogLevel.FATAL: ("fatal", "ftl", "critical", "crit", "panic", "emerg", "emergency", "alert"),
}
_OF_WORD = {word: level for level, words in _WORDS_OF.items() for word in words}
_OF_CAPITALS = {word.upper(): level for word, level in _OF_WORD.items() if word not in ("http", "fail")}
_OF_LETTER = {"I": LogLevel.INFO, "W": LogLevel.WARN, "E": LogLevel.ERROR, "F": LogLevel.FATAL}
_OF_TENS = (
    None,
    LogLevel.TRACE,
    LogLevel.DEBUG,
    LogLevel.INFO,
    LogLevel.WARN,
    LogLevel.ERROR,
    LogLevel.FATAL,
)  # pino, bunyan
_OF_PRIORITY = (
    *(LogLevel.FATAL,) * 3,
    LogLevel.ERROR,
    LogLevel.WARN,
    LogLevel.INFO,
    LogLevel.INFO,
    LogLevel.DEBUG,
)  # syslog, journald

_WORD = "|".join(sorted(_OF_WORD, key=len, reverse=True))
_CAPITALS = re.compile(r"[A-Z](?<![A-Za-z_][A-Z])[A-Z]{2,12}(?![A-Za-z_])")
_BRACKETED = re.compile(rf"[\[|(<]\s{{0,10}}({_WORD})\s{{0,10}}[\]|)>:]", re.IGNORECASE)
# At the beginning, or behind a moment (its only letters are T and Z).
_LEADING = re.compile(
    rf"[^A-Za-z]{{0,40}}+(?:[TZ][^A-Za-z]{{1,20}}+){{0,2}}+({_WORD})(?:\s{{0,10}}[:|](?!//)|\s{{1,10}}-\s)",
    re.IGNORECASE,
)
_KEYS = ("level", "lvl", "severity", "@l")
_VALUE = re.compile(r"""(?:name)?["']?\s{0,2}[=:]\s{0,2}["']?([A-Za-z]{1,13}|\d{1,2}\b)""")
_NUMBERED = r"""(?:{keys})(?:name)?["']?\s{{0,2}}[=:]\s{{0,2}}["']?0?(?:{numbers})\b"""
_KLOG = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.")
_THROWN = re.compile(
    r"\s{0,20}(?:(?:Uncaught|Unhandled|Caused by:)\s)?(?:[\w$]{1,100}\.){0,20}[\w$]{0,100}(?:Error|Exception)\b"
    r"(?=$|[:\[]|\s[\[({])|Traceback \(most recent"
)


def find_level(text: str) -> LogLevel | None:
    """Returns the first level that the line's text names."""
    if text.startswith("{"):
        return _keyed(text[:_REACH_IN_JSON])
    head = text[:REACH]
    level = _keyed(head) or _placed(head)
    if level is None and (letter := _KLOG.match(head)):
        return _OF_LETTER[letter[1]]
    if level is None and ("Error" in head or "Exception" in head or "Traceback" in head) and _THROWN.match(head):
        return LogLevel.ERROR
    return level


def level_prefilter(levels: Set[LogLevel]) -> Callable[[bytes], bool]:
    """Returns a quick test on bytes, of one line or of many, that is never False for a line of one of these levels."""
    words = [word for level in levels for word in _WORDS_OF[level]]
    words += ["exception", "traceback"] if LogLevel.ERROR in levels else []
    cores = [word for word in words if not any(core != word and core in word for core in words)]
    numbers = "|".join(str(number) for number in range(100) if _of_number(number) in levels)
    letters = "".join(letter for letter, level in _OF_LETTER.items() if level in levels).lower()
    certain = [*cores, *([rf"[{letters}]\d{{4}} \d\d:"] if letters else [])]
    keyed = _NUMBERED.format(keys="|".join(_KEYS), numbers=numbers)
    glanced = re.compile("|".join((*certain, *_KEYS)).encode())
    looked = re.compile("|".join((*certain, keyed)).encode())

    def may_be(raw: bytes) -> bool:
        lowered = raw.lower()
        return glanced.search(lowered) is not None and looked.search(lowered) is not None

    return may_be


def level_of_priority(number: int) -> LogLevel | None:
    """Returns the level of a priority of syslog or journald, where 0 is the gravest."""
    return _OF_PRIORITY[number] if 0 <= number < len(_OF_PRIORITY) else None


def level_of_word(word: str) -> LogLevel | None:
    """Returns the level of a label's value, as log shippers write it."""
    return _OF_WORD.get(word.lower())


def _keyed(head: str) -> LogLevel | None:
    lowered = head.lower()
    for key in _KEYS:
        place = lowered.find(key)
        if place == -1 or not _is_whole(lowered[max(0, place - 4) : place]):
            continue
        if value := _VALUE.match(head, place + len(key)):
            return _of_number(int(value[1])) if value[1].isdigit() else level_of_word(value[1])
    return None


def _is_whole(before: str) -> bool:
    """Returns True if a key may begin here. `isolation_level` is none."""
    return (not before[-1:].isalnum() and before[-1:] != "_") or before.endswith(("log", "log_"))


def _of_number(number: int) -> LogLevel | None:
    tens = number // 10
    if tens:
        return _OF_TENS[tens] if tens < len(_OF_TENS) else None
    return level_of_priority(number)


def _placed(head: str) -> LogLevel | None:
    """Returns the first level of those in capitals, in brackets, and at the beginning."""
    if leading := _LEADING.match(head):
        return level_of_word(leading[1])
    bracketed = _BRACKETED.search(head)
    end = bracketed.start(1) if bracketed else len(head)
    for loud in _CAPITALS.finditer(head):
        if loud.start() > end:
            break
        if level := _OF_CAPITALS.get(loud[0]):
            return level
    return level_of_word(bracketed[1]) if bracketed else None
