"""A line has the level that it says it has, and none when it says nothing."""

from __future__ import annotations

import pytest

from recovery.domain import levels
from recovery.domain.levels import REACH
from recovery.domain.lines import Level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("ERROR: refused", Level.ERROR),
        ("2026-11-19T10:00:00.1Z warn: slow", Level.WARN),
        ("2026-11-19 10:00:00,123 - app - ERROR - gone", Level.ERROR),
        ("2026-11-19T10:00:00Z [error] gone", Level.ERROR),
        ("info - begun", Level.INFO),
        ("[ info ] begun", Level.INFO),
        ("<warn> slow", Level.WARN),
        ("DEBUG [ERROR] both", Level.DEBUG),
        ('{"level":30,"msg":"of pino"}', Level.INFO),
        ('{"msg":"behind it","level":"error"}', Level.ERROR),
        ('{"severity":"CRITICAL"}', Level.FATAL),
        ('{"@l":"Warning"}', Level.WARN),
        ('{"levelname": "WARNING"}', Level.WARN),
        ('time=x level=info msg="error"', Level.INFO),
        ("log_level: warn", Level.WARN),
        ("level=3 of syslog", Level.ERROR),
        ("I1119 10:00:00.000001 1 of klog", Level.INFO),
        ("E1119 10:00:00.000001 1 of klog", Level.ERROR),
        ("TypeError: x is not a function", Level.ERROR),
        ("Caused by: a.b.SomeException: x", Level.ERROR),
        ("Traceback (most recent call last):", Level.ERROR),
        ("npm ERR! code", Level.ERROR),
        ("panic: runtime error", Level.FATAL),
    ],
)
def test_a_level_is_read_where_loggers_write_it(text: str, level: Level) -> None:
    assert levels.found(text) is level


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
    assert levels.found(text) is None


def test_what_the_journal_and_shippers_say_is_understood() -> None:
    assert [levels.of_priority(number) for number in (0, 3, 4, 6, 7, 8, -1)] == [
        *(Level.FATAL, Level.ERROR, Level.WARN, Level.INFO, Level.DEBUG),
        *(None, None),
    ]
    assert (levels.of_word("Warning"), levels.of_word("none")) == (Level.WARN, None)


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
    assert levels.sieve(frozenset((Level.ERROR,)))(raw) is is_let_through
