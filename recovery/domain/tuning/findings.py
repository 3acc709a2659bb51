"""Findings of the tuning report: severity, place, arithmetic, remedy, and the text edits that carry the remedy out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.tuning.workloads import InsertPoint, TextSpan, WorkloadSetting


class Severity(StrEnum):
    """Severity of a finding, gravest first. A note is no fault."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NOTE = "note"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Edit of a text: the span from (line, column) to (end_line, end_column) becomes `text`; lines from 1, columns from
    0.

    `head`: the lines before it that open a block; of several edits with the same one at one point it is written once.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    head: str = ""


@dataclass(frozen=True, slots=True)
class TuningFinding:
    """A finding. `kind` names the rule. `arithmetic` "": there is none. `edits`: its part of the patch."""

    kind: str
    severity: Severity
    where: str
    says: str
    arithmetic: str = ""
    remedy: str = ""
    edits: tuple[TextEdit, ...] = ()


def sort_findings(found: list[TuningFinding]) -> tuple[TuningFinding, ...]:
    """Returns the findings without duplicates, most severe first."""
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.severity.rank))


def replace_value(place: TextSpan | None, value: str) -> tuple[TextEdit, ...]:
    """Returns the edit that replaces a value."""
    if place is None:
        return ()
    text = place.wrap.format(value)
    return (TextEdit(place.file, place.line, place.column, place.end_line, place.end_column, text),)


def remove_lines(setting: WorkloadSetting) -> tuple[TextEdit, ...]:
    """Returns the edit that removes the lines of a setting; nothing if these lines hold anything else."""
    place = setting.place
    if place is None or not place.first:
        return ()
    return (TextEdit(place.file, place.first, 0, place.last + 1, 0, ""),)


def add_lines(room: InsertPoint | None, *pairs: tuple[str, str]) -> tuple[TextEdit, ...]:
    """Returns the edit that adds names with their values, on new lines and with `head` before them where their block
    does not exist yet.
    """
    if room is None or not pairs:
        return ()
    if room.is_flow:
        text = "".join(f", {room.line.format(*pair)}" for pair in pairs)
        return (TextEdit(room.file, room.after, room.indent, room.after, room.indent, text),)
    indent = " " * room.indent
    entries = [room.line.format(*pair) for pair in pairs]
    text = "".join(f"{indent}{line}\n" for entry in entries for line in entry.split("\n"))
    head = "".join(f"{line}\n" for line in room.head)
    return (TextEdit(room.file, room.after + 1, 0, room.after + 1, 0, text, head),)


def number_text(value: float) -> str:
    """Formats seconds and counts as people write them: `45`, `2.5`."""
    return str(int(value)) if value == int(value) else f"{value:.3f}".rstrip("0")


def seconds_text(value: float) -> str:
    return f"{number_text(value)} s"
