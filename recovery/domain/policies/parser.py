"""Parses a policy as written in TOML and as edited on the page; reports all problems at once.

idempotency = "sending twice is refused by the provider"
[orphan_watch]
release = true       # take the lock of a job whose holder's connection is gone; of the stale_check too
[auto_retry]
mode = "enabled"         # or "dry-run"
after = 60           # seconds
most = 50
[backoff."mail*"]    # `*` alone is the default of the queue
attempts = 3
first = 5            # seconds
[never]
names = ["charge"]
signatures = ["card declined"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from recovery.domain.auto_retry.backoff import ATTEMPTS_LIMIT, FACTOR_LIMIT, PAUSE_LIMIT, Backoff
from recovery.domain.auto_retry.error_signatures import signature
from recovery.domain.identifiers import encode_name
from recovery.domain.policies import policy_layers
from recovery.domain.policies.policy_layers import Path
from recovery.domain.policies.types import MAY_RELEASE, PolicyScanner, ScannerMode
from recovery.domain.time_units import DAY, SECOND
from recovery.errors import Problem

AFTER_LIMIT = 30 * DAY  # no scanner waits for longer
MOST_LIMIT = 10_000  # jobs in one run: more is a bulk run, which can be watched and stopped
NOTE_LIMIT = 2_000  # characters
ENTRIES_LIMIT = 500  # of each list: every failed job is compared with each of them
NAME_LIMIT = 500  # characters

Values = dict[Path, Any]
Report = Callable[[str, str, str], None]


def read_policy(written: Mapping[str, Any], where: str = "") -> tuple[Values, tuple[Problem, ...]]:
    """Returns the values of one layer, and its problems. Invalid entries are left out, so a layer with problems is for
    showing only: an entry of a never-list may be missing. `where` stands before each key.
    """
    problems: list[Problem] = []
    values: Values = {}

    def report(key: str, problem: str, remedy: str) -> None:
        problems.append(Problem(_sayable(f"{where}{key}"), problem, remedy))

    for name, value in _known(written, _READERS, "", report).items():
        values |= _READERS[name](value, name, report)
    return values, tuple(problems)


def _duty(written: Any, name: str, report: Report) -> Values:
    readers = {
        "mode": _mode,
        "after": _seconds(AFTER_LIMIT),
        "most": _number(1, MOST_LIMIT, whole=True),
    }
    if PolicyScanner(name.replace("_", "-")) in MAY_RELEASE:
        readers["release"] = _flag
    found = _read_each(written, readers, name, report)
    return {(name, key): value for key, value in found.items()}


def _backoff(written: Any, name: str, report: Report) -> Values:
    if not isinstance(written, dict):
        return _refuse(report, name, written, "a table with one entry per job name")
    found: Values = {}
    for job, table in list(written.items())[:ENTRIES_LIMIT]:
        backoff = _one_backoff(table, f"{name}.{job}", report)
        if backoff is not None and _is_name(job, f"{name}.{job}", report):
            found[policy_layers.BACKOFF, job] = backoff
    _bounded(len(written), name, report)
    return found


def _one_backoff(written: Any, where: str, report: Report) -> Backoff | None:
    """Parses one backoff. Missing values are the defaults, but for `longest`, which is never less than `first`."""
    readers = {
        "attempts": _number(0, ATTEMPTS_LIMIT, whole=True),
        "first": _seconds(PAUSE_LIMIT),
        "factor": _number(1, FACTOR_LIMIT),
        "longest": _seconds(PAUSE_LIMIT),
        "jitter": _number(0, 1),
    }
    found = _read_each(written, readers, where, report)
    first, longest = found.get("first", Backoff().first), found.get("longest")
    if longest is not None and longest < first:
        report(f"{where}.longest", "is shorter than the first pause.", "Write at least as many seconds as in first.")
        return None
    found["longest"] = max(first, Backoff().longest) if longest is None else longest
    return Backoff(**found)


def _never(written: Any, name: str, report: Report) -> Values:
    readers = {policy_layers.NAMES: _texts, policy_layers.SIGNATURES: _signatures}
    found = _read_each(written, readers, name, report)
    return {(name, kind, entry): True for kind, entries in found.items() for entry in entries}


def _note(written: Any, name: str, report: Report) -> Values:
    if not isinstance(written, str) or len(written) > NOTE_LIMIT or _sayable(written) != written:
        return _refuse(report, name, written, f"a string of at most {NOTE_LIMIT:,} characters")
    return {(policy_layers.NOTE,): written.strip()}


_READERS: Mapping[str, Callable[[Any, str, Report], Values]] = {
    **{scanner.field: _duty for scanner in PolicyScanner},
    policy_layers.BACKOFF: _backoff,
    policy_layers.NEVER: _never,
    policy_layers.NOTE: _note,
}

# -- one value: None after a problem
_Reader = Callable[[Any, str, Report], Any]


def _read_each(written: Any, readers: Mapping[str, _Reader], where: str, report: Report) -> dict[str, Any]:
    if not isinstance(written, dict):
        return _refuse(report, where, written, "a table")
    known = _known(written, readers, f"{where}.", report)
    found = {key: readers[key](value, f"{where}.{key}", report) for key, value in known.items()}
    return {key: value for key, value in found.items() if value is not None}


def _mode(written: Any, where: str, report: Report) -> ScannerMode | None:
    if isinstance(written, str) and written in tuple(ScannerMode):
        return ScannerMode(written)
    _refuse(report, where, written, " or ".join(f'"{mode.value}"' for mode in ScannerMode))
    return None


def _flag(written: Any, where: str, report: Report) -> bool | None:
    if isinstance(written, bool):
        return written
    _refuse(report, where, written, "true or false")
    return None


def _number(low: float, high: float, *, whole: bool = False) -> _Reader:
    def read(written: Any, where: str, report: Report) -> float | int | None:
        kinds = (int,) if whole else (int, float)
        if type(written) in kinds and low <= written <= high:
            return int(written) if whole else float(written)
        _refuse(report, where, written, f"a {'whole ' if whole else ''}number from {_plain(low)} to {_plain(high)}")
        return None

    return read


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


def _seconds(longest: int) -> _Reader:
    seconds = _number(0, longest / SECOND)

    def read(written: Any, where: str, report: Report) -> int | None:
        found = seconds(written, where, report)
        return None if found is None else round(found * SECOND)

    return read


def _texts(written: Any, where: str, report: Report) -> tuple[str, ...] | None:
    if not isinstance(written, list) or not all(isinstance(entry, str) and entry.strip() for entry in written):
        _refuse(report, where, written, 'a list of strings, like ["a", "b"]')
        return None
    _bounded(len(written), where, report)
    return tuple(entry for entry in written[:ENTRIES_LIMIT] if _is_name(entry, where, report))


def _signatures(written: Any, where: str, report: Report) -> tuple[str, ...] | None:
    """Parses signatures as they are compared: without what varies between jobs; a rest is required."""
    entries = _texts(written, where, report)
    bare = [entry for entry in entries or () if not signature(entry).replace("#", "").strip()]
    for entry in bare:
        report(
            where, f"holds {entry[:40]!r}, which is empty when its numbers are left out.", "Write words of the error."
        )
    return None if entries is None else tuple(signature(entry) for entry in entries if entry not in bare)


def _is_name(name: str, where: str, report: Report) -> bool:
    if name.strip() and len(name) <= NAME_LIMIT and _sayable(name) == name:
        return True
    report(where[:NAME_LIMIT], "is empty, too long or not a string.", f"Write 1 to {NAME_LIMIT} characters.")
    return False


def _sayable(text: str) -> str:
    """Replaces halves of characters, which JSON can hold, but no job name is made of and nothing could show."""
    try:
        encode_name(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _bounded(number: int, where: str, report: Report) -> None:
    if number > ENTRIES_LIMIT:
        report(where, f"has {number:,} entries.", f"Write at most {ENTRIES_LIMIT}.")


def _known(written: Mapping[str, Any], readers: Mapping[str, object], where: str, report: Report) -> dict[str, Any]:
    for name in written.keys() - readers.keys():
        close = get_close_matches(str(name), readers, n=1)
        report(f"{where}{name}", "is not a setting.", f"Did you mean {close[0]}?" if close else _choices(readers))
    return {name: value for name, value in written.items() if name in readers}


def _choices(readers: Mapping[str, object]) -> str:
    return f"Known: {', '.join(readers)}."


def _refuse(report: Report, where: str, written: Any, wanted: str) -> dict[Any, Any]:
    """Reports an unexpected value. The value itself is only shown where it cannot be a misplaced secret."""
    is_plain = isinstance(written, int | float)
    report(where, f"is {written!r}." if is_plain else "has an unexpected value.", f"Write {wanted}.")
    return {}
