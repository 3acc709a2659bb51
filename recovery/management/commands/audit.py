"""The audit from the shell: is the chain whole, where does it end, and all of it for a file."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from recovery.reads import audit

BROKEN, WRONG_CALL, UNREACHABLE = 1, 2, 4


class Command(BaseCommand):
    help = (
        "verify: exit status 0 when the chain is whole, 1 when it is not. head: its end, to be kept elsewhere; "
        "verify --head FILE then proves that nothing up to there was changed. export: all of it."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True)
        verify = commands.add_parser("verify", help="make every hash again and follow every link")
        verify.add_argument("--head", type=Path, metavar="FILE", help="what `audit head` wrote earlier")
        verify.add_argument("--json", action="store_true", help="for scripts")
        commands.add_parser("head", help="print the end of the chain")
        export = commands.add_parser("export", help="print every entry")
        export.add_argument("--format", choices=audit.FORMATS, default="json")

    def handle(self, *_: Any, **given: Any) -> None:
        try:
            self._run(given)
        except DatabaseError as error:
            raise CommandError(f"The database does not answer: {error}", returncode=UNREACHABLE) from error

    def _run(self, given: dict[str, Any]) -> None:
        match given["what"]:
            case "verify":
                self._verify(given["head"], as_json=given["json"])
            case "head":
                self.stdout.write(audit.head().written())
            case _:
                for piece in audit.export(given["format"]):
                    self.stdout.write(piece, ending="")

    def _verify(self, file: Path | None, *, as_json: bool) -> None:
        report = audit.verify(_head(file) if file else None)
        if as_json:
            self.stdout.write(_document(report))
        elif report.is_sound:
            self.stdout.write(f"The chain is whole up to #{report.head.number}: {report.head.hash or 'it is empty'}")
        if report.is_sound:
            return
        told = [f"#{finding.number} {finding.kind}: {finding.text}" for finding in report.findings]
        raise CommandError("\n".join(["The chain is broken.", *told]), returncode=BROKEN)


def _head(file: Path) -> audit.Head:
    try:
        return audit.Head.read(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}", returncode=WRONG_CALL) from error
    except audit.NotAHead as error:
        raise CommandError(f"{file}: {error}", returncode=WRONG_CALL) from error


def _document(report: audit.Report) -> str:
    findings = [{"number": one.number, "kind": one.kind, "text": one.text} for one in report.findings]
    facts = {"is_sound": report.is_sound, "checked": report.checked, "findings": findings}
    return json.dumps(facts | {"head": {"number": report.head.number, "hash": report.head.hash}}, indent=2)
