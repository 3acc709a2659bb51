"""Lists idempotency keys, shows one, and releases a claim."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from recovery.actions.audit import payload_reveals
from recovery.actions.audit.audit_log import REASON_LIMIT
from recovery.domain.idempotency import IdempotencyState, KeyClaim
from recovery.domain.identifiers import printable
from recovery.domain.redaction.payload_shape import shape
from recovery.domain.time_units import age
from recovery.errors import ConfigError, Missing, StoreError, UnstallError
from recovery.idempotency import ledger_commands as acts
from recovery.idempotency import queries as idempotency_queries
from recovery.idempotency.queries import IdempotencyCursor, IdempotencyFilter
from recovery.management.arguments import REFUSED, UNREACHABLE, WRONG_CALL, actor
from recovery.management.text_table import align_columns
from recovery.processes import up_environment
from recovery.stores.registry import registry

_HEAD = ("key", "state", "owner", "claimed by", "since", "token")
_STATES = [state.value for state in IdempotencyState if state is not IdempotencyState.FREE]


class Command(BaseCommand):
    help = (
        "List claimed and completed keys, show one key, release a claim. "
        "Exit status: 0, 2 for a wrong call, 3 when it is refused, 4 without an answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        steps = parser.add_subparsers(dest="step", required=True)
        listed = steps.add_parser("list", help="newest first, 50 at a time")
        listed.add_argument("--state", choices=_STATES, help="only these")
        listed.add_argument("--match", default="", help="a literal part of the key")
        listed.add_argument("--after", default="", help="cursor of the next page, as printed")
        shown_one = steps.add_parser("show", help="one key, with the shape of its result")
        shown_one.add_argument("--reveal", action="store_true", help="the unredacted result; recorded in the audit log")
        released = steps.add_parser("release", help="release a claim, so that the next claimer need not wait")
        for one in (shown_one, released):
            one.add_argument("key")
        released.add_argument("--token", type=int, required=True, help="token of the claim")
        released.add_argument(
            "--reason", required=True, help=f"at most {REASON_LIMIT} characters, recorded in the audit log"
        )
        for one in (listed, shown_one, released):
            one.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            up_environment.adopt(Path(settings.DATA_DIR))
            told, words = _STEPS[options["step"]](options)
        except ConfigError as error:
            raise CommandError(str(error), returncode=WRONG_CALL) from error
        except StoreError as error:
            raise CommandError(f"The state store {error}. {error.advice}", returncode=UNREACHABLE) from error
        except UnstallError as error:
            raise CommandError(str(error), returncode=REFUSED) from error
        self.stdout.write(json.dumps(told, indent=2) if options["json"] else words)


def _list(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    state = IdempotencyState(options["state"]) if options["state"] else None
    found = idempotency_queries.listing(
        registry().state(), IdempotencyFilter(state, options["match"], IdempotencyCursor.parse(options["after"]))
    )
    following = str(found.next) if found.next else None
    told = {"now": found.now, "keys": [_told(row.claim) for row in found.rows], "next": following}
    if not found.rows:
        return (
            told,
            "Nothing is claimed." if following is None else f"No match in {found.looked:,} keys. --after {following}",
        )
    lines = align_columns([_HEAD, *(_cells(row.claim, found.now) for row in found.rows)], (0, 1, 2, 3))
    return told, lines + (f"\nMore: --after {following}" if following else "")


def _show(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    answer = acts.show(options["key"])
    if answer.claim is None:
        raise Missing("It is not claimed.")
    result = answer.result.decode("utf-8", "replace") if answer.result else None
    if result and options["reveal"]:
        payload_reveals.record_of_key(actor(), options["key"])
    elif result:
        result = shape(result, "result")
    rows = [_HEAD, _cells(answer.claim, answer.now)]
    return _told(answer.claim) | {"result": result}, align_columns(rows, (0, 1, 2, 3)) + (
        f"\n{printable(result)}" if result else ""
    )


def _release(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    answer = acts.show(options["key"])
    if answer.claim is None or answer.claim.token != options["token"]:
        raise Missing("There is no such claim (any more). Nothing was done.")
    number = acts.release(actor(), answer.claim, options["reason"])
    return {"released": options["key"], "audit": number}, f"Released; entry #{number} of the audit."


def _told(claim: KeyClaim) -> dict[str, Any]:
    return asdict(claim) | {"key": printable(claim.key), "owner": printable(claim.owner)}


def _cells(claim: KeyClaim, now: int) -> tuple[str, ...]:
    since = f"{age(now - (claim.until if claim.is_completed else claim.since))} ago"
    return (
        printable(claim.key),
        claim.state.value,
        printable(claim.owner),
        printable(claim.by),
        since,
        str(claim.token),
    )


_STEPS = {"list": _list, "show": _show, "release": _release}
