"""Names survive every way they travel, whatever bytes they are made of."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.identifiers import QueueRef, decode_name, encode_name, printable, slug, unslug

names = st.binary(max_size=60).map(decode_name) | st.text(max_size=60).map(
    lambda name: decode_name(name.encode("utf-8", "ignore"))
)


@given(st.binary(max_size=60))
def test_no_byte_of_a_name_is_lost(data: bytes) -> None:
    assert encode_name(decode_name(data)) == data


@given(names)
def test_a_slug_is_one_plain_url_segment_and_comes_back(name: str) -> None:
    segment = slug(name)
    assert re.fullmatch(r"[A-Za-z0-9_.:{}~-]+", segment)
    assert segment not in (".", "..")
    assert unslug(segment) == name


@given(names, names)
def test_two_names_never_share_a_slug(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)


@given(st.text(max_size=40))
def test_what_no_name_makes_is_refused(segment: str) -> None:
    try:
        name = unslug(segment)
    except ValueError:
        return
    assert slug(name) == segment


@pytest.mark.parametrize("segment", ["~4", "~zz", "~41", "a~", "..", "é", ""])
def test_a_segment_that_could_be_written_otherwise_is_refused(segment: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        unslug(segment)


@given(names)
def test_what_is_shown_can_be_printed_and_hides_nothing(name: str) -> None:
    seen = printable(name)
    seen.encode()
    assert not any(unicodedata.category(letter) == "Cc" and ord(letter) < 0x80 for letter in seen)
    assert not any(letter in "\u200b\u200e\u202e\u2066\ufeff" for letter in seen)


@given(names)
def test_a_queue_written_with_its_deployment_is_read_back(base: str) -> None:
    ref = QueueRef("eu", base)
    assert QueueRef.parse(str(ref)) == ref
    assert ref.job("7").queue == ref
