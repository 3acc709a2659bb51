"""A deployment that is away does not make a look at the others a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.scanners.registry import ScannerRegistry
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import WatchBench, config_for
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
SCANS = (ScannerKind.ORPHAN_WATCH, ScannerKind.STALE_CHECK, ScannerKind.AUTO_RETRY)


def test_a_scanner_has_looked_unless_all_deployments_are_away(tmp_path: Path, state_store: Store) -> None:
    with Store() as one, Store() as other:
        rest = f'[[deployments]]\nname = "other"\nurl = "{other.url}"\n'
        bench = WatchBench(config_for(tmp_path, state_store, one, rest))
        for store in (one, other):
            bullmq(store.client, "bull:mail")
            add(store.client, "bull:mail", "1")
        bench.discover()
        until(lambda: len(_look(bench, "").queues) == 2, 10)
        other.kill()
        _look(bench, "other")
        for scan, report in _reports(bench).items():
            assert (bool(report.faults), report.looked, report.has_looked) == (True, 0, True), scan
        one.kill()
        _look(bench, "main")
        for scan, report in _reports(bench).items():
            assert (bool(report.faults), report.has_looked) == (True, False), scan
        bench.close()


def _look(bench: WatchBench, away: str) -> Snapshot:
    bench.collector.run(now_ms())
    assert not away or any(one.name == away and one.error for one in bench.snapshot.deployments)
    return bench.snapshot


def _reports(bench: WatchBench) -> dict[ScannerKind, ScannerReport]:
    crew = ScannerRegistry(bench.registry, lambda: bench.snapshot, LeaderToken(1, always_leader))
    return {scan: report for scan in SCANS if (report := crew.run_of(scan)(now_ms())) is not None}
