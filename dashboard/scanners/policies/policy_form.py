"""Builds the form of a policy, every setting with what applies without it, and reads it back as the file writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recovery.domain.auto_retry.backoff import ANY, Backoff
from recovery.domain.policies.policy_layers import BACKOFF, NAMES, NEVER, NOTE, SIGNATURES, ResolvedPolicy
from recovery.domain.policies.types import MAY_RELEASE, NEEDS_NOTE, PolicyScanner, ScannerMode, ScannerPolicy
from recovery.domain.time_units import SECOND
from recovery.errors import Problem

ROWS_LIMIT = 60  # of the backoff table in a form; the file takes more
_FRESH = 2  # empty rows, so that something can be added without scripts
_COLUMNS = ("attempts", "first", "factor", "longest", "jitter")
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,6})?", re.ASCII)
_SAID = {"true": True, "false": False}
_MODES = {ScannerMode.DRY_RUN: "Dry run", ScannerMode.ENABLED: "Enabled"}
_ABOUT = {
    PolicyScanner.ORPHAN_WATCH: "Requeues jobs as soon as it is proven that their worker is lost.",
    PolicyScanner.STALE_CHECK: "Recovers jobs that have been stuck for long, whatever else should have recovered them.",
    PolicyScanner.AUTO_RETRY: "Retries failed jobs automatically, within the budget and the breakers.",
    PolicyScanner.STARTUP_SWEEP: "Job tables only: rows left running by a process that no longer exists.",
}


@dataclass(frozen=True, slots=True)
class PolicyInput:
    """A field of the form. `without`: what applies when it is left empty."""

    name: str
    label: str
    value: str
    without: str = ""
    wrong: str = ""
    values: tuple[tuple[str, str], ...] = ()  # of a select

    @property
    def id(self) -> str:
        return f"policy-{self.name.replace('.', '-')}"


@dataclass(frozen=True, slots=True)
class ScannerPolicyFields:
    """Fields of one scanner. `warns`: it is enabled, but stays in dry run for lack of an idempotency note."""

    scanner: str
    about: str
    inputs: tuple[PolicyInput, ...]
    warns: bool = False


@dataclass(frozen=True, slots=True)
class BackoffLine:
    """A line of the backoff table."""

    number: int
    inputs: tuple[PolicyInput, ...]
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class PolicyForm:
    parts: tuple[ScannerPolicyFields, ...]
    pauses: tuple[BackoffLine, ...]
    never: tuple[PolicyInput, ...]
    note: PolicyInput
    pauses_below: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()  # what belongs to no field


def read(posted: Mapping[str, str]) -> dict[str, Any]:
    """Returns what was filled in, as the file would have it. What is no number stays a text, so that it is refused."""
    written: dict[str, Any] = {}
    for scanner in PolicyScanner:
        if told := _duty(posted, scanner):
            written[scanner.field] = told
    if table := _backoff(posted):
        written[BACKOFF] = table
    lists = {kind: _lines(posted.get(f"{NEVER}.{kind}", "")) for kind in (NAMES, SIGNATURES)}
    if told := {kind: entries for kind, entries in lists.items() if entries}:
        written[NEVER] = told
    if note := posted.get(NOTE, "").strip():
        written[NOTE] = note
    return written


def form(
    written: Mapping[str, Any],
    below: ResolvedPolicy,
    problems: Iterable[Problem] = (),
    scanners: Iterable[PolicyScanner] = PolicyScanner,
) -> PolicyForm:
    """Builds the form. `below`: the policy without this edit. `problems` of an earlier try stand beside their fields.
    `scanners`: those that check such queues; what is written of others is shown too.
    """
    shown = {*scanners, *(one for one in PolicyScanner if one.field in written)}
    wrong = {problem.key: f"It {problem.problem} {problem.remedy}" for problem in problems}
    parts = tuple(_part(scanner, written, below, wrong) for scanner in PolicyScanner if scanner in shown)
    pauses = tuple(_pauses(_table(written, BACKOFF), wrong))
    never = tuple(_never(kind, _table(written, NEVER), below, wrong) for kind in (NAMES, SIGNATURES))
    note = _text(written, NOTE)
    named = PolicyInput(NOTE, "Idempotency note", note, below.policy.idempotency, wrong.pop(NOTE, ""))
    left = tuple(f"{key}: {said}" for key, said in wrong.items())
    return PolicyForm(parts, pauses, never, named, below.policy.backoffs.words, left)


def duplicate_names(posted: Mapping[str, str]) -> tuple[Problem, ...]:
    """Returns a problem for each name in two lines of the backoff table, of which only one would apply."""
    names = [name for name, _ in _filled(posted)]
    again = dict.fromkeys(name for name in names if names.count(name) > 1)
    return tuple(Problem(f"{BACKOFF}.{name}", "is listed twice.", "Keep one of the lines.") for name in again)


# -- what was posted


def _duty(posted: Mapping[str, str], scanner: PolicyScanner) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if mode := posted.get(f"{scanner.field}.mode", ""):
        told["mode"] = mode
    for name in ("after", "most"):
        if said := posted.get(f"{scanner.field}.{name}", "").strip():
            told[name] = _number(said)
    if release := posted.get(f"{scanner.field}.release", ""):
        told["release"] = _SAID.get(release, release)
    return told


def _backoff(posted: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {column: _number(said) for column in _COLUMNS if (said := posted.get(f"{row}.{column}", "").strip())}
        for name, row in _filled(posted)
    }


def _filled(posted: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the lines of the table in which anything stands: their name, and how their fields begin."""
    rows = [f"{BACKOFF}.{number}" for number in range(ROWS_LIMIT) if f"{BACKOFF}.{number}.name" in posted]
    said = [(posted[f"{row}.name"].strip(), row) for row in rows]
    return [
        (name, row) for name, row in said if name or any(posted.get(f"{row}.{one}", "").strip() for one in _COLUMNS)
    ]


