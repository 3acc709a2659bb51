"""From where a job's holder is connected, or was when it was last seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.holders import host_of, server
from recovery.domain.jobs import JobRow, Lock, State
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import Change, Surroundings

NOW = 1_795_000_000_000
HELD = JobRow(QueueRef("main", "bull:mail").job("1"), State.ACTIVE, lock=Lock("w:1", 22_000), worker="mail-1")
LOST = replace(HELD, lock=None)
NAMED = Surroundings(NOW, workers=2, names=frozenset({"mail-1", "mail-2"}), hosts={"mail-1": "10.0.0.7", "mail-2": ""})
UNNAMED = Surroundings(NOW, workers=2, unnamed=2, hosts={"": "10.0.0.8"})


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:6379", "10.0.0.1"),
        ("[fd00::1]:40112", "fd00::1"),
        ("/run/valkey.sock:0", ""),
        ("", ""),
    ],
)
def test_the_host_of_a_connection(address: str, host: str) -> None:
    assert host_of(address) == host


def test_a_named_holder_is_where_it_is_connected() -> None:
    assert server(HELD, NAMED) == "10.0.0.7"
    assert server(replace(HELD, worker="mail-2"), NAMED) == "", "the same name on two hosts"


def test_one_that_went_was_where_it_was_last_seen() -> None:
    around = replace(NAMED, hosts={"mail-2": "10.0.0.9"}, left=(Change("mail-1", 1, "a"), Change("mail-1", 2, "b")))
    assert server(LOST, around) == "b"


def test_without_names_one_host_is_known_and_of_two_none() -> None:
    assert server(HELD, UNNAMED) == "10.0.0.8"
    assert server(LOST, UNNAMED) == "", "whoever lost it need not be one of those that are here"
    assert server(HELD, replace(UNNAMED, hosts={"": ""})) == ""


def test_when_all_went_it_is_the_host_they_were_on() -> None:
    gone = replace(UNNAMED, workers=0, unnamed=0, hosts={}, left=(Change("", 1, "10.0.0.8"),))
    assert server(LOST, gone) == "10.0.0.8"
    assert server(LOST, replace(gone, left=(*gone.left, Change("", 2, "10.0.0.9")))) == ""
