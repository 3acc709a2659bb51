"""Every blocker can be asked for, and reads as the end of a sentence."""

from __future__ import annotations

import pytest

from recovery.domain.scanners.blockers import Blocker, ScannerBlock
from recovery.reads.scanners import blockers


def test_whoever_adds_a_blocker_says_when_it_applies() -> None:
    assert list(blockers._ASKED) == list(Blocker)


@pytest.mark.parametrize("blocker", Blocker)
def test_it_goes_on_after_a_scanners_name(blocker: Blocker) -> None:
    clause = ScannerBlock(blocker, "ma\x00in", "").clause
    assert clause[0].islower()
    assert not clause.endswith(".")
    assert "{" not in clause
    assert "\x00" not in clause
