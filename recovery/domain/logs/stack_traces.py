"""Finds lines that belong to the one before them, as those of a stack trace do, and so have its level."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from recovery.domain.logs import ansi, levels
from recovery.domain.logs.timestamps import STACK_TRACE_LIMIT
from recovery.domain.logs.types import LogLevel

_BODY = re.compile(
    rb"[ \t]+\S|\s*$|[}\])]+[;,]?\s*$|Caused by: |Suppressed: |The above exception |During handling of the above "
)
_INDENTED = (b" ", b"\t")
_PYTHON = b"Traceback (most recent "
# What Python was raising stands last, without a blank before it: `redis.exceptions.ConnectionError: refused`.
_RAISED = re.compile(rb"[A-Za-z_][\w.]{0,200}(?:: |:?\s*$)")
_GRAVE = frozenset({LogLevel.WARN, LogLevel.ERROR, LogLevel.FATAL})


def is_continuation(raw: bytes) -> bool:
    """Returns True if a line by itself may belong to the one before. The last line of a Python traceback does not."""
    return _BODY.match(raw) is not None


def inherited_levels(rows: Sequence[bytes]) -> Iterator[LogLevel | None]:
    """Yields, for lines of one source in order, the level of the line that each belongs to; None for one of its own."""
    head: bytes | None = None
    level: LogLevel | None = None
    count, is_python, before = 0, False, b""
    for raw in rows:
        is_traceback = raw.startswith(_PYTHON)
        is_raised = is_python and before.startswith(_INDENTED) and _RAISED.match(raw) is not None
        if is_continuation(raw) or is_raised or is_traceback:
            if head is not None:
                level, head = _level(head), None
            count += 1
        if is_traceback:
            is_python = True
            if level not in _GRAVE:  # it was not logged with a level: it has its own
                level, count = LogLevel.ERROR, 0
        elif not is_continuation(raw) and not is_raised:
            head, level, count, is_python = raw, None, 0, False
        is_python = is_python and not is_raised
        before = raw
        yield level if head is None and count <= STACK_TRACE_LIMIT else None


def _level(head: bytes) -> LogLevel | None:
    text = head[: 4 * levels.REACH].decode("utf-8", "replace")
    return levels.find_level(ansi.strip_codes(text) if ansi.may_have(text) else text)
