"""JSON of very many values: it is told by its size, and costs no more memory than its text."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from dashboard.base.json_tree import tree
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.job_details import _stack
from recovery.domain import bounded_json
from recovery.domain.bounded_json import VALUES_LIMIT, TooManyValues
from recovery.domain.redaction import redact
from recovery.domain.redaction.payload_shape import shape

MEGABYTE = 1 << 20
ATOMS = ["{}", "[]", "[[]]", '{"a":1}', "1.5"]


def bomb(atom: str) -> str:
    """As long as a payload that is loaded in whole."""
    return "[" + ",".join([atom] * (8 * MEGABYTE // (len(atom) + 1) - 1)) + "]"


@pytest.mark.parametrize("atom", ATOMS)
def test_a_payload_of_very_many_values_takes_little_memory(atom: str) -> None:
    given = bomb(atom)
    tracemalloc.start()
    try:
        assert shape(given, "data") == "<list that cannot be read or was cut>"
        assert tree(given).nodes == ()
        assert decode.from_json(given) is None
        assert _stack(given) == (given,)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * MEGABYTE


@pytest.mark.parametrize("atom", ATOMS)
def test_as_many_values_as_are_read_take_a_bounded_part(atom: str) -> None:
    counted = sum(map(atom.count, ",[{")) + 1
    given = "[" + ",".join([atom] * (VALUES_LIMIT // counted - 1)) + "]"
    tracemalloc.start()
    try:
        bounded_json.loads(given)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80 * MEGABYTE


def test_many_values_are_refused_and_usual_ones_read() -> None:
    with pytest.raises(TooManyValues):
        bounded_json.loads(bomb("[]"))
    usual = json.dumps([{"id": number, "name": "a name of some length", "tags": ["x"]} for number in range(80_000)])
    assert len(bounded_json.loads(usual)) == 80_000


def test_redaction_takes_what_it_does_not_read_for_text() -> None:
    given = '{"password":"Zqhunter22","list":' + bomb("[]")[: 2 * MEGABYTE] + "]}"
    assert "Zqhunter22" not in redact.payload(given)
