from __future__ import annotations

import json
from typing import Any

import pytest

from recovery.domain import identifiers
from recovery.domain.redaction import redact, secret_finder
from recovery.domain.redaction.redact import MARK

SECRET = "hunter2-Kf9"


@pytest.mark.parametrize(
    "key",
    [
        *("password", "PASSWORD", "userPassword", "db_password", "passwd", "pwd", "passphrase"),
        *("token", "accessToken", "refresh-token", "id.token", "x-csrf-token", "apiKey", "API_KEY", "x-api-key"),
        *("secret", "client_secret", "AWSSecretAccessKey", "privateKey", "Authorization", "Proxy-Authorization"),
        *("cookie", "Set-Cookie", "sessionId", "sid", "credentials", "creditCard", "cardNumber", "cvv", "iban", "pin"),
    ],
)
def test_a_secret_key_hides_its_value(key: str) -> None:
    assert redact.value({key: SECRET}) == {key: MARK}
    assert SECRET not in redact.text(f"{key}: {SECRET}")
    assert SECRET not in redact.text(f"{key}={SECRET}&a=b")


@pytest.mark.parametrize(
    "written",
    ["password[0]=", "db.password[main]=", "password: !!str ", "token: !secret ", "password&#61;", "pwd&#x3D;"],
)
def test_a_value_is_found_behind_an_index_a_tag_and_an_entity(written: str) -> None:
    assert redact.text(f"{written}{SECRET} and on").endswith(f"{MARK} and on")


@pytest.mark.parametrize(
    "key", ["author", "authored_by", "passenger", "tokens_used", "spinner", "discard", "cards_total", "name"]
)
def test_a_harmless_key_hides_nothing(key: str) -> None:
    assert redact.value({key: 12}) == {key: 12}


def test_counts_of_tokens_are_no_secret_but_words_are() -> None:
    assert redact.value({"max_tokens": 500, "promptTokens": 7, "tokens": "abc"}) == {
        "max_tokens": 500,
        "promptTokens": 7,
        "tokens": MARK,
    }


@pytest.mark.parametrize(
    "secret",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "Bearer abcdef123456",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-2222222222-abcdefghij",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "378282246310005",
        "DE89 3704 0044 0532 0130 00",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEow cut here",
    ],
)
def test_a_secret_is_known_by_its_shape(secret: str) -> None:
    for shown in (redact.text(f"said {secret}."), json.dumps(redact.value({"note": f"it was {secret}"}))):
        assert not any(part in shown for part in (secret, secret[:12], "IBAAK"))
        assert MARK in shown


@pytest.mark.parametrize(
    "plain",
    [
        "ada@example.org",
        "1795006339097",
        "order 4111111111111112",
        "0.4111111111111111",
        "550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_what_only_looks_like_a_number_stays(plain: str) -> None:
    assert redact.text(plain) == plain


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("redis://user:hunter2@10.0.0.1/0", f"redis://user:{MARK}@10.0.0.1/0"),
        ("Error: password: hunter2", f"Error: password: {MARK}"),
        ("mail --token hunter2 --to ada", f"mail --token {MARK} --to ada"),
        ("<password>hunter2</password>", f"<password>{MARK}</password>"),
        ("{'apiKey': 'hunter2', 'a': 1}", f"{{'apiKey': {MARK}, 'a': 1}}"),
        ('{"secret": {"a": ["hunter2", 1]}, "b": 2}', f'{{"secret": {MARK}, "b": 2}}'),
        ('{"secret": {"a": ["hunter2"', f'{{"secret": {MARK}'),
        ("Cookie: a=1; sid=hunter2\nHost: x", f"Cookie: {MARK}\nHost: x"),
        ("2fa_token=hunter2 größe.password: hunter2 12:30", f"2fa_token={MARK} größe.password: {MARK} 12:30"),
        ("état_token => hunter2", f"état_token => {MARK}"),
    ],
)
def test_a_text_keeps_all_but_the_secret(written: str, shown: str) -> None:
    assert redact.text(written) == shown


@pytest.mark.parametrize(
    "coloured",
    [
        f"\x1b[31mpassword\x1b[0m={SECRET}",
        f"{{ \x1b[32mpassword\x1b[39m: \x1b[32m'{SECRET}'\x1b[39m }}",
        f"  password: \x1b[32m'{SECRET}'\x1b[39m,",
        f"token \x1b[90m=\x1b[39m \x1b[36m{SECRET}\x1b[39m",
        json.dumps(f"\x1b[1mpassword\x1b[22m: {SECRET}")[:-1],
        f"password=hunter\x1b[1m{SECRET.removeprefix('hunter')}",
    ],
)
def test_colours_hide_no_secret_from_us(coloured: str) -> None:
    """As loggers write them into a job's log, its error and its stack traces."""
    whole = json.dumps([coloured])
    for found in (redact.text(coloured), redact.text(identifiers.printable(coloured)), redact.payload(whole)):
        assert SECRET not in found
        assert SECRET.removeprefix("hunter") not in found
        assert "[3" not in found


def test_colours_of_a_text_without_a_secret_leave_with_its_words_in_place() -> None:
    assert redact.text("\x1b[31mECONNREFUSED\x1b[0m 10.0.0.7:5432\x1b") == "ECONNREFUSED 10.0.0.7:5432\u241b"


def test_json_inside_json_is_opened() -> None:
    twice = json.dumps({"body": json.dumps({"inner": json.dumps({"token": SECRET, "id": 7})})})
    shown = redact.payload(twice)
    assert SECRET not in shown
    assert json.loads(json.loads(json.loads(shown)["body"])["inner"]) == {"token": MARK, "id": 7}


@pytest.mark.parametrize(
    "pair", [{"name": "password", "value": SECRET}, ["Authorization", SECRET], {"key": "api_key", "content": [SECRET]}]
)
def test_a_pair_of_name_and_value_is_understood(pair: Any) -> None:
    assert SECRET not in json.dumps(redact.value([pair]))


@pytest.mark.parametrize(
    "first",
    [f"Authorization: Bearer {SECRET}", f"password={SECRET}", f"postgres://bob:{SECRET}@token-db"],
)
def test_the_first_of_two_is_hidden_too(first: str) -> None:
    assert SECRET not in json.dumps(redact.value([first, "x"]))


@pytest.mark.parametrize("broken", ["", "{", '{"a":', "[" * 100_000, "\x00\ud800", '"', "null", '{"a": NaN}'])
def test_nothing_raises(broken: str) -> None:
    assert isinstance(redact.payload(broken), str)
    assert isinstance(redact.text(broken), str)


def test_what_cannot_be_judged_is_hidden() -> None:
    deep: Any = SECRET
    for _ in range(200):
        deep = {"a": deep}
    assert SECRET not in json.dumps(redact.value(deep))
    assert redact.value({"a": object()}) == {"a": MARK}


def test_a_long_text_is_bounded() -> None:
    shown = redact.text("a " * redact.TEXT_LIMIT)
    assert "more characters hidden" in shown


def test_a_payload_that_was_cut_still_hides_its_secret() -> None:
    whole = json.dumps({"list": list(range(50)), "password": SECRET, "rest": "x" * 100})
    for cut in range(len(whole)):
        assert SECRET not in redact.payload(whole[:cut])


def test_a_card_needs_luhns_sum() -> None:
    assert secret_finder.is_card("4111111111111111")
    assert not secret_finder.is_card("4111111111111112")
    assert not secret_finder.is_card("1795006339097")
