"""Two thousand rounds of our requeue against the libraries' own code: nothing runs twice, nothing is lost.

In each round a worker finishes, renews or sweeps at the moment at which an operator requeues the same job, whose lock
runs out at about that moment. Afterwards the library does what is left, and every job was completed exactly once: as
often as the library alone would have done it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from tests.contract import races
from tests.contract.places import assert_each_once
from tests.contract.races import Arena, Bout, Step, Winner
from tests.contract.scene import Scene
from tests.support.processes.fleet import Library
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

ROUNDS = 112  # with three steps and six generations: 2,016
LONG_ROUNDS = 1_500
FAIR_SHARE = 0.05  # of the rounds, that each side has won at least: else it was no race
BOUTS = 5  # on a machine that is busy one side may lag: so often it is tried again
SEED = 20_261_118
STEPS: dict[str, Step] = {"finishing": races.finishes, "renewing": races.renews, "sweeping": races.sweeps}


@pytest.fixture
def scene(valkey: Store, library: Library) -> Iterator[Scene]:
    pipe = Pipe(valkey.client)
    yield Scene(library.queue(valkey), valkey, pipe)
    pipe.close()


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(LONG_ROUNDS, marks=pytest.mark.long)])
@pytest.mark.parametrize("step", STEPS)
def test_requeue_against_a_worker_completes_each_job_once(scene: Scene, step: str, rounds: int) -> None:
    arena = Arena(scene, Random(f"{SEED}-{scene.queue.library.name}-{step}"))
    winners = _fair(arena, rounds, STEPS[step])
    ours = [job for job, who in winners.items() if who is Winner.OURS]
    early, late = ours[::2], ours[1::2]

    arena.refuse(early)  # while the job waits
    if step == "renewing":
        arena.finish([job for job, who in winners.items() if who is Winner.THEIRS])
    completed = arena.rest(len(winners))
    arena.refuse(late)  # after another worker has completed it

    assert completed == Counter(dict.fromkeys(winners, 1))
    assert {job: arena.stalls(job) for job in ours if arena.stalls(job) != 1} == {}
    assert_each_once(scene.store.client, scene.ref.base, winners)


def _fair(arena: Arena, rounds: int, step: Step) -> dict[str, Winner]:
    """At least so many rounds, and until both sides have won some."""
    winners: dict[str, Winner] = {}
    for _ in range(BOUTS):
        winners |= arena.bout(rounds, step).winners
        tally = Bout(winners).tally
        if min(tally[Winner.OURS], tally[Winner.THEIRS]) >= FAIR_SHARE * rounds:
            return winners
    raise AssertionError(f"no race: {dict(tally)}")
