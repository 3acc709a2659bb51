"""A sure look between whose commands others act: it is never surer than one moment allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recovery.backends.base import Command
from recovery.backends.redis_common import active_jobs
from recovery.backends.redis_common.active_jobs import WINDOW, ActiveSuspect, ActiveWindow
from recovery.domain.identifiers import QueueRef
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import active

REF = QueueRef("main", "bull:jobs")


class Interrupted:
    """Sends the commands one by one, and lets somebody act behind those that match."""

    def __init__(self, store: Store, behind: bytes, number: int, act: Callable[[], object]) -> None:
        self._pipe = Pipe(store.client)
        self._behind, self._number, self._act = behind, number, act

    def call(self, commands: Sequence[Command]) -> list[Any]:
        replies = []
        for command in commands:
            replies += self._pipe.call([command])
            if command[0] == self._behind:
                self._number -= 1
                if self._number == 0:
                    self._act()
        return replies


def look(store: Store, *, behind: bytes = b"", number: int = 0, act: Callable[[], object] = lambda: None) -> Any:
    (sight,) = active_jobs.read_consistently(
        Interrupted(store, behind, number, act), [ActiveSuspect(b"1", ActiveWindow(REF))]
    )
    return sight


def test_an_undisturbed_look_at_a_job_without_a_lock_is_sure(valkey: Store) -> None:
    active(valkey, REF.base, "1", ats=1, pb="mail-3", parentKey="bull:flow:1")
    sight = look(valkey)
    assert sight.is_sure
    assert (sight.row.starts, sight.row.worker, sight.row.parent) == (1, "mail-3", "bull:flow:1")


def test_a_job_that_is_taken_during_the_look_is_not_sure(valkey: Store) -> None:
    """It had no lock because it waited; a worker took it before the list was read, and finished it at once."""
    active(valkey, REF.base, "1", ats=1)

    def taken() -> None:
        valkey.client.hincrby(f"{REF.base}:1", "ats", 1)

    assert not look(valkey, behind=b"PTTL", number=1, act=taken).is_sure


def test_a_lock_that_comes_or_goes_during_the_look_makes_it_unsure(valkey: Store) -> None:
    active(valkey, REF.base, "1", ats=1)
    lock = f"{REF.base}:1:lock"
    coming = look(valkey, behind=b"LRANGE", number=1, act=lambda: valkey.client.set(lock, "w:1", px=9_000))
    assert not coming.is_sure
    assert coming.row.lock is not None
    going = look(valkey, behind=b"LRANGE", number=1, act=lambda: valkey.client.delete(lock))
    assert not going.is_sure


def test_a_job_that_left_the_list_is_not_seen(valkey: Store) -> None:
    active(valkey, REF.base, "1")
    assert look(valkey, behind=b"PTTL", number=1, act=lambda: valkey.client.delete(f"{REF.base}:active")) is None


def test_a_job_is_found_though_its_window_has_moved(valkey: Store) -> None:
    active(valkey, REF.base, *map(str, range(WINDOW + 10)))
    suspect = ActiveSuspect(str(WINDOW + 5).encode(), ActiveWindow(REF, WINDOW))
    valkey.client.rpop(f"{REF.base}:active", 200)
    (sight,) = active_jobs.read_consistently(Pipe(valkey.client), [suspect])
    assert sight is not None
    assert sight.is_sure


def test_a_name_that_no_library_wrote_is_not_fetched(valkey: Store) -> None:
    active(valkey, REF.base, "1", pb="x" * 100_000)
    pipe = Pipe(valkey.client)
    (sight,) = active_jobs.read_consistently(pipe, [ActiveSuspect(b"1", ActiveWindow(REF))])
    assert sight is not None
    assert sight.row.worker == ""
    assert pipe.weight < 1_000


def test_positions_lead_to_the_windows_jobs_stand_in(valkey: Store) -> None:
    active(valkey, REF.base, *map(str, range(2_500)))
    found = active_jobs.position(Pipe(valkey.client), REF, ["0", "999", "1000", "2400", "nobody"])
    assert [(suspect.id, suspect.window.start) for suspect in found] == [
        (b"0", 0),
        (b"999", 0),
        (b"1000", 1_000),
        (b"2400", 2_000),
    ]
