"""A line has the level that it says it has, and none when it says nothing."""

from __future__ import annotations

import pytest

from recovery.domain.logs import levels
from recovery.domain.logs.levels import REACH
from recovery.domain.logs.types import LogLevel


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("ERROR: refused", LogLevel.ERROR),
        ("2026-11-19T10:00:00.1Z warn: slow", LogLevel.WARN),
        ("2026-11-19 10:00:00,123 - app - ERROR - gone", LogLevel.ERROR),
        ("2026-11-19T10:00:00Z [error] gone", LogLevel.ERROR),
        ("info - begun", LogLevel.INFO),
        ("[ info ] begun", LogLevel.INFO),
        ("<warn> slow", LogLevel.WARN),
        ("DEBUG [ERROR] both", LogLevel.DEBUG),
        ('{"level":30,"msg":"of pino"}', LogLevel.INFO),
        ('{"msg":"behind it","level":"error"}', LogLevel.ERROR),
        ('{"severity":"CRITICAL"}', LogLevel.FATAL),
        ('{"@l":"Warning"}', LogLevel.WARN),
        ('{"levelname": "WARNING"}', LogLevel.WARN),
        ('time=x level=info msg="error"', LogLevel.INFO),
        ("log_level: warn", LogLevel.WARN),
        ("level=3 of syslog", LogLevel.ERROR),
        ("I1119 10:00:00.000001 1 of klog", LogLevel.INFO),
        ("E1119 10:00:00.000001 1 of klog", LogLevel.ERROR),
        ("TypeError: x is not a function", LogLevel.ERROR),
        ("Caused by: a.b.SomeException: x", LogLevel.ERROR),
        ("Traceback (most recent call last):", LogLevel.ERROR),
        ("npm ERR! code", LogLevel.ERROR),
        ("panic: runtime error", LogLevel.FATAL),
    ],
)
def test_a_level_is_read_where_loggers_write_it(text: str, level: LogLevel) -> None:
    assert levels.find_level(text) is level


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all is fine",
        "the error was fixed",
        "GET /error 200",
        "http://x/y",
        "isolation_level=3",
        "lvl=eror",
        "ERRORS were none",
        "    at Foo (x.js:1)",
        '{"level":99}',
        "x" * REACH + " ERROR: too far behind",
        "\u017fevere: an s of old",
        "[\u017fevere] an s of old",
    ],
)
def test_a_line_that_says_nothing_of_it_has_no_level(text: str) -> None:
    assert levels.find_level(text) is None


def test_what_the_journal_and_shippers_say_is_understood() -> None:
    assert [levels.level_of_priority(number) for number in (0, 3, 4, 6, 7, 8, -1)] == [
        *(LogLevel.FATAL, LogLevel.ERROR, LogLevel.WARN, LogLevel.INFO, LogLevel.DEBUG),
        *(None, None),
    ]
    assert (levels.level_of_word("Warning"), levels.level_of_word("none")) == (LogLevel.WARN, None)


@pytest.mark.parametrize(
    ("raw", "is_let_through"),
    [
        (b"ERROR: x", True),
        (b"npm ERR! x", True),
        (b"a.b.CException: x", True),
        (b'{"level":50}', True),
        (b"level=3", True),
        (b"E1119 10:00:00.000001", True),
        (b"INFO: all is well", False),
        (b'{"level":30,"msg":"50"}', False),
        (b"I1119 10:00:00.000001", False),
    ],
)
def test_the_sieve_lets_through_what_may_be_an_error_and_little_else(raw: bytes, is_let_through: bool) -> None:
    assert levels.level_prefilter(frozenset((LogLevel.ERROR,)))(raw) is is_let_through
