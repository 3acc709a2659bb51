"""As much of Loki's language as is asked of it: matchers, line filters, label filters, and lines counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_STRING = r'"(?:[^"\\\n]|\\.)*"|`[^`]*`'
_MATCHER = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*({_STRING})\s*(,|\}})")
_LINE = re.compile(rf"\s*(\|~|\|=|!~|!=)\s*({_STRING})((?:\s*or\s*(?:{_STRING}))*)")
_LABEL = re.compile(rf"\s*\|\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*({_STRING})")
_COUNT = re.compile(r"\s*sum\(count_over_time\((.*)\[(\d+)(ns|ms|s|m|h)\]\)\)\s*", re.DOTALL)
_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
TOO_WIDE = (
    "parse error : queries require at least one regexp or equality matcher that does not have an empty-compatible "
    'value. For instance, app=~".*" does not meet this requirement, but app=~".+" will'
)


class Refused(ValueError):
    """A query that this Loki takes for wrong; the text is its answer."""


@dataclass(frozen=True, slots=True)
class Logs:
    """`matches` judges a stream's labels, `keeps` a line of it with its structured metadata."""

    matches: Callable[[Mapping[str, str]], bool]
    keeps: Callable[[str, Mapping[str, str]], bool]


def logs(query: str, *, may_be_all: bool = False) -> Logs:
    rest = query.strip()
    if not rest.startswith("{"):
        raise Refused("parse error at line 1, col 1: syntax error: unexpected IDENTIFIER")
    matchers, rest = _matchers(rest[1:])
    if not may_be_all and all(test("") for _, test in matchers):
        raise Refused(TOO_WIDE)
    tests = []
    while rest.strip():
        if found := _LINE.match(rest):
            more = re.findall(_STRING, found[3])
            tests.append(_line_test(found[1], [_said(text) for text in (found[2], *more)]))
        elif found := _LABEL.match(rest):
            tests.append(_label_test(found[1], _test(found[2], _said(found[3]))))
        else:
            raise Refused(
                f"parse error at line 1, col {len(query) - len(rest) + 1}: syntax error: unexpected {rest[:9]}"
            )
        rest = rest[found.end() :]
    return Logs(
        lambda labels: all(test(labels.get(name, "")) for name, test in matchers),
        lambda line, labels: all(test(line, labels) for test in tests),
    )


def counted(query: str) -> tuple[str, int]:
    """The logs that are counted, and over how many ns."""
    found = _COUNT.fullmatch(query)
    if found is None:
        raise Refused("parse error at line 1, col 1: syntax error")
    if found[3] == "ns":
        raise Refused(f'parse error at line 0, col 33: unknown unit "ns" in duration "{found[2]}ns"')
    return found[1], int(found[2]) * _UNITS[found[3]]


def _matchers(rest: str) -> tuple[list[tuple[str, Callable[[str], bool]]], str]:
    found: list[tuple[str, Callable[[str], bool]]] = []
    if rest.lstrip().startswith("}"):
        return found, rest.lstrip()[1:]
    while one := _MATCHER.match(rest):
        found.append((one[1], _test(one[2], _said(one[3]))))
        rest = rest[one.end() :]
        if one[4] == "}":
            return found, rest
    raise Refused("parse error at line 1, col 2: syntax error: unexpected }, expecting STRING")


def _test(operator: str, value: str) -> Callable[[str], bool]:
    if operator in ("=", "!="):
        return lambda text: (text == value) is (operator == "=")
    pattern = _pattern(value)
    return lambda text: (pattern.fullmatch(text) is not None) is (operator == "=~")


def _line_test(operator: str, values: list[str]) -> Callable[[str, Mapping[str, str]], bool]:
    patterns = [_pattern(value if "~" in operator else re.escape(value)) for value in values]
    return lambda line, _: any(one.search(line) for one in patterns) is operator.startswith("|")


def _label_test(name: str, test: Callable[[str], bool]) -> Callable[[str, Mapping[str, str]], bool]:
    return lambda _, labels: test(labels.get(name, ""))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.DOTALL)
    except re.error as error:
        raise Refused(f"parse error : error parsing regexp: {error}") from error


def _said(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError as error:
        raise Refused("parse error at line 1, col 1: literal not terminated") from error
