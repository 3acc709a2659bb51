"""A planted secret never appears, wherever it was planted and however it was written down."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.redaction import redact

SECRET = st.from_regex(r"[A-Za-z0-9_!#$%*+./=?^~-]{8,40}", fullmatch=True).map(lambda some: f"Zq{some}")
KEYS = st.sampled_from(
    [
        "password",
        "userPassword",
        "TOKEN",
        "access_token",
        "api-key",
        "apiKey",
        "Authorization",
        "set-cookie",
        "client.secret",
    ]
)
WORDS = st.text(max_size=20)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS
TREES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)


@st.composite
def planted(draw: st.DrawFn) -> tuple[Any, str]:
    """A tree with a secret under a secret key, somewhere in it; perhaps wrapped as JSON in a string."""
    secret = draw(SECRET)
    under: Any = draw(st.sampled_from([secret, [secret], {"x": secret}, [[1, {"y": [secret]}]]]))
    tree: Any = {**draw(st.dictionaries(WORDS, TREES, max_size=3)), draw(KEYS): under}
    for _ in range(draw(st.integers(0, 4))):
        way = draw(st.sampled_from(["dict", "list", "json"]))
        if way == "dict":
            tree = {**draw(st.dictionaries(WORDS, TREES, max_size=2)), "in": tree}
        elif way == "list":
            tree = [*draw(st.lists(TREES, max_size=2)), tree]
        else:
            tree = {"wrapped": json.dumps(tree, ensure_ascii=draw(st.booleans()))}
    return tree, secret


@given(planted())
def test_a_planted_secret_never_appears_in_a_value(case: tuple[Any, str]) -> None:
    tree, secret = case
    assert secret not in json.dumps(redact.value(tree))


@given(planted(), st.booleans(), st.sampled_from([None, 2]), st.data())
def test_a_planted_secret_never_appears_in_a_payload_cut_anywhere(
    case: tuple[Any, str], is_ascii: bool, indent: int | None, data: st.DataObject
) -> None:
    tree, secret = case
    whole = json.dumps(tree, ensure_ascii=is_ascii, indent=indent)
    cut = data.draw(st.integers(0, len(whole)))
    assert secret not in redact.payload(whole[:cut])
    assert secret not in redact.payload(whole)


@given(planted(), WORDS, WORDS)
def test_a_planted_secret_never_appears_in_a_text_around_json(case: tuple[Any, str], before: str, after: str) -> None:
    tree, secret = case
    assert secret not in redact.text(f"{before} {json.dumps(tree)} {after}")


@given(
    SECRET, KEYS, st.sampled_from(["{}={}", "{}: {}", "{} = {}", "--{} {}", "{}: '{}'", '{}="{}"', "<{}>{}</x>"]), WORDS
)
def test_a_planted_secret_never_appears_in_a_line(secret: str, key: str, form: str, around: str) -> None:
    assert secret not in redact.text(f"{around} {form.format(key, secret)} {around}")


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_text_goes_through(text: str) -> None:
    redact.text(text)
    redact.payload(text).encode("utf-8")


@given(TREES)
def test_a_value_keeps_its_shape(tree: Any) -> None:
    assert type(redact.value(tree)) in (type(tree), str)
