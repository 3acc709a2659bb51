"""Findings of the doctor: the subject, the level, one sentence, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.errors import StoreError


class DoctorLevel(StrEnum):
    GOOD = "ok"
    WARNING = "warning"  # it works, and something is missing or dangerous
    WRONG = "wrong"  # it does not work


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    about: str
    level: DoctorLevel
    says: str
    remedy: str = ""


def good(about: str, says: str) -> DoctorFinding:
    return DoctorFinding(about, DoctorLevel.GOOD, says)


def warning(about: str, says: str, remedy: str) -> DoctorFinding:
    return DoctorFinding(about, DoctorLevel.WARNING, says, remedy)


def wrong(about: str, says: str, remedy: str) -> DoctorFinding:
    return DoctorFinding(about, DoctorLevel.WRONG, says, remedy)


def silent(about: str, error: StoreError) -> DoctorFinding:
    """Returns the finding for a store that does not answer."""
    return wrong(about, f"{error.target}: {error.reason}.", error.advice)
