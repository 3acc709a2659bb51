"""A policy as it is written: read with every problem at once."""

from __future__ import annotations

import tomllib

import pytest

from recovery.domain.auto_retry.backoff import LONGEST, Backoff
from recovery.domain.auto_retry.rules import NeverRetry
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies import parser
from recovery.domain.policies.policy_layers import LayerValues, PolicySource, PolicyValueOrigin, resolve_policy
from recovery.domain.policies.types import ScannerMode, ScannerPolicy
from recovery.domain.time_units import HOUR, MINUTE, SECOND


def problems(written: dict[str, object]) -> list[str]:
    return [str(problem) for problem in parser.read_policy(written, "policy.")[1]]


def test_what_the_documentation_shows_can_be_read() -> None:
    shown = (parser.__doc__ or "").partition("\n\n")[2]
    values, wrong = parser.read_policy(tomllib.loads(shown))
    assert wrong == ()
    policy = resolve_policy(
        [LayerValues(PolicyValueOrigin(PolicySource.FILE), values)], QueueRef("main", "bull:q")
    ).policy
    assert policy.orphan_watch == ScannerPolicy(most=500, release=True)
    assert policy.auto_retry == ScannerPolicy(ScannerMode.ENABLED, MINUTE, 50)
    assert policy.backoffs.of("mail:7") == Backoff(3, 5 * SECOND)
    assert policy.never == NeverRetry(frozenset({"charge"}), frozenset({"card declined"}))
    assert policy.idempotency.startswith("sending twice")


def test_nothing_written_is_nothing_said() -> None:
    assert parser.read_policy({}) == ({}, ())


def test_a_first_pause_beyond_the_default_longest_moves_it() -> None:
    values, wrong = parser.read_policy({"backoff": {"*": {"first": 8 * 3600}, "a": {"first": 1}}})
    assert wrong == ()
    assert values["backoff", "*"] == Backoff(first=8 * HOUR, longest=8 * HOUR)
    assert values["backoff", "a"].longest == LONGEST


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"stale_chek": {}}, "policy.stale_chek: is not a setting. Did you mean stale_check?"),
        ({"zzz": 1}, "policy.zzz: is not a setting. Known: orphan_watch, stale_check, auto_retry, "),
        ({"stale_check": "act"}, "policy.stale_check: has an unexpected value. Write a table."),
        (
            {"stale_check": {"mode": "on"}},
            'policy.stale_check.mode: has an unexpected value. Write "dry-run" or "enabled".',
        ),
        ({"stale_check": {"after": -1}}, "policy.stale_check.after: is -1. Write a number from 0 to 2,592,000."),
        ({"stale_check": {"most": 0}}, "policy.stale_check.most: is 0. Write a whole number from 1 to 10,000."),
        ({"stale_check": {"most": 1.5}}, "policy.stale_check.most: is 1.5. Write a whole number"),
        ({"stale_check": {"most": True}}, "policy.stale_check.most: is True."),
        ({"stale_check": {"after": float("nan")}}, "policy.stale_check.after: is nan."),
        ({"stale_check": {"release": 1}}, "policy.stale_check.release: is 1. Write true or false."),
        ({"auto_retry": {"release": True}}, "policy.auto_retry.release: is not a setting."),
        ({"backoff": []}, "policy.backoff: has an unexpected value. Write a table with one entry per job name."),
        ({"backoff": {"mail": 3}}, "policy.backoff.mail: is 3. Write a table."),
        ({"backoff": {"": {}}}, "policy.backoff.: is empty, too long or not a string."),
        ({"backoff": {"mail": {"tries": 3}}}, "policy.backoff.mail.tries: is not a setting."),
        (
            {"backoff": {"mail": {"first": 60, "longest": 5}}},
            "policy.backoff.mail.longest: is shorter than the first pause.",
        ),
        ({"never": {"names": "pay"}}, "policy.never.names: has an unexpected value. Write a list of strings"),
        ({"never": {"names": [" "]}}, "policy.never.names: has an unexpected value."),
        (
            {"never": {"signatures": ["500"]}},
            "policy.never.signatures: holds '500', which is empty when its numbers",
        ),
        ({"never": {"names": ["a"] * 501}}, "policy.never.names: has 501 entries. Write at most 500."),
        ({"never": {"names": ["a" * 501]}}, "policy.never.names: is empty, too long or not a string."),
        ({"never": {"names": ["\ud800"]}}, "policy.never.names: is empty, too long or not a string."),
        ({"\ud800": 1}, "policy.?: is not a setting."),
        ({"idempotency": "\ud800"}, "policy.idempotency: has an unexpected value."),
        ({"idempotency": 7}, "policy.idempotency: is 7. Write a string of at most 2,000 characters."),
    ],
)
def test_what_cannot_be_used_is_named_with_what_would_be_right(written: dict[str, object], problem: str) -> None:
    (found,) = problems(written)
    assert found.startswith(problem)


def test_all_problems_are_told_at_once_and_the_rest_is_read() -> None:
    values, wrong = parser.read_policy({"stale_check": {"mode": "x", "after": "y", "most": 9}, "odd": 1})
    assert len(wrong) == 3
    assert values == {("stale_check", "most"): 9}


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    assert not any("hunter2" in problem for problem in problems({"never": "hunter2", "idempotency": ["hunter2"]}))
