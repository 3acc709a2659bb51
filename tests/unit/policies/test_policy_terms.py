"""A policy in words with where each comes from, for the page and for the shell."""

from __future__ import annotations

from recovery.domain.auto_retry.backoff import Backoff
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.describe import PolicyTerm, origins, policy_settings, policy_terms
from recovery.domain.policies.policy_layers import LayerValues, Path, PolicySource, PolicyValueOrigin, resolve_policy
from recovery.domain.policies.types import NO_NOTE, ScannerMode
from recovery.domain.time_units import MINUTE

MAIL = QueueRef("shop", "bull:mail")
NOW = 1_800_000_000_000
FILE, ANN = (
    PolicyValueOrigin(PolicySource.FILE),
    PolicyValueOrigin(PolicySource.PAGE, "shop", "bull:mail", "ann", NOW - 4 * MINUTE),
)


def told(file: dict[Path, object], page: dict[Path, object]) -> dict[str, PolicyTerm]:
    found = resolve_policy([LayerValues(FILE, file), LayerValues(ANN, page)], MAIL)
    return {term.name: term for term in policy_terms(found, NOW)}


def test_what_nobody_said_is_by_default() -> None:
    lines = told({}, {})
    assert list(lines) == [
        *("orphan-watch", "stale-check", "auto-retry", "startup-sweep"),
        *("backoff, all jobs", "idempotency note"),
    ]
    assert {line.origin for line in lines.values()} == {"by default"}
    assert not any(line.is_set for line in lines.values())
    assert lines["idempotency note"].value == "Not set."


def test_values_of_one_scanner_name_their_origins_where_they_differ() -> None:
    line = told({("stale_check", "after"): MINUTE}, {("stale_check", "most"): 7})["stale-check"]
    assert line.value == "Enabled after 1 min, at most 7 jobs per run."
    assert line.origin == (
        "after: in the file, for all queues; most: edited by ann 4 min ago, for bull:mail; the rest: by default"
    )
    assert line.is_set


def test_armed_without_a_note_is_said() -> None:
    line = told({}, {("auto_retry", "mode"): ScannerMode.ENABLED})["auto-retry"]
    assert line.value == f"Enabled, at most 100 jobs per run. {NO_NOTE}"


def test_each_entry_of_the_tables_is_a_line() -> None:
    found = resolve_policy(
        [
            LayerValues(FILE, {("never", "names", "charge"): True, ("never", "signatures", "card declined"): True}),
            LayerValues(ANN, {("backoff", "mail*"): Backoff(3), ("idempotency",): "sent once"}),
        ],
        MAIL,
    )
    lines = [(term.name, term.value, term.origin) for term in policy_terms(found, NOW)][4:]
    assert [name for name, _, _ in lines] == [
        *("backoff, mail*", "backoff, all others", "never auto-retried", "never auto-retried", "idempotency note"),
    ]
    assert lines[2][1:] == ("Jobs named charge.", "in the file, for all queues")
    assert lines[3][1:] == ("After “card declined”.", "in the file, for all queues")
    assert lines[4][1:] == ("sent once", "edited by ann 4 min ago, for bull:mail")


def test_programs_get_each_origin_and_seconds() -> None:
    found = resolve_policy([LayerValues(ANN, {("stale_check", "after"): 2_500})], MAIL)
    assert origins(found) == [
        {
            "path": ["stale_check", "after"],
            "source": "page",
            "deployment": "shop",
            "base": "bull:mail",
            "by": "ann",
            "at": NOW - 4 * MINUTE,
        }
    ]
    assert policy_settings(found.policy)["stale_check"] == {
        "mode": "enabled",
        "after": 2.5,
        "most": 500,
        "release": False,
    }
    assert "release" not in policy_settings(found.policy)["auto_retry"]
