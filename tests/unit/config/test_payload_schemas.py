"""JSON Schemas of queues: what is refused at the start, what is said of data, and what is never said."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery.config import Config, load
from recovery.config.payload_schemas import FILE_LIMIT, PayloadSchema
from recovery.errors import ConfigError, Problem
from recovery.reads.stuck.payload_schemas import PATH_LIMIT, describe_violation

MAIL = {
    "type": "object",
    "required": ["to", "subject"],
    "properties": {
        "to": {"type": "string", "format": "email"},
        "subject": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["letter", "receipt"]},
        "parts": {"type": "array", "items": {"$ref": "#/definitions/part"}},
    },
    "additionalProperties": False,
    "definitions": {"part": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}},
}
GOOD = {"to": "ada@example.com", "subject": "hello"}
Read = Callable[..., Config]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """A configuration with one queue, whose schema is this text."""

    def load_with(text: str | None, *, path: str = "schemas/mail.json", name: str = "bull:mail") -> Config:
        (tmp_path / "schemas").mkdir(exist_ok=True)
        if text is not None:
            (tmp_path / path).write_text(text)
        (tmp_path / "unstall.toml").write_text(f'[[queues]]\nname = "{name}"\nschema = "{path}"\n')
        return load({}, directory=tmp_path)

    return load_with


def refused(read: Read, text: str | None) -> Problem:
    with pytest.raises(ConfigError) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.key == "queues[1].schema"
    return problem


def schema_of(read: Read, written: Any) -> PayloadSchema:
    found = read(json.dumps(written)).schema_of("main", "bull:mail")
    assert found is not None
    return found


def said(read: Read, data: Any, written: Any = MAIL) -> str:
    return describe_violation(schema_of(read, written), data if isinstance(data, bytes) else json.dumps(data).encode())


# -- the configuration


def test_a_schema_is_found_beside_the_file_and_belongs_to_its_queue(read: Read, tmp_path: Path) -> None:
    config = read(json.dumps(MAIL))
    found = config.schema_of("any", "bull:mail")
    assert found is not None
    assert found.path == str(tmp_path / "schemas" / "mail.json")
    assert config.schema_of("any", "bull:other") is None


def test_a_missing_schema_stops_the_start(read: Read) -> None:
    problem = refused(read, None)
    assert "mail.json, which cannot be read: No such file" in problem.problem
    assert problem.remedy == "Write the path of a file."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        ('{"type": "text"}', "not a JSON Schema"),
        ('{"properties": {"a": 5}}', "not a JSON Schema"),
        ('{"type": "string", "pattern": "("}', "not a JSON Schema"),
        ('{"$ref": "#/definitions/none"}', "not a JSON Schema"),
        ('{"$schema": "https://json-schema.org/draft/2020-12/schema"}', "an unsupported draft"),
        ('{"$schema": 7}', "an unsupported draft"),
        (" " * (FILE_LIMIT + 1), "larger than 256 KB"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "is not JSON"),
        ('{"properties":{"a":' * 400 + "{}" + "}}" * 400, "not a JSON Schema"),
    ],
)
def test_what_is_no_schema_stops_the_start(read: Read, text: str, why: str) -> None:
    problem = refused(read, text)
    assert why in problem.problem
    assert problem.remedy == "Write a JSON Schema of draft 4, 6, 7 or 2019-09."


@pytest.mark.parametrize("scheme", ["http", "https", "ftp", "file"])
def test_nothing_is_fetched_for_a_schema(read: Read, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr("urllib.request.urlopen", never)
    monkeypatch.setattr(socket, "create_connection", never)
    problem = refused(read, json.dumps({"properties": {"a": {"$ref": f"{scheme}://127.0.0.1/a.json"}}}))
    assert "only references within the same file" in problem.problem


def test_a_file_beside_the_schema_is_not_read(read: Read, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "part.json").write_text("{}")
    assert "part.json: only references within the same file" in refused(read, '{"$ref": "part.json"}').problem


# -- the data


def test_good_data_breaks_nothing(read: Read) -> None:
    assert said(read, GOOD) == ""
    assert said(read, GOOD | {"to": "no address"}) == ""  # `format` is a remark
    assert said(read, GOOD | {"parts": [{"size": 3}], "kind": "letter"}) == ""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"to": "x@y.z"}, "data must have subject"),
        ([], "data must be object"),
        (GOOD | {"to": 7}, "data.to must be string"),
        (GOOD | {"subject": "s" * 21}, "data.subject violates maxLength"),
        (GOOD | {"kind": "spam"}, "data.kind must be one of the values that the schema lists"),
        (GOOD | {"extra": 1}, "data has a property that is not allowed"),
        (GOOD | {"parts": [{"size": 2}, {"size": 0}]}, "data.parts[1].size violates minimum"),
    ],
)
def test_what_breaks_is_named_by_its_path(read: Read, data: Any, words: str) -> None:
    assert said(read, data) == f"Its data violates the schema of its queue: {words}."


@pytest.mark.parametrize("data", [b"", b"{to", b"NaN", b'{"a": Infinity}', b"\xff"])
def test_what_is_not_json_breaks_every_schema(read: Read, data: bytes) -> None:
    assert said(read, data, {}) == "Its data violates the schema of its queue: it is not JSON."


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    ("written", "data"),
    [
        ({"type": "object"}, SECRET),
        ({"properties": {"password": {"type": "integer"}}}, {"password": SECRET}),
        ({"properties": {"password": {"pattern": "^[0-9]$"}}}, {"password": SECRET}),
        ({"additionalProperties": False}, {SECRET: 1}),
        ({"propertyNames": {"maxLength": 3}}, {SECRET: 1}),
        ({"const": 5}, SECRET),
        ({"oneOf": [{"type": "integer"}, {"enum": ["a"]}]}, SECRET),
        ({"contains": {"type": "integer"}}, [SECRET]),
        ({"uniqueItems": True}, [SECRET, SECRET]),
        ({"not": {"type": "string"}}, SECRET),
    ],
)
def test_no_value_is_ever_quoted(read: Read, written: Any, data: Any) -> None:
    found = said(read, data, written)
    assert found
    assert SECRET not in found


def test_a_path_made_of_data_is_kept_short_and_plain(read: Read) -> None:
    found = said(read, {"\x1b[2J" + "k" * 9_000: 1}, {"additionalProperties": {"type": "string"}})
    assert len(found) < PATH_LIMIT + 80
    assert found.isprintable()


@pytest.mark.parametrize(
    "data", [b"[" * 30_000 + b"]" * 30_000, json.dumps({"a": 10**300}).encode(), b"9" * 60_000, b"1e999"]
)
def test_what_cannot_be_judged_is_not_called_wrong(read: Read, data: bytes) -> None:
    deep = {"type": ["array", "object", "number"], "items": {"$ref": "#"}, "multipleOf": 0.1}
    assert "not JSON" not in said(read, data, deep)


def test_a_schema_that_calls_itself_ends(read: Read) -> None:
    nested: Any = 1
    for _ in range(900):
        nested = [nested]
    assert said(read, nested, {"items": {"$ref": "#"}}) == ""


def test_many_equal_items_are_judged_in_a_moment(read: Read) -> None:
    items = [{"a": number} for number in range(4_500)]
    assert said(read, items, {"uniqueItems": True}) == ""
