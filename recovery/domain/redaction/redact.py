"""Removes secrets from what is shown: by the name of their key, and by what they look like.

Values go through `value`, texts of any kind (error messages, log lines, JSON that was cut) through `text`. Colours and
other terminal codes are taken out first: they may stand between the name of a secret and the secret, or within one.
Both are bounded and neither raises: what cannot be judged is not shown.
"""

from __future__ import annotations

import json
import re
from typing import Any

from recovery.domain import bounded_json
from recovery.domain.logs import ansi
from recovery.domain.redaction import secret_finder
from recovery.domain.redaction.operator_patterns import RedactionPatterns
from recovery.domain.redaction.secret_finder import MARK

__all__ = ["MARK", "member", "payload", "text", "use_patterns", "value"]
DEPTH_LIMIT = 40  # deeper than people nest; what lies below is not shown
NODE_LIMIT = 50_000  # values looked at in one payload; what comes after is not shown
TEXT_LIMIT = 1_048_576  # characters judged in one text; what comes after is not shown
_JSON_STARTS = ("{", "[", '"')
# The shape {"name": "password", "value": "…"} of forms and headers.
_NAME_KEYS = ("name", "key", "header", "field", "id")
_NAME_LIMIT = 64  # characters
_VALUED = re.compile(r"[\s=:]")
_ESCAPE, _ESCAPE_SHOWN = "\x1b", "\u241b"  # `refs.shown` makes one of the other, in texts that are kept too
_VALUE_KEYS = frozenset(("value", "val", "content", "text", "values"))


_rules = [RedactionPatterns()]  # of this process: what the configuration adds and takes away


def use_patterns(rules: RedactionPatterns) -> None:
    """Sets the operator's patterns, which redaction applies beside its own from now on."""
    _rules[0] = rules


def value(given: Any) -> Any:
    """Returns the same value with its secrets replaced. Plain JSON types in, plain JSON types out."""
    try:
        return _Walk().value(given, 0)
    except Exception:  # noqa: BLE001 -- a payload may be anything; when in doubt it stays hidden
        return MARK


def text(given: str) -> str:
    """Returns the same text with its secrets replaced; JSON inside it is understood, also when it is cut or escaped."""
    try:
        return _text(given)
    except Exception:  # noqa: BLE001 -- as above
        return MARK


def payload(given: str) -> str:
    """Redacts a JSON text: by its structure where it is whole, by what secrets look like where not."""
    try:
        parsed = bounded_json.loads(given) if given.lstrip().startswith(_JSON_STARTS) else None
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, (dict, list, str)):
        return _json(value(parsed))
    return text(given)


def member(name: str, given: str) -> str:
    """Redacts the value under a name: hides all of it where the name stands for a secret."""
    return MARK if secret_finder.is_secret_key(name) else payload(given)


class _Walk:
    """Pass over one value that counts what it looked at."""

    def __init__(self) -> None:
        self._left = NODE_LIMIT

    def value(self, given: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > DEPTH_LIMIT:
            return MARK
        if isinstance(given, dict):
            named = any(
                isinstance(given.get(key), str) and secret_finder.is_secret_key(given[key]) for key in _NAME_KEYS
            )
            return {
                self._key(key): MARK if named and key in _VALUE_KEYS else self._member(str(key), item, depth)
                for key, item in given.items()
            }
        if isinstance(given, (list, tuple)):
            return self._items(given, depth)
        if isinstance(given, str):
            return self._string(given, depth)
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return MARK if secret_finder.is_card(str(given)) else given
        return given if given is None or isinstance(given, bool) else MARK

    def _items(self, given: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        """Redacts items; of the shape ["password", "…"], in which headers come, the second is hidden."""
        if (
            len(given) == 2
            and isinstance(given[0], str)
            and _is_name(given[0])
            and secret_finder.is_secret_key(given[0])
        ):
            return [_text(given[0]), MARK]
        return [self.value(item, depth + 1) for item in given]

    def _member(self, key: str, item: Any, depth: int) -> Any:
        if item is None or isinstance(item, bool) or item in ("", [], {}):
            return item
        if secret_finder.is_secret_key(key) and not (secret_finder.is_counted(key) and _is_number(item)):
            return MARK
        return self.value(item, depth + 1)

    def _key(self, key: Any) -> str:
        return _text(str(key))

    def _string(self, given: str, depth: int) -> str:
        """Redacts a string. One that is JSON itself is parsed: payloads are often wrapped twice."""
        if given.lstrip().startswith(_JSON_STARTS[:2]):
            try:
                inner = bounded_json.loads(given)
            except (ValueError, RecursionError):
                return _text(given)
            return _json(self.value(inner, depth + 1))
        return _text(given)


def _text(given: str) -> str:
    if _ESCAPE_SHOWN in given or ansi.may_have(given):
        given = ansi.strip_codes(given.replace(_ESCAPE_SHOWN, _ESCAPE)).replace(_ESCAPE, _ESCAPE_SHOWN)
    head, rest = given[:TEXT_LIMIT], given[TEXT_LIMIT:]
    return _masked(head) + (f"… {len(rest):,} more characters hidden" if rest else "")


def _masked(given: str) -> str:
    found = secret_finder.find_secrets(given)
    rules = _rules[0]
    for pattern in rules.hide:
        group = "secret" if "secret" in pattern.groupindex else 0
        found += [match.span(group) for match in pattern.finditer(given)]
    if not found:
        return given
    if rules.hide:
        found = secret_finder.merge_spans(found)
    for pattern in rules.keep:
        kept = [match.span() for match in pattern.finditer(given)]
        found = [span for span in found if not any(start <= span[0] and span[1] <= end for start, end in kept)]
    parts, position = [], 0
    for start, end in found:
        parts += [given[position:start], MARK]
        position = end
    return "".join([*parts, given[position:]])


def _json(given: Any) -> str:
    """Writes JSON. Half of a surrogate pair is legal in JSON and nowhere else."""
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def _is_name(given: str) -> bool:
    """Returns False for a text with blanks, or with a value of its own behind a sign: it names no other text."""
    return len(given) <= _NAME_LIMIT and not _VALUED.search(given)


def _is_number(item: Any) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)
