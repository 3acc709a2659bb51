"""What happens to a job if nobody acts, in one sentence, and until when at the latest."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.ages import age
from recovery.domain.jobs import JobRow
from recovery.domain.policy import Scanner
from recovery.domain.promises import NOTHING, RELEASES, Outlook, Promise
from recovery.domain.surroundings import Parent, Surroundings
from recovery.domain.verdicts import Kind

_Told = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Fate:
    """`until`: when at the latest, None: never, or nobody knows. `rescuer`: the scanner that does it by itself."""

    words: str
    until: int | None = None
    rescuer: Scanner | None = None


def fate(kind: Kind, row: JobRow, around: Surroundings, ahead: Outlook = NOTHING) -> Fate:
    """What the library does, or a scanner of ours where that one is first."""
    words, until = _alone(kind, row, around)
    first = ahead.first
    if first is not None and (until is None or first.at < until):
        return Fate(_rescue(kind, row, around, first), first.at, first.scanner)
    held = "" if until is not None else "".join(f" {_name(one)} is armed, but {one.held}." for one in ahead.held)
    return Fate(f"{words}{held}", until)


def _rescue(kind: Kind, row: JobRow, around: Surroundings, first: Promise) -> str:
    within = f"within {age(first.at - around.now)}"
    if kind is Kind.GHOST:
        return f"{_name(first)} {first.does} {within}, unless a worker runs it before, without its name and data."
    waits = _waits(around)
    if row.lock is None or row.lock.ttl is None or first.does == RELEASES:
        return f"{_name(first)} {first.does} {within}{waits}."
    unless = " unless it is renewed" if kind is Kind.LATE else ""
    return f"The lock ends in {age(row.lock.ttl)}{unless}; then {first.scanner.value} {first.does}, {within}{waits}."


def _waits(around: Surroundings) -> str:
    """What hinders it from being run then."""
    if around.is_paused:
        return "; it waits then, because the queue is paused"
    return "; it waits then, because no worker is connected" if around.nobody_is_here else ""


def _name(promise: Promise) -> str:
    return promise.scanner.value.capitalize()


def _alone(kind: Kind, row: JobRow, around: Surroundings) -> _Told:
    match kind:
        case Kind.LATE | Kind.DOOMED:
            return _expiring(kind, row, around)
        case Kind.UNLOCKED | Kind.ORPHAN:
            return _watched(row, around)
        case Kind.ABANDONED:
            return f"Nothing happens: {_why_dead(around)}.", None
        case Kind.GHOST:
            return _ghost(row, around)
        case _:
            return _SAID[kind], None


_SAID = {
    Kind.HELD: "Nothing happens: its worker renews the lock.",
    Kind.OVERDUE: "Nothing happens: its worker renews the lock, so it may run for ever.",
    Kind.STRAY: "It runs on for nobody: nothing waits for what it returns.",
    Kind.UNKNOWN: "Unknown.",
}


def dead_words(around: Surroundings) -> str:
    """A sentence: that no watchdog is alive."""
    said = _why_dead(around)
    return f"{said[0].upper()}{said[1:]}."


def parent_words(row: JobRow, parent: Parent) -> str:
    how = "has failed" if parent is Parent.FAILED else "is not there any more"
    return f"Its parent {how}."


def _expiring(kind: Kind, row: JobRow, around: Surroundings) -> _Told:
    ttl = row.lock.ttl if row.lock else None
    if ttl is None:
        return "Nothing happens: the lock never ends, so no watchdog will take it.", None
    unless = " unless it is renewed" if kind is Kind.LATE else ""
    if around.watchdog_is_dead:
        return f"The lock ends in {age(ttl)}{unless}; then nothing: {_why_dead(around)}.", None
    within = around.stalled_interval
    told = f"the watchdog of a worker takes it within {age(within)}{_then(row, around)}"
    return f"The lock ends in {age(ttl)}{unless}; then {told}.", around.now + ttl + within


def _watched(row: JobRow, around: Surroundings) -> _Told:
    if around.watchdog_is_dead:
        return f"Nothing happens: {_why_dead(around)}.", None
    within = around.rescued_within
    said = f"The watchdog of a worker takes it within {age(within)}{_then(row, around)}."
    if around.nobody_is_here is None:
        return f"{said} Whether a worker is connected is not known.", around.now + within
    return said, around.now + within


def _then(row: JobRow, around: Surroundings) -> str:
    """What the library does with it. How many stalls its workers allow is in no key; one is the default."""
    if row.stalls:
        return f"; it has stalled {_times(row.stalls)} before, so it fails unless more are allowed"
    if around.is_n8n:
        return "; n8n 2 and later fail it then"
    return "; it waits then, because the queue is paused" if around.is_paused else ""


def _ghost(row: JobRow, around: Surroundings) -> _Told:
    if row.lock is not None:
        return "Its worker cannot finish it: the library finds no such job.", None
    if around.watchdog_is_dead:
        return f"Nothing happens while {_why_dead(around)}; a later worker may run it without its name and data.", None
    return "The watchdog puts the id back, and a worker may run it without its name and data.", None


def _why_dead(around: Surroundings) -> str:
    if around.nobody_is_here:
        return "no worker is connected, so there is no watchdog"
    silent = around.watchdog_silent_for
    checked = f"nobody has run the stalled check for {age(silent)}" if silent is not None else "there is no watchdog"
    return checked if around.workers is None else f"workers are connected, but {checked}"


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
