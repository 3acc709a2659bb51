"""The scheduler of a running console copies what is at risk by itself, and the shell tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.n8n.n8n_mending import KEPT
from tests.support.n8n.n8n_yard import Yard
from tests.support.processes.fleet import Fleet
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Postgresql
from tests.support.waiting import until

pytestmark = pytest.mark.node


def test_the_execution_of_a_killed_worker_is_copied_and_told(
    valkey: Store, state_store: Store, postgresql: Postgresql, libraries: Fleet
) -> None:
    yard = Yard(valkey, postgresql, libraries, release="2.41")
    yard.workflow()
    database = f'[[databases]]\nname = "n8n"\nurl = "{postgresql.url}"\ntimeout = 10\n[[n8n]]\ndatabase = "n8n"\n'
    with Site(valkey, state_store, settings=f"[thresholds]\nstalled_interval = 1\n{database}") as site:
        run = yard.begin()
        worker = yard.work()
        until(lambda: yard.queue().counts()["active"] == 1, what="a worker has the job")
        yard.started(run)
        yard.keep(run.execution, KEPT)
        worker.kill()

        def told() -> dict[str, Any] | None:
            found = json.loads(site.shell("n8n", "--lost", "--json").stdout or '{"losses": []}')["losses"]
            return next(iter(found), None)

        loss = until(told, 30, "it is in the history")
        assert (loss["execution"], loss["outcome"]) == (run.execution, "at risk"), site.log
        assert loss["copied_at"], loss
