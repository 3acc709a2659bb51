"""Formats rows as text in aligned columns."""

from __future__ import annotations

from collections.abc import Container, Sequence

WIDEST = 48  # characters to which a column is filled up: one long name must not push the others out of sight


def align_columns(rows: Sequence[Sequence[str]], left: Container[int]) -> str:
    """Aligns numbers to the right, and the columns in `left` to the left. A long cell is never cut."""
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths, left) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int], left: Container[int]) -> str:
    cells = enumerate(zip(row, widths, strict=True))
    return "  ".join(
        cell.ljust(width) if index in left else cell.rjust(width) for index, (cell, width) in cells
    ).rstrip()
