"""Verifies and exports the audit log, prints and sends its head, compares stored heads, and seals it anew."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from recovery import config as configuration
from recovery import shared_clock
from recovery.actions.audit import audit_log as writing
from recovery.actions.audit import head_delivery
from recovery.domain.audit.head_targets import AuditHeadTarget, AuditHeadTargets
from recovery.errors import ConfigError, NotDelivered, NotRecorded
from recovery.management import arguments
from recovery.reads.audit import queries as audit_queries
from recovery.reads.audit.seals import UNKNOWN_KEY
from recovery.scanners.audit_heads import AuditHeadSender

BROKEN, WRONG_CALL, UNREACHABLE = 1, 2, 4


class Command(BaseCommand):
    help = (
        "verify: exit status 0 when the chain, its signatures and its index are intact, 1 when they are not. head: "
        "print the "
        "last entry, to be stored elsewhere; verify --head FILE then proves that no entry up to it was changed, and "
        "compare FILE "
        "that each stored head is in the database. head --send: send it to the targets of [audit] now. reseal: after a "
        "change of the secret key. export: print all entries."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True)
        verify = commands.add_parser("verify", help="recompute every hash and check every link")
        verify.add_argument(
            "--head", type=Path, metavar="FILE", help="the output of `audit head`, or the file of [audit]"
        )
        verify.add_argument("--json", action="store_true", help="print JSON")
        head = commands.add_parser("head", help="print the end of the chain")
        head.add_argument(
            "--send", action="store_true", help="send it to the targets of [audit], as the scheduler does"
        )
        compare = commands.add_parser("compare", help="look up each stored head, which is fast")
        compare.add_argument("file", type=Path, help="heads, one per line; a log that contains them also works")
        compare.add_argument("--json", action="store_true", help="print JSON")
        reseal = commands.add_parser("reseal", help="verify all entries, then they need no former secret key")
        reseal.add_argument("--without-former-key", action="store_true", help="also when a former key is lost")
        export = commands.add_parser("export", help="print every entry")
        export.add_argument("--format", choices=audit_queries.FORMATS, default="json")

    def handle(self, *_: Any, **given: Any) -> None:
        try:
            self._run(given)
        except DatabaseError as error:
            raise CommandError(f"The database does not answer: {error}", returncode=UNREACHABLE) from error
        except (ConfigError, NotRecorded) as error:
            raise CommandError(str(error), returncode=WRONG_CALL) from error

    def _run(self, given: dict[str, Any]) -> None:
        match given["what"]:
            case "verify":
                file = given["head"]
                self._tell(audit_queries.verify(_heads(file) if file else None), as_json=given["json"])
            case "compare":
                self._tell(audit_queries.compare(_heads(given["file"])), as_json=given["json"], is_chain=False)
            case "head":
                self._head(is_sent=given["send"])
            case "reseal":
                self._reseal(may_lack=given["without_former_key"])
            case _:
                for piece in audit_queries.export(given["format"]):
                    self.stdout.write(piece, ending="")

    def _tell(self, report: audit_queries.AuditVerification, *, as_json: bool, is_chain: bool = True) -> None:
        if as_json:
            self.stdout.write(_document(report))
        elif report.is_sound and is_chain:
            self.stdout.write(f"The chain is intact up to #{report.head.number}: {report.head.hash or 'it is empty'}")
            self.stdout.write(_signed(report))
        elif report.is_sound:
            self.stdout.write(
                f"All {report.checked:,} stored heads are in the chain, which ends at #{report.head.number}."
            )
        if report.is_sound:
            return
        told = [f"#{finding.number} {finding.kind}: {finding.text}" for finding in report.findings]
        raise CommandError("\n".join(["The audit log was modified.", *told]), returncode=BROKEN)

    def _head(self, *, is_sent: bool) -> None:
        head = audit_queries.head()
        self.stdout.write(head.written())
        if not is_sent:
            return
        config = configuration.current()
        if not config.audit.configured:
            raise CommandError("No target is configured: add [audit] to unstall.toml.", returncode=WRONG_CALL)
        line = AuditHeadSender(config.audit, config.environment).line(head, shared_clock.now())
        failed = [why for place in config.audit.configured if (why := _sent(config.audit, place, line, head))]
        if failed:
            raise CommandError("\n".join(failed), returncode=UNREACHABLE)

    def _reseal(self, *, may_lack: bool) -> None:
        """Seals the chain with the present key. What cannot be verified is refused, but for entries whose key is
        declared lost.
        """
        report = audit_queries.verify()
        if any(finding.kind != UNKNOWN_KEY or not may_lack for finding in report.findings):
            self._tell(report, as_json=False)
        lost = [finding.text for finding in report.findings]
        body = {"lost keys": lost} if lost else {}
        writing.reseal(arguments.actor(), report.head.number, report.head.hash, "The secret key was changed.", body)
        self.stdout.write(f"Entries up to #{report.head.number} no longer need a former key.")


def _sent(places: AuditHeadTargets, place: AuditHeadTarget, line: str, head: audit_queries.AuditChainHead) -> str:
    """Sends the head to one target; returns why it failed, "" on success."""
    try:
        head_delivery.send(places, place, line, f"audit-head-{head.number}")
    except NotDelivered as error:
        return f"{place.value} {places.target(place)}: {error}"
    return ""


def _signed(report: audit_queries.AuditVerification) -> str:
    if not report.unsigned:
        return "All entries are signed, and the index by job matches them."
    return (
        f"Entries after #{report.unsigned} are signed; earlier entries are protected by a signature of the chain's end."
    )


def _heads(file: Path) -> audit_queries.AuditChainHeads:
    """Reads stored heads line by line: a file of years has some MB."""
    try:
        if file.stat().st_size > audit_queries.HEADS_LIMIT:
            raise CommandError(f"{file} is larger than 64 MB: pass only its last part.", returncode=WRONG_CALL)
        with file.open(encoding="utf-8") as lines:
            return audit_queries.kept_heads(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}", returncode=WRONG_CALL) from error
    except audit_queries.NotAHead as error:
        raise CommandError(f"{file}: {error}", returncode=WRONG_CALL) from error


def _document(report: audit_queries.AuditVerification) -> str:
    findings = [{"number": one.number, "kind": one.kind, "text": one.text} for one in report.findings]
    facts = {"is_sound": report.is_sound, "checked": report.checked, "unsigned": report.unsigned, "findings": findings}
    return json.dumps(facts | {"head": {"number": report.head.number, "hash": report.head.hash}}, indent=2)
