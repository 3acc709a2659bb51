"""Names as a person sees them."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import decode_name, printable


@pytest.mark.parametrize(
    "hidden",
    [
        "\u009b31m",
        "\u00ad",
        "\u034f",
        "\u2060",
        "\u200b",
        "\u202e",
        "\u3164",
        "\ufe0f",
        "\ufffa",
        "\u2028",
        "\U0001d173",
        "\U000e0041",
    ],
)
def test_no_character_hides_in_a_name_or_speaks_to_a_terminal(hidden: str) -> None:
    assert printable(f"bull:mail{hidden}") != "bull:mail"
    assert hidden[0] not in printable(f"bull:mail{hidden}")


def test_control_characters_are_visible_and_bytes_that_are_no_text_are_marked() -> None:
    assert printable("a\x1b\r\n") == "a␛␍␊"
    assert printable(decode_name(b"a\xff")) == "a\ufffd"
    assert printable("größe 名前") == "größe 名前"
