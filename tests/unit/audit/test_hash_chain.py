from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from recovery.domain.audit.hash_chain import FIELDS, KEY_LIMIT, AuditChainLink, canonical, job_key
from recovery.domain.auto_retry.error_signatures import signature
from recovery.domain.identifiers import decode_name

LINK = AuditChainLink(
    7,
    1_795_000_000_000,
    "intent",
    None,
    "person",
    "ada",
    "admin",
    "10.0.0.1",
    "requeue",
    "main",
    "bull:mail",
    "x",
    "{}",
    "ab",
)


def test_the_hash_is_the_same_for_ever() -> None:
    """A chain of today is verified by a program of next year."""
    assert LINK.hash == "3a4f9be3d1aced9bfc9bca1b0a424e3d45e6f375fd931f3d18a518c18a071331"


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_hashed(name: str) -> None:
    value: Any = getattr(LINK, name)
    other = value + 1 if isinstance(value, int) else 3 if value is None else value + "!"
    assert replace(LINK, **{name: other}).hash != LINK.hash


def test_a_text_does_not_pass_for_its_neighbour() -> None:
    assert replace(LINK, actor="ada", role="admin").hash != replace(LINK, actor="adaadmin", role="").hash


def test_all_fields_are_listed() -> None:
    assert tuple(field.name for field in fields(AuditChainLink)) == FIELDS


def test_any_byte_of_a_name_can_be_written() -> None:
    assert canonical({"job": decode_name(b"\xff\x00")}) == '{"job":"\\udcff\\u0000"}'


def test_a_long_id_is_cut_and_still_told_apart() -> None:
    one, other = job_key("x" * 5000), job_key("x" * 4999 + "y")
    assert one != other
    assert len(one) == len(other) == KEY_LIMIT
    assert job_key("7") == "7"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("connect ECONNREFUSED 10.0.0.7:5432", "connect ECONNREFUSED 10.0.0.12:5433"),
        ("no user 7d0c1f6e-11aa-4f0e-9b6e-0a1b2c3d4e5f", "no user 00000000-11aa-4f0e-9b6e-0a1b2c3d4e5f\n  at x.js:1"),
    ],
)
def test_the_same_error_of_two_jobs_has_one_signature(one: str, other: str) -> None:
    assert signature(one) == signature(other)


def test_two_errors_have_two_signatures() -> None:
    assert signature("deadbeef is a word, bad face too") != signature("timeout of 30000 ms")
