from __future__ import annotations

from recovery.management.text_table import WIDEST, align_columns


def test_columns_are_as_wide_as_their_cells_and_one_long_name_pushes_nothing_away() -> None:
    long = "k" * 512
    head, short, longest = align_columns([("key", "n"), ("a", "10"), (long, "7")], {0}).split("\n")
    assert short == f"{'a':<{WIDEST}}  10"
    assert head == f"{'key':<{WIDEST}}   n"
    assert longest == f"{long}   7"
