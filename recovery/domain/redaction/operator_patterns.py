"""Checks patterns that the operator adds to redaction, so that none of them can take long.

Python's `re` goes back and tries again, so a pattern like `(a+)+$` can take hours on one line. Refused are repeats
without an end, and patterns that could be tried in more than STEPS_LIMIT ways at one place of the text, as repeats
within repeats can.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

PATTERN_LIMIT = 500  # characters
STEPS_LIMIT = 500  # ways in which a pattern can be tried at one place of a text
LENGTH_LIMIT = 2_000  # characters that one pattern can match
_PARSER: Any = importlib.import_module("re._parser")  # what `re` itself reads patterns with
_UNKNOWN = "uses {}, whose cost cannot be bounded."
_PLAIN = "Write letters, classes like [a-z0-9], groups, a|b, and repeats with an end, like {8,64}."


class BadPattern(ValueError):
    """The pattern is not accepted; `remedy` says what would be."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class RedactionPatterns:
    """Patterns of the operator. `hide`: what they match is a secret (their group `secret` alone, where they have one).
    `keep`: what they match is none, whatever it looks like.
    """

    hide: tuple[re.Pattern[str], ...] = ()
    keep: tuple[re.Pattern[str], ...] = ()


def compile_pattern(written: str) -> re.Pattern[str]:
    """Compiles a pattern of the operator. Raises BadPattern."""
    if len(written) > PATTERN_LIMIT:
        raise BadPattern(f"has {len(written)} characters.", f"Write at most {PATTERN_LIMIT}, in several patterns.")
    try:
        pattern = re.compile(written)
        steps, length = _cost(_PARSER.parse(written))
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"is not a regular expression: {error}.", _PLAIN) from error
    if pattern.search(""):
        raise BadPattern("matches an empty text.", "Write a pattern that needs at least one character.")
    if steps > STEPS_LIMIT or length > LENGTH_LIMIT:
        raise BadPattern(
            f"could be tried in more than {STEPS_LIMIT:,} ways at one place of a text, or match more than "
            f"{LENGTH_LIMIT:,} characters.",
            "Use fewer repeats, narrower ones, or one that never goes back: {8,64}+.",
        )
    return pattern


def _cost(parsed: Any) -> tuple[int, int]:
    """Returns in how many ways a sequence can be tried at one place, and how many characters it can match."""
    steps, length = 1, 0
    for name, argument in parsed:
        ways, size = _cost_of(str(name), argument)
        steps, length = min(steps * ways, STEPS_LIMIT + 1), length + size
    return steps, length


def _cost_of(name: str, argument: Any) -> tuple[int, int]:  # noqa: PLR0911 -- a table
    match name:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "RANGE" | "CATEGORY":
            return 1, 1
        case "AT":
            return 1, 0
        case "SUBPATTERN":
            return _cost(argument[-1])
        case "ATOMIC_GROUP":
            return _cost(argument)
        case "BRANCH":
            parts = [_cost(part) for part in argument[1]]
            return sum(steps for steps, _ in parts), max(length for _, length in parts)
        case "ASSERT" | "ASSERT_NOT":
            steps, length = _cost(argument[1])
            return steps * max(1, length), 0
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _repeated(name, *argument)
    raise BadPattern(_UNKNOWN.format(name.lower().replace("_", " ")), _PLAIN)


def _repeated(name: str, least: int, most: int, repeated: Any) -> tuple[int, int]:
    if most is _PARSER.MAXREPEAT or most > LENGTH_LIMIT:
        raise BadPattern("has a repeat without an end (*, + or {2,}).", "Give each an end, like {0,64}.")
    steps, length = _cost(repeated)
    if name == "POSSESSIVE_REPEAT":  # it never gives back what it took
        return steps * max(1, most), length * most
    if steps > 1 and most > 1:  # a choice that is made again and again: the ways multiply
        return min(steps ** min(most, 32) * (most - least + 1), STEPS_LIMIT + 1), length * most
    return most - least + 1, length * most
