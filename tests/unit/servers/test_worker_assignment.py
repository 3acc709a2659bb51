"""Who works on a server: processes joined with connections, and jobs counted only where that can be known."""

from __future__ import annotations

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import DeploymentSample, JobCounts, QueueSample, Snapshot, Worker
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.servers.samples import Server, ServerProcess
from recovery.domain.servers.worker_assignment import WorkerAssignment, WorkersByServer
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import VerdictKind

NOW = 1_795_000_000_000
MAIL, VIDEO = QueueRef("main", "bull:mail"), QueueRef("main", "bull:video")
FIRST = ServerProcess(7, "node", "node mail.js", NOW, sockets=("10.0.0.1:1", "10.0.0.1:2"))
IDLE = ServerProcess(8, "python", "python -m worker", NOW)
EU_1 = Server("eu-1", "a", NOW, 5_000, addresses=("10.0.0.1",), processes=(FIRST, IDLE))
EU_2 = Server("eu-2", "b", NOW, 5_000, addresses=("10.0.0.2",))


def worker(address: str, name: str = "", queue: QueueRef = MAIL) -> Worker:
    return Worker(queue, name, address, 1, 0, "bzpopmin", address)


def floor(*workers: Worker, mail: int | None = 5, tally: StuckTally | None = None) -> WorkersByServer:
    samples = (QueueSample(MAIL, counts=JobCounts(active=mail)), QueueSample(VIDEO, counts=JobCounts(active=0)))
    snapshot = Snapshot(1, NOW, (DeploymentSample("main", "here", NOW),), samples, workers)
    inbox = StuckInbox(NOW, queues=(tally,) if tally else ())
    return WorkersByServer.of(snapshot, inbox, AddressMap.of((EU_1, EU_2), NOW))


def counted(staff: WorkerAssignment) -> tuple[int | None, bool]:
    return staff.active, staff.is_least


def test_a_process_is_joined_with_its_connections_and_shown_without_any() -> None:
    staff = floor(worker("10.0.0.1:1"), worker("10.0.0.1:2", queue=VIDEO), worker("10.0.0.1:9")).staff(EU_1)
    told = {(one.process.pid if one.process else None): one.queues for one in staff.members}
    assert told == {7: (MAIL, VIDEO), 8: (), None: (MAIL,)}
    assert staff.workers == 3


def test_all_workers_of_a_queue_run_all_of_its_jobs_but_those_that_nobody_holds() -> None:
    tally = StuckTally(MAIL, {VerdictKind.RUNNING: 3, VerdictKind.ORPHAN: 1, VerdictKind.MISSING_DATA: 1})
    assert counted(floor(worker("10.0.0.1:1"), tally=tally).staff(EU_1)) == (3, False)


def test_among_several_servers_names_tell_and_without_names_nobody_does() -> None:
    tally = StuckTally(MAIL, {VerdictKind.RUNNING: 5}, holders={"a": 3, "b": 2})
    named = floor(worker("10.0.0.1:1", "a"), worker("10.0.0.2:1", "b"), tally=tally)
    assert (counted(named.staff(EU_1)), counted(named.staff(EU_2))) == ((3, False), (2, False))
    unnamed = floor(worker("10.0.0.1:1", "a"), worker("10.0.0.2:1"), tally=tally)
    assert counted(unnamed.staff(EU_1)) == (None, True)
    twins = floor(worker("10.0.0.1:1", "a"), worker("10.0.0.2:1", "a"), tally=tally)
    assert counted(twins.staff(EU_1)) == (None, True), "the same name on two servers"
    other = floor(worker("10.0.0.1:1"), worker("10.0.0.2:1"), worker("10.0.0.1:2", queue=VIDEO), tally=tally)
    assert counted(other.staff(EU_1)) == (0, True), "of the other queue it is known"


def test_what_is_not_known_is_not_nothing() -> None:
    assert counted(floor(worker("10.0.0.1:1"), mail=None).staff(EU_1)) == (None, True)
    assert counted(floor(worker("10.0.0.1:1"), mail=0).staff(EU_1)) == (0, False)
    assert not WorkersByServer.of(None, None, AddressMap()).is_known
