"""What two looks at a node's counters say of its CPU: true when they are sound, within bounds whatever they are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.servers.node_exporter import NodeGauges, NodeReading, percent

MODES = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
_seconds = st.floats(0, 1e9, allow_nan=False)
_core = st.dictionaries(st.sampled_from(MODES), _seconds, max_size=len(MODES))
_cores = st.dictionaries(st.sampled_from([str(number) for number in range(6)]), _core)


def look(cores: dict[str, dict[str, float]]) -> NodeReading:
    return NodeReading(NodeGauges(), cores)


@given(st.lists(_cores, min_size=2, max_size=6))
def test_it_is_a_percentage_or_not_known(looks: list[dict[str, dict[str, float]]]) -> None:
    for before, after in pairwise(looks):
        busy = percent(look(before), look(after))
        assert busy is None or 0 <= busy <= 100


@given(
    start=st.lists(_core, min_size=1, max_size=256),
    busy=st.floats(0, 1, allow_nan=False),
    elapsed=st.floats(1, 60),
    iowait=st.floats(0, 1, allow_nan=False),
)
def test_it_is_the_share_of_all_cores_that_did_something(
    start: list[dict[str, float]], busy: float, elapsed: float, iowait: float
) -> None:
    before = {str(number): {mode: core.get(mode, 0.0) for mode in MODES} for number, core in enumerate(start)}
    rest = elapsed * (1 - busy)
    moved = {"user": elapsed * busy, "idle": rest * (1 - iowait), "iowait": rest * iowait}
    after = {name: {mode: at + moved.get(mode, 0.0) for mode, at in core.items()} for name, core in before.items()}
    found = percent(look(before), look(after))
    # Counters of a billion seconds are exact to a tenth of a microsecond.
    assert found == pytest.approx(100 * busy, abs=0.01)


def test_a_machine_that_started_anew_is_not_known_for_one_look() -> None:
    before, after = {"0": {"idle": 90.0, "user": 1.0}}, {"0": {"idle": 4.0, "user": 3.0}}
    assert percent(look(before), look(after)) is None
    assert percent(look(after), look({"0": {"idle": 7.0, "user": 4.0}})) == 25


def test_a_core_counts_from_its_second_look_on() -> None:
    before = {"0": {"idle": 0.0, "user": 0.0}}
    after = {"0": {"idle": 5.0, "user": 5.0}, "1": {"idle": 0.0, "user": 1e6}}
    assert percent(look(before), look(after)) == 50


def test_a_counter_that_falls_a_little_did_not_move() -> None:
    before, after = {"0": {"idle": 10.0, "iowait": 5.0}}, {"0": {"idle": 13.0, "iowait": 4.9, "user": 1.0}}
    assert percent(look(before), look({"0": {**after["0"], "user": 0.0}})) == 0
    assert percent(look({"0": {**before["0"], "user": 0.0}}), look(after)) == 25


def test_counters_that_stand_still_say_nothing() -> None:
    still = {"0": {"idle": 10.0, "user": 5.0}}
    assert percent(look(still), look(still)) is None
    assert percent(look({}), look(still)) is None
