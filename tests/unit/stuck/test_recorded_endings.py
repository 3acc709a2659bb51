"""What is said of the cause, against endings of real workers that were recorded (`python -m tests.endings`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from recovery.domain.stuck.types import LossCause
from tests.endings.replay import Said, replay

FOLDER = Path(__file__).parents[2] / "golden" / "endings"
LIBRARIES = ("bullmq-node", "bullmq-node-named", "bullmq-python", "bull4", "n8n")
# Unknown is right where what can be seen fits another ending as well.
EXPECTED = {
    "crash": LossCause.CRASHED,
    "crash of the only one": LossCause.CRASHED,
    "crash and restart": LossCause.UNKNOWN,  # a deployment of one worker
    "deploy, new ones first": LossCause.DEPLOYED,
    "deploy, old ones first": LossCause.DEPLOYED,
    "starvation": LossCause.STARVED,
    "out of memory": LossCause.CRASHED,
    "Redis restart": LossCause.RESTARTED,
    "network cut in silence": LossCause.UNKNOWN,  # a process that is stopped
    "network cut and healed": LossCause.UNKNOWN,  # workers that were stopped and started
}
ENDINGS = [(library, ending) for library in LIBRARIES for ending in EXPECTED]


@cache
def said(library: str, ending: str) -> list[Said]:
    return replay(FOLDER / f"{library}, {ending}.json")


def test_every_ending_was_recorded_with_every_library() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(map(", ".join, ENDINGS))
    assert len(ENDINGS) >= 40


def test_at_least_95_of_100_causes_are_right_in_the_end() -> None:
    wrong = []
    for library, ending in ENDINGS:
        looks = said(library, ending)
        last = {look.job: look.verdict.cause for look in looks if look.at == looks[-1].at}
        if set(last.values()) != {EXPECTED[ending]}:
            wrong.append((library, ending, last))
    assert len(wrong) <= len(ENDINGS) * 0.05, wrong


def test_no_look_at_any_of_them_names_a_wrong_cause() -> None:
    wrong = {
        (library, ending, look.at, look.job, look.verdict.cause)
        for library, ending in ENDINGS
        for look in said(library, ending)
        if look.verdict.cause not in (LossCause.UNKNOWN, EXPECTED[ending])
    }
    assert not wrong


@pytest.mark.parametrize("library", LIBRARIES)
def test_two_workers_are_counted_as_two(library: str) -> None:
    """The Python port opens two connections for each, and gives both its name."""
    assert {look.workers for look in said(library, "network cut in silence")} == {2}
