"""Typed readers of a TOML table and of the environment: they collect every problem instead of stopping at one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recovery.config.schema import INTERVALS, SECRETS, THRESHOLDS, VARIABLES, ConfigKey, SettingKind
from recovery.errors import Problem

SECRET_LIMIT = 64 * 1024  # bytes of a secret's file: more is a wrong path
_CLOSE = 0.8  # how alike two names must be for "did you mean"
_PREFIX = "UNSTALL_"
_FLAGS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("", "0", "false", "no", "off"), False)
_IN_FILE = {key.name: table for table, keys in (("intervals", INTERVALS), ("thresholds", THRESHOLDS)) for key in keys}


@dataclass(slots=True)
class ConfigProblems:
    """The problems found so far."""

    found: list[Problem] = field(default_factory=list)

    def add(self, key: str, problem: str, remedy: str) -> None:
        self.found.append(Problem(key, problem, remedy))


def read_table(
    written: Mapping[str, Any], keys: Iterable[ConfigKey], where: str, folder: Path, problems: ConfigProblems
) -> dict[str, Any]:
    """Returns each key of the table with its value or default. `where` stands before the key's name in a problem."""
    known = {key.name: key for key in keys}
    for name in written:
        if name not in known:
            problems.add(f"{where}{name}", "is not a setting.", _did_you_mean(name, known))
    return {
        name: _value(key, written[name], f"{where}{name}", folder, problems) if name in written else key.default
        for name, key in known.items()
    }


def _value(key: ConfigKey, written: Any, where: str, folder: Path, problems: ConfigProblems) -> Any:
    if not _fits(key.kind, written):
        problems.add(where, f"is {_described(written)}.", f"Write {key.kind}.")
        return key.default
    if key.kind is SettingKind.NUMBER:
        return _bounded(key, float(written), where, problems)
    if key.kind in (SettingKind.NAMES, SettingKind.VALUES):
        return tuple(written) if isinstance(written, list) else (written,)
    if key.kind is SettingKind.FILE:
        return _readable(written, where, folder, problems)
    return written


def _fits(kind: SettingKind, written: Any) -> bool:  # noqa: PLR0911 -- a table
    match kind:
        case SettingKind.TEXT | SettingKind.FILE:
            return isinstance(written, str)
        case SettingKind.NUMBER:
            return isinstance(written, int | float) and not isinstance(written, bool)
        case SettingKind.FLAG:
            return isinstance(written, bool)
        case SettingKind.NAMES:
            return isinstance(written, list) and all(isinstance(name, str) and name for name in written)
        case SettingKind.VALUES:
            found = written if isinstance(written, list) else [written]
            return all(isinstance(value, str | int) and not isinstance(value, bool) and value != "" for value in found)
        case SettingKind.TABLE:
            return isinstance(written, dict)
        case SettingKind.TABLES:
            return isinstance(written, list) and all(isinstance(table, dict) for table in written)


def _described(written: Any) -> str:
    """Returns the type of what was written, never the value: it may be a secret in the wrong place."""
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", dict: "a table"}
    if isinstance(written, list):
        return "a list of something else"
    return names.get(type(written), "a date or a time")


def _bounded(key: ConfigKey, number: float, where: str, problems: ConfigProblems) -> float:
    if key.low <= number <= key.high:
        return number
    problems.add(where, f"is {number:g}.", f"Write a number from {key.low:g} to {key.high:g}.")
    return float(key.default) if isinstance(key.default, int | float) else key.low


def _readable(written: str, where: str, folder: Path, problems: ConfigProblems) -> str:
    path = folder / Path(written).expanduser()
    try:
        with path.open("rb"):
            return str(path)
    except OSError as error:
        problems.add(where, f"names {path}, which cannot be read: {error.strerror}.", "Write the path of a file.")
        return ""


def secret_file(path: str, where: str, problems: ConfigProblems) -> str:
    """Reads a secret from its file, without the newline that an editor left; returns "" after a problem."""
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(SECRET_LIMIT + 1)
    except OSError as error:
        problems.add(where, f"names {path}, which cannot be read: {error.strerror}.", "Write the path of a file.")
        return ""
    secret = content.decode("utf-8", "replace").strip("\r\n")
    if not secret or len(content) > SECRET_LIMIT or "\n" in secret:
        problems.add(
            where, f"names {path}, which does not have exactly one line.", "Write only the secret into the file."
        )
        return ""
    return secret


def secret(environ: Mapping[str, str], name: str, problems: ConfigProblems) -> str:
    """Returns the variable, or the content of the file that NAME_FILE names; "" when neither is set."""
    value, path = environ.get(name, "").strip(), environ.get(f"{name}_FILE", "").strip()
    if value and path:
        problems.add(f"{name}_FILE", f"is set, and {name} too.", "Set one of the two.")
    if value or not path:
        return value
    return secret_file(path, f"{name}_FILE", problems)


def flag(environ: Mapping[str, str], name: str, problems: ConfigProblems) -> bool:
    """Returns the variable as a bool; False when it is not set."""
    value = environ.get(name, "").strip().lower()
    if value not in _FLAGS:
        problems.add(name, "is not a yes or no.", "Write 1, or leave it out.")
    return _FLAGS.get(value, False)


def refuse_misspelled(environ: Mapping[str, str], problems: ConfigProblems) -> None:
    """Refuses variables that look like one of ours but are not. Names that look like nothing of ours are left alone."""
    known = {*VARIABLES, *(f"{name}_FILE" for name in SECRETS)}
    for name in sorted(name for name in environ.keys() - known if name.startswith(_PREFIX)):
        if close := difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE):
            problems.add(name, "is not a setting.", f"Did you mean {close[0]}?")
        elif close := difflib.get_close_matches(name.removeprefix(_PREFIX).lower(), _IN_FILE, n=1, cutoff=_CLOSE):
            table = _IN_FILE[close[0]]
            problems.add(name, "is not a setting.", f"Did you mean {close[0]}? It is set in the file, under [{table}].")


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    known = tuple(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}."
