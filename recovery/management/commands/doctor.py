"""Checks everything that is configured, and prints what is wrong with its remedy."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from recovery.domain.identifiers import visible
from recovery.errors import ConfigError
from recovery.management.doctor.runner import DoctorFinding, DoctorLevel, examine
from recovery.processes import up_environment

_WIDTH = len(DoctorLevel.WARNING) + 2


class Command(BaseCommand):
    help = "Check the whole configuration. Exit status: 0, or 1 when something is wrong."
    requires_system_checks = ()  # they are among the findings

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        with suppress(ConfigError):  # it is among the findings
            up_environment.adopt(Path(settings.DATA_DIR))
        findings = self._as_json() if options["json"] else self._as_text()
        if any(finding.level is DoctorLevel.WRONG for finding in findings):
            raise SystemExit(1)

    def _as_json(self) -> list[DoctorFinding]:
        findings = list(examine())
        is_well = all(finding.level is not DoctorLevel.WRONG for finding in findings)
        rows = [asdict(finding) for finding in findings]
        self.stdout.write(json.dumps({"ok": is_well, "findings": rows}, indent=2))
        return findings

    def _as_text(self) -> list[DoctorFinding]:
        findings: list[DoctorFinding] = []
        for about, group in groupby(_kept(examine(), findings), key=lambda finding: finding.about):
            self.stdout.write(f"{about}")
            for finding in group:
                self.stdout.write(f"  {finding.level:<{_WIDTH}}{visible(finding.says)}")
                if finding.remedy:
                    self.stdout.write(f"  {'':<{_WIDTH}}→ {visible(finding.remedy)}")
        self.stdout.write(_summary(findings))
        return findings


def _kept(findings: Iterable[DoctorFinding], kept: list[DoctorFinding]) -> Iterator[DoctorFinding]:
    for finding in findings:
        kept.append(finding)
        yield finding


def _summary(findings: list[DoctorFinding]) -> str:
    wrong = sum(finding.level is DoctorLevel.WRONG for finding in findings)
    warnings = sum(finding.level is DoctorLevel.WARNING for finding in findings)
    if not wrong and not warnings:
        return "\nNo problems found."
    return f"\n{wrong} wrong, {warnings} warning{'s' * (warnings != 1)}."
