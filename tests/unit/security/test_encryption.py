"""What is encrypted at rest: read with the right key for the right thing alone."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import override_settings

from recovery import encryption

TEXT = b"the card number of a customer" * 50


def test_what_is_encrypted_is_read_again_and_is_not_readable_before() -> None:
    sealed = encryption.encrypt("copy", TEXT, "n8n", "17")
    assert encryption.decrypt("copy", sealed, "n8n", "17") == TEXT
    assert b"customer" not in sealed


def test_the_same_content_never_looks_the_same() -> None:
    one, other = (encryption.encrypt("copy", TEXT) for _ in range(2))
    assert one[-len(TEXT) :] != other[-len(TEXT) :]


@pytest.mark.parametrize("bound", [("n8n", "18"), ("n8", "n17"), ()])
def test_in_another_place_it_is_refused(bound: tuple[str, ...]) -> None:
    sealed = encryption.encrypt("copy", TEXT, "n8n", "17")
    assert encryption.decrypt("copy", sealed, *bound) is None


def test_for_another_purpose_it_is_refused() -> None:
    assert encryption.decrypt("other", encryption.encrypt("copy", TEXT)) is None


@pytest.mark.parametrize("at", [0, 4, 40, 70, -1])
def test_one_changed_byte_is_noticed(at: int) -> None:
    sealed = bytearray(encryption.encrypt("copy", TEXT))
    sealed[at] ^= 1
    assert encryption.decrypt("copy", bytes(sealed)) is None


@pytest.mark.parametrize("sealed", [None, b"", b"s1:", b"anything"])
def test_what_was_never_encrypted_is_refused(sealed: bytes | None) -> None:
    assert encryption.decrypt("copy", sealed) is None


def test_nothing_is_as_good_as_something() -> None:
    assert encryption.decrypt("copy", encryption.encrypt("copy", b"")) == b""


def test_a_former_key_still_reads_and_another_one_does_not() -> None:
    sealed, former = encryption.encrypt("copy", TEXT), settings.SECRET_KEY
    with override_settings(SECRET_KEY="k" * 50):
        assert encryption.decrypt("copy", sealed) is None
    with override_settings(SECRET_KEY="k" * 50, SECRET_KEY_FALLBACKS=[former]):
        assert encryption.decrypt("copy", sealed) == TEXT
