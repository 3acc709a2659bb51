"""[redaction]: patterns that cost too much are refused with their reason, and values are shown where a path says so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.config import Config, load
from recovery.domain.identifiers import QueueRef
from recovery.domain.redaction import redact
from recovery.domain.redaction.operator_patterns import BadPattern, RedactionPatterns, compile_pattern
from recovery.domain.redaction.payload_shape import ShownValues, shape
from recovery.domain.redaction.redact import MARK
from recovery.errors import ConfigError

MAIL = QueueRef("shop", "bull:mail")


def read(directory: Path, written: str) -> Config:
    (directory / "unstall.toml").write_text(written)
    return load({}, directory=directory)


@pytest.fixture(autouse=True)
def _own_rules() -> Iterator[None]:
    yield
    redact.use_patterns(RedactionPatterns())


def test_a_pattern_hides_and_another_keeps(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        "[redaction]\n"
        "hide = ['\\bACME-[A-Z0-9]{6,20}\\b', 'customer (?P<secret>\\d{4,10})']\n"
        "keep = ['token=demo-[0-9a-f]{4,8}']\n",
    )
    said = "key ACME-7QX9Z1 of customer 123456, token=demo-12ab token=other-12ab"
    redact.use_patterns(config.redaction.rules)
    assert redact.text(said) == f"key {MARK} of customer {MARK}, token=demo-12ab token={MARK}"


def test_what_is_only_partly_kept_stays_hidden() -> None:
    redact.use_patterns(RedactionPatterns(keep=(compile_pattern("demo"),)))
    assert redact.text("token=demo-12ab") == f"token={MARK}"


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(a+)+$", "a repeat without an end"),
        ("a*", "a repeat without an end"),
        (".{3,}", "a repeat without an end"),
        ("(a{1,9}){1,9}b", "in more than 500 ways"),
        ("[a-z]{1,60}[a-z0-9]{1,60}!", "in more than 500 ways"),
        ("(a|ab|abc){1,20}x", "in more than 500 ways"),
        (r"(a)\1", "whose cost cannot be bounded"),
        ("x{0,5}", "matches an empty text"),
        ("(", "is not a regular expression"),
        ("a" * 501, "has 501 characters"),
    ],
)
def test_a_pattern_that_may_cost_too_much_is_refused_with_its_key(tmp_path: Path, pattern: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, f"[redaction]\nhide = ['ok-[0-9]{{4,8}}', '{pattern}']\n")
    (found,) = refused.value.problems
    assert found.key == "redaction.hide[2]"
    assert problem in found.problem
    assert found.remedy


@pytest.mark.parametrize(
    "pattern", [r"\bACME-[A-Z0-9]{20,40}\b", "[a-z]{1,20}+-[0-9]{8}", "(?:ab|cd){2,4}x", "(?i)k-x{3}"]
)
def test_a_pattern_with_a_bounded_cost_is_taken(pattern: str) -> None:
    assert compile_pattern(pattern).pattern == pattern


def test_the_most_costly_pattern_that_is_taken_is_quick() -> None:
    """499 ways at each place of a line of the longest kind."""
    redact.use_patterns(RedactionPatterns(hide=(compile_pattern("[a-z]{1,499}!"),)))
    began = time.process_time()
    redact.text("a" * 16_384)
    assert time.process_time() - began < 3.0


def test_a_pattern_of_many_ways_is_no_bad_pattern_by_its_length() -> None:
    with pytest.raises(BadPattern, match="more than 2,000 characters"):
        compile_pattern("(?:abcdefghij){300}")


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('[[redaction.show]]\npaths = ["secret.id"]\n', "redaction.show[1].paths"),
        ('[[redaction.show]]\nqueues = ["bull:mail"]\n', "redaction.show[1].paths"),
        ('[[redaction.show]]\npaths = ["data..id"]\n', "redaction.show[1].paths"),
        ('[redaction]\nhides = ["a"]\n', "redaction.hides"),
    ],
)
def test_a_slip_is_told_with_its_key(tmp_path: Path, written: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, written)
    assert [problem.key for problem in refused.value.problems] == [key]


def test_values_are_shown_by_path_and_queue(tmp_path: Path) -> None:
    (shown,) = read(
        tmp_path, '[[redaction.show]]\nqueues = ["shop/bull:m*"]\npaths = ["data.order.id", "data.items.*.sku"]\n'
    ).redaction.show
    data = json.dumps({"order": {"id": 7, "mail": "ada@x"}, "items": [{"sku": "A1", "n": 2}], "id": 9})
    assert json.loads(shape(data, "data", shown.of(MAIL))) == {
        "order": {"id": 7, "mail": "<text of 5 characters>"},
        "items": [{"sku": "A1", "n": "<number>"}],
        "id": "<number>",
    }
    assert shown.of(QueueRef("other", "bull:mail")) == ()
    assert "A1" not in shape(data, "result", shown.of(MAIL))


def test_two_stars_show_a_whole_branch_but_no_known_secret() -> None:
    shown = ShownValues(("*",), (("options", "**"),))
    given = json.dumps({"attempts": 3, "backoff": {"type": "fixed"}, "note": "token=abc123def456"})
    assert json.loads(shape(given, "options", shown.of(MAIL))) == {
        "attempts": 3,
        "backoff": {"type": "fixed"},
        "note": f"token={MARK}",
    }
