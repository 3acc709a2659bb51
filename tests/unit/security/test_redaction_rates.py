"""How much of a corpus of secrets redaction finds, how much it hides of what is harmless, and at which cost."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from recovery.domain.redaction import redact
from tests.redaction.corpus import Harmless, Secret, harmless, secrets

MISSED = 0.10
CHANGED = 0.03
SIZE = 30_000  # characters
SECONDS = 3.0  # of the processor: a hundred times what they take


@pytest.mark.parametrize("is_held", [False, True], ids=["all", "kept aside"])
def test_few_secrets_are_missed(is_held: bool) -> None:
    found = [secret for secret in secrets() if secret.is_held or not is_held]
    missed = [secret for secret in found if secret.leaks(redact.text(secret.text))]
    assert len(found) > (150 if is_held else 450)
    assert len(missed) <= MISSED * len(found), _told(missed)


@pytest.mark.parametrize("is_held", [False, True], ids=["all", "kept aside"])
def test_few_harmless_texts_are_changed(is_held: bool) -> None:
    found = [one for one in harmless() if one.is_held or not is_held]
    changed = [one for one in found if redact.text(one.text) != one.text]
    assert len(found) > (80 if is_held else 260)
    assert len(changed) <= CHANGED * len(found), _told(changed)


@pytest.mark.parametrize(
    "said",
    [
        *("CardError: card_declined", "AuthError: ECONNREFUSED 10.0.0.1:443", "TokenExpiredError: jwt expired"),
        *("card: declined", "basic authentication failed", "pass: 12", "token: null", "sessionTimeout=30"),
    ],
)
def test_words_that_are_no_secrets_stay(said: str) -> None:
    assert redact.text(said) == said


def test_what_is_redacted_stays_as_it_is_when_redacted_again() -> None:
    once = [redact.text(secret.text) for secret in secrets()]
    assert [(text, again) for text in once if (again := redact.text(text)) != text] == []


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "password=",
            "password: ",
            '"password":',
            '"password",',
            "--password ",
            "-p ",
            '\\"',
            '{"token":',
            '"token":[',
        ),
        *(
            "://",
            "://a:b@",
            "cookie: a=b;",
            "Cookie: ",
            "authorization=",
            "authorization: x a=b, ",
            "basic ",
            "digest ",
        ),
        *("-----BEGIN PRIVATE KEY-----", "eyJaaaa.", "sk_aaaa", "1", "4111 1111 ", "DE89 ", "%22", "%25", "&quot;"),
        *("password%3D", "mysql -x ", "-u a:", 'form-data; name="password"\n', "name=password value=", "<password>"),
        *("password correct ", "a", "a-", "password is ", "api key ", "password: |\n  ", 's:8:"password";', "?code="),
        *("$2b$", "password=(((", "password: Some(", "password='a''", "password=null,", '"password":"is a', "пароль: "),
    ],
)
def test_the_cost_is_linear_whatever_is_written(unit: str) -> None:
    text = (unit * (SIZE // len(unit) + 1))[:SIZE]
    began = time.process_time()
    redact.text(text)
    assert time.process_time() - began < SECONDS


def _told(found: Sequence[Secret | Harmless]) -> str:
    return "\n".join(f"{one.kind}: {one.text} -> {redact.text(one.text)}" for one in found)
