"""Which lines belong to a trace, and whose level they have."""

from __future__ import annotations

import pytest

from recovery.domain.logs.stack_traces import inherited_levels
from recovery.domain.logs.types import LogLevel

ERROR, WARN, INFO = LogLevel.ERROR, LogLevel.WARN, LogLevel.INFO
PYTHON = """2026-11-19T12:00:00Z ERROR worker  job 7 failed
Traceback (most recent call last):
  File "/app/w.py", line 10, in run
    log.info("INFO: charging")
payments.gateway.CardDeclined: do not honour

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/w.py", line 12, in run
redis.exceptions.ConnectionError: refused
2026-11-19T12:00:01Z INFO worker  next"""
NODE = """Error: card declined
    at charge (/app/w.js:10:5)
    at process.processTicksAndRejections {
  code: 'E_CARD'
}
INFO next"""
JAVA = """12:00:00 WARN [main] retry: x
java.lang.IllegalStateException: y
\tat a.b.C.d(C.java:1)
Caused by: java.io.IOException: z
\t... 12 more
plain words"""


def of(text: str) -> list[LogLevel | None]:
    return list(inherited_levels([line.encode() for line in text.split("\n")]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PYTHON, [None, *[ERROR] * 10, None]),
        (NODE, [None, *[ERROR] * 4, None]),
        (JAVA, [None, None, *[ERROR] * 3, None]),
        ("INFO begun\n  a: 1\n  b: 2\nplain\n  of no level", [None, INFO, INFO, None, None]),
        ("INFO begun\nTraceback (most recent call last):\n  File\nKeyError: 'x'", [None, ERROR, ERROR, ERROR]),
        ("WARN slow\nTraceback (most recent call last):\n  File\nKeyError: 'x'", [None, WARN, WARN, WARN]),
        ("  it begins in the midst\nworker: started", [None, None]),
        ("\x1b[31mERROR\x1b[0m red\n    at x", [None, ERROR]),
    ],
    ids=["python", "node", "java", "indented", "not logged", "logged as a warning", "cut", "coloured"],
)
def test_lines_of_a_trace_have_the_level_of_the_line_they_belong_to(text: str, found: list[LogLevel | None]) -> None:
    assert of(text) == found


def test_a_trace_has_an_end() -> None:
    found = of("ERROR x" + "\n  y" * 1000)
    assert found[1] is ERROR
    assert found[-1] is None