def _number(said: str) -> int | float | str:
    if not _NUMBER.fullmatch(said):
        return said
    return float(said) if "." in said else int(said)


def _lines(said: str) -> list[str]:
    return list(dict.fromkeys(line.strip() for line in said.splitlines() if line.strip()))


# -- what is shown


def _part(
    scanner: PolicyScanner, written: Mapping[str, Any], below: ResolvedPolicy, wrong: dict[str, str]
) -> ScannerPolicyFields:
    told, duty = _table(written, scanner.field), below.policy.duty(scanner)

    def shown(name: str, label: str, without: str, values: Sequence[tuple[str, str]] = ()) -> PolicyInput:
        key = f"{scanner.field}.{name}"
        return PolicyInput(key, label, _said(told.get(name)), without, wrong.pop(key, ""), tuple(values))

    inputs = [
        shown("mode", "Mode", "", _choice(f"Inherit ({_MODES[duty.mode].lower()})", _modes())),
        shown("after", "After, s", _seconds(duty.after)),
        shown("most", "Max jobs per run", str(duty.most)),
    ]
    if scanner in MAY_RELEASE:
        without = f"Inherit ({'yes' if duty.release else 'no'})"
        inputs.append(shown("release", "Release locks", "", _choice(without, (("true", "yes"), ("false", "no")))))
    return ScannerPolicyFields(
        scanner.value, _ABOUT[scanner], tuple(inputs), _lacks_note(scanner, told, duty, written, below)
    )


def _lacks_note(
    scanner: PolicyScanner,
    told: Mapping[str, Any],
    duty: ScannerPolicy,
    written: Mapping[str, Any],
    below: ResolvedPolicy,
) -> bool:
    acts = told.get("mode", duty.mode.value) == ScannerMode.ENABLED.value
    return acts and scanner in NEEDS_NOTE and not (_text(written, NOTE) or below.policy.idempotency).strip()


def _choice(without: str, values: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return ("", without), *values


def _modes() -> tuple[tuple[str, str], ...]:
    return tuple((mode.value, _MODES[mode]) for mode in ScannerMode)


def _pauses(table: Mapping[str, Any], wrong: dict[str, str]) -> Iterable[BackoffLine]:
    without = _columns(Backoff())  # a value that a line leaves out is the built-in default, not inherited
    rows: list[tuple[str, Any]] = [*table.items(), *[("", {})] * _FRESH]
    for number, (name, line) in enumerate(rows[:ROWS_LIMIT]):
        about = f"{BACKOFF}.{name}"
        said = [wrong.pop(key) for key in sorted(wrong) if name and (key == about or key.startswith(f"{about}."))]
        told = line if isinstance(line, dict) else {}
        named = PolicyInput(
            f"{BACKOFF}.{number}.name", "Job name", name, f"{ANY} matches every other job" if not name else ""
        )
        others = (
            PolicyInput(f"{BACKOFF}.{number}.{column}", _HEADS[column], _said(told.get(column)), without[column])
            for column in _COLUMNS
        )
        yield BackoffLine(number, (named, *others), " ".join(said))


_HEADS = {
    "attempts": "Auto-retries",
    "first": "First delay, s",
    "factor": "Factor",
    "longest": "Max delay, s",
    "jitter": "Jitter, 0 to 1",
}


def _columns(backoff: Backoff) -> dict[str, str]:
    return {
        "attempts": str(backoff.attempts),
        "first": _seconds(backoff.first),
        "factor": f"{backoff.factor:g}",
        "longest": _seconds(backoff.longest),
        "jitter": f"{backoff.jitter:g}",
    }


def _never(kind: str, told: Mapping[str, Any], below: ResolvedPolicy, wrong: dict[str, str]) -> PolicyInput:
    entries = told.get(kind)
    value = "\n".join(map(str, entries)) if isinstance(entries, list) else ""
    already = sorted(below.policy.never.names if kind == NAMES else below.policy.never.signatures)
    label = "Jobs with these names" if kind == NAMES else "Errors that contain this text"
    key = f"{NEVER}.{kind}"
    return PolicyInput(key, label, value, ", ".join(already), wrong.pop(key, ""))


def _table(written: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a table of the policy; empty for anything else, which another version may have written."""
    found = written.get(name)
    return found if isinstance(found, dict) else {}


def _text(written: Mapping[str, Any], name: str) -> str:
    found = written.get(name)
    return found if isinstance(found, str) else ""


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _seconds(ms: int) -> str:
    return f"{ms / SECOND:g}"
