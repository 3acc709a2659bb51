"""JSON Schemas of queues: read and compiled once, at the start, so that a mistake in one is reported then.

A `$ref` never leaves its file: what a schema names is not fetched, neither from a network nor from a disk. `format` is
left unchecked, as the standard has it: libraries draw those lines elsewhere, and a handler may take what one refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recovery.config.validation import ConfigProblems

FILE_LIMIT = 256 * 1024  # bytes: more is a wrong path
_WRITE = "Write a JSON Schema of draft 4, 6, 7 or 2019-09."
_DRAFTS = ("draft-04", "draft-06", "draft-07", "draft/2019-09")
_SAID = 200  # characters of a library's own words


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """A schema. `check` raises fastjsonschema.JsonSchemaValueException; never show its message: it quotes data."""

    path: str
    check: Callable[[Any], object] = field(repr=False, compare=False)


class _BadSchema(ValueError):
    """Raised with what is wrong with a schema, as it is reported."""


def read_schema(path: str, where: str, problems: ConfigProblems) -> PayloadSchema | None:
    """Reads and compiles a schema; returns None if none is named, and after a problem."""
    if not path:
        return None
    try:
        return PayloadSchema(path, _compiled(_content(path)))
    except _BadSchema as bad:
        problems.add(where, f"names {path}, {bad}", _WRITE)
    return None


def _content(path: str) -> Any:
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise _BadSchema(f"which cannot be read: {error.strerror}.") from error
    if len(content) > FILE_LIMIT:
        raise _BadSchema(f"which is larger than {FILE_LIMIT // 1024} KB.")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _BadSchema(f"which is not JSON: {str(error)[:_SAID]}.") from error


def _compiled(written: Any) -> Callable[[Any], object]:
    if not isinstance(written, dict):
        raise _BadSchema("which is not a JSON object.")
    draft = written.get("$schema")
    if draft is not None and not any(known in str(draft) for known in _DRAFTS):
        # The compiler would silently ignore what is new in a draft that it does not know.
        raise _BadSchema("whose $schema is an unsupported draft.")
    # Not above: a monitor reads the configuration too, and its server need not have this package.
    import fastjsonschema  # noqa: PLC0415

    try:
        compiled: Callable[[Any], object] = fastjsonschema.compile(
            written, handlers=_Nowhere(), use_default=False, use_formats=False
        )
    except _BadSchema:
        raise
    except Exception as error:  # a wrong schema makes the compiler raise anything
        raise _BadSchema(f"which is not a JSON Schema: {str(error)[:_SAID] or type(error).__name__}.") from error
    return compiled


def _refused(uri: str) -> Any:
    raise _BadSchema(f"which refers to {uri[:_SAID]}: only references within the same file are supported.")


class _Nowhere(dict[str, Callable[[str], Any]]):
    """Stands for every scheme of a URI: what is not here the compiler would fetch by itself."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        return _refused
