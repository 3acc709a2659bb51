"""One of two watched deployments fails under a running site: what every page says, how soon, and how it comes back."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from tests.fault.proxy import Proxy
from tests.support.patience import patience, promptly
from tests.support.processes.site import Site
from tests.support.processes.web_process import Answer
from tests.support.stores.stores import Store
from tests.support.stuck.watching import add, bullmq, finish, now_ms
from tests.support.waiting import until

PAGE_SECONDS = 1.0
NOTICED_SECONDS = 3.0  # one collect, its timeout, and the way to the web process
BACK_SECONDS = 5.0
GOOD, BAD = "bull:steady", "bull:shaky"
QUEUE = f"/queues/shaky/{BAD}/"
JOB = f"{QUEUE}jobs/w1"
# DEBUG RELOAD plays a restart with data on disk; slowly, so that somebody can look at it.
_OPTIONS = {
    "enable-debug-command": "yes",
    "loading-process-events-interval-bytes": "1024",
    "key-load-delay": "1000",
}


@dataclass(frozen=True, slots=True)
class House:
    """A site that watches `steady`, `shaky` through a proxy, and `sealed`: TLS towards a server that speaks none."""

    site: Site
    shaky: Store
    proxy: Proxy

    def get(self, path: str, *, fragment: bool = False) -> Answer:
        """What a browser gets, within the second that every page has."""
        headers = {"HX-Request": "true"} if fragment else {}
        with promptly(PAGE_SECONDS, path):
            return self.site.web.get(path, "operator", headers=headers)

    def text(self, path: str, status: int = 200) -> str:
        answer = self.get(path)
        assert answer.status == status, answer.body
        return answer.body.decode()

    def row(self, base: str) -> str:
        """This queue's row on /queues."""
        page = self.text("/queues")
        return next((row for row in re.findall(r"<tr data-row.*?</tr>", page, re.DOTALL) if f"/{base}/" in row), "")

    def is_old(self) -> bool:
        return " data-old" in self.row(BAD)

    def is_well(self) -> bool:
        row = self.row(BAD)
        return bool(row) and " data-old" not in row and "cannot be read" not in row

    def seed(self) -> None:
        """Two waiting jobs and one that failed; a server that was started anew has none."""
        self.shaky.flush()
        bullmq(self.shaky.client, BAD)
        add(self.shaky.client, BAD, "w1", "w2")
        finish(self.shaky.client, BAD, now_ms(), outcome="failed")

    def hang_up(self) -> None:
        """Every connection but ours: a new login is judged only where somebody logs in."""
        self.shaky.client.client_kill_filter(_type="normal", skipme=True)

    def heal(self) -> None:
        """Whatever was done to it, or to the way to it."""
        self.proxy.restore()
        self.proxy.lead(self.shaky.port)
        self.shaky.start()
        self.shaky.resume()
        self.site.state.start()
        self.site.state.resume()
        self.shaky.do("ACL", "SETUSER", "default", "nopass", "+@all")
        self.shaky.client.replicaof("NO", "ONE")
        self.shaky.client.config_set("replica-serve-stale-data", "yes")
        if not self.shaky.client.exists(f"{BAD}:wait"):
            self.seed()


@pytest.fixture(scope="module")
def built() -> Iterator[House]:
    with Store() as steady, Store(options=_OPTIONS) as shaky, Store() as state, Proxy(shaky.port) as proxy:
        bullmq(steady.client, GOOD)
        add(steady.client, GOOD, "a", "b", "c")
        urls = {"steady": steady.url, "shaky": proxy.url, "sealed": state.url.replace("redis:", "rediss:")[:-1] + "5"}
        with Site(steady, state, deployments=urls) as site:
            house = House(site, shaky, proxy)
            house.seed()
            until(lambda: house.is_well() and bool(house.row(GOOD)), 20, "both deployments are seen")
            yield house


@pytest.fixture
def house(built: House) -> Iterator[House]:
    """Everything well, before and after."""
    until(built.is_well, patience(10), "well before the test")
    yield built
    built.heal()
    until(built.is_well, patience(10), "well after the test")


def _killed(house: House) -> None:
    house.shaky.kill()


def _hung(house: House) -> None:
    house.shaky.pause()


def _refused(house: House) -> None:
    house.proxy.refuse()


def _half_open(house: House) -> None:
    house.proxy.silence()


def _password_changed(house: House) -> None:
    house.shaky.do("ACL", "SETUSER", "default", "resetpass", ">another")
    house.hang_up()


def _locked_out(house: House) -> None:
    house.shaky.do("ACL", "SETUSER", "default", "-@all", "+acl", "+ping", "+client|list")


def _orphaned_replica(house: House) -> None:
    house.shaky.client.config_set("replica-serve-stale-data", "no")
    house.shaky.client.replicaof("127.0.0.1", 1)


Step = Callable[[House], None]
FAULTS: dict[str, tuple[Step, str]] = {
    "killed": (_killed, "closed the connection"),
    "hung": (_hung, "no answer"),
    "port refused": (_refused, "connection refused"),
    "half-open network": (_half_open, "no answer"),
    "password changed": (_password_changed, "requires a password"),
    "ACL too small": (_locked_out, "permissions"),
    "replica without its master": (_orphaned_replica, "lost its master"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_deployment_that_fails_costs_its_own_rows_only_and_comes_back(house: House, name: str) -> None:
    harm, reason = FAULTS[name]
    harm(house)
    # What one user may not read is the queue's own trouble; the rest is that of the whole store.
    _is_told(house, reason, f"shaky, queue {BAD}" if harm is _locked_out else "")
    house.heal()
    until(house.is_well, patience(BACK_SECONDS), "it came back by itself")
    until(lambda: house.get(JOB).status == 200, patience(BACK_SECONDS), "its jobs are read again")


def test_a_server_that_loads_its_data_is_told_as_such(house: House) -> None:
    house.shaky.do("DEBUG", "POPULATE", 5000, "filler", 200)
    with _reloading(house.shaky):
        _is_told(house, "loading its data")
    until(house.is_well, patience(BACK_SECONDS), "it came back by itself")


def test_a_server_that_suddenly_speaks_tls_is_told_as_such(house: House, certificates: Path) -> None:
    with Store("redis", tls=certificates) as encrypted:
        house.proxy.lead(encrypted.port)
        _is_told(house, "speaks TLS")
    house.proxy.lead(house.shaky.port)
    until(house.is_well, patience(BACK_SECONDS), "it came back by itself")


def test_a_deployment_that_never_answered_is_named_with_its_reason(house: House) -> None:
    page = house.text("/queues")
    assert "sealed does not answer" in page
    assert "does not speak TLS" in page, re.findall(r"sealed.*", page)
    assert "rediss://" in house.text("/queues/sealed/bull:x/", status=503)


def test_a_replica_is_read_and_said_to_be_one(house: House) -> None:
    house.shaky.client.replicaof("127.0.0.1", 1)
    until(lambda: house.get(JOB).status == 200, patience(BACK_SECONDS), "its jobs are read")
    until(house.is_well, patience(BACK_SECONDS), "its queues are read")
    # What a server is gets asked again when it was away: a moment of silence makes it so.
    house.proxy.refuse()
    until(house.is_old, patience(NOTICED_SECONDS))
    house.proxy.restore()
    until(lambda: "This is a replica" in house.text("/queues"), patience(BACK_SECONDS), "it is said")


def test_a_slow_network_makes_pages_slow_and_not_wrong(house: House) -> None:
    house.proxy.delay(0.1)
    answers = [house.site.web.get(path, "operator", seconds=20) for path in (QUEUE, f"{QUEUE}?tab=failed", JOB)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert b"cannot be read" not in answers[1].body
    until(house.is_well, patience(BACK_SECONDS), "a look that takes longer is a look")


def test_a_cut_in_the_middle_of_an_answer_is_a_sentence_and_not_a_page_of_ours(house: House) -> None:
    house.proxy.cut_after(40)
    until(lambda: "closed the connection" in house.text(f"{QUEUE}?tab=failed"), patience(NOTICED_SECONDS))
    until(lambda: house.get(JOB).status == 503, patience(NOTICED_SECONDS))
    house.proxy.restore()
    until(house.is_well, patience(BACK_SECONDS), "it came back by itself")


@pytest.mark.parametrize("fault", ["killed", "hung"])
def test_a_state_store_that_fails_leaves_the_last_numbers_with_the_reason(house: House, fault: str) -> None:
    state = house.site.state
    state.kill() if fault == "killed" else state.pause()
    until(lambda: "The state store does not answer" in house.text("/queues"), patience(12))
    assert re.search(r'<tbody id="rows-0"[^>]* data-stale', house.text("/queues"))
    assert ">3<" in house.row(GOOD)
    assert house.get(f"/queues/steady/{GOOD}/jobs/a").status == 200  # what is read directly is still read
    assert "These numbers are stale" in house.text(f"/queues/steady/{GOOD}/")
    ready = house.get("/readyz")
    assert (ready.status, json.loads(ready.body)["degraded"]) == (200, ["state store: does not answer"])
    state.start() if fault == "killed" else state.resume()
    until(lambda: "data-stale" not in house.text("/queues"), patience(BACK_SECONDS), "it came back by itself")


def test_without_a_scheduler_every_page_says_so(house: House) -> None:
    house.site.unschedule()
    until(lambda: "The scheduler is not running" in house.text("/queues"), patience(10))
    assert "manage.py scheduler" in house.text("/queues")
    assert "The scheduler is not running" in house.text(QUEUE)
    assert house.get("/readyz").status == 200
    house.site.schedule()
    until(lambda: "The scheduler is not running" not in house.text("/queues"), patience(BACK_SECONDS))


def _is_told(house: House, reason: str, target: str = "") -> None:
    """On every page, in time, with the last good numbers, and about nobody else."""
    target = target or f"redis://127.0.0.1:{house.proxy.port}/0"
    until(house.is_old, patience(NOTICED_SECONDS), "the row is marked as old")
    # The first look at a fault may still find its beginning: a connection cut before nobody answers.
    until(lambda: reason in house.row(BAD), patience(NOTICED_SECONDS), f"it says {reason!r}")
    row = house.row(BAD)
    assert 'data-label="Waiting">2<' in row
    assert 'data-label="Failed">1<' in row
    page = house.text("/queues")
    assert " data-old" not in house.row(GOOD)
    assert "steady does not answer" not in page
    queue = house.text(f"{QUEUE}?tab=waiting")
    assert "These numbers are stale" in queue
    assert 'class="line stale"' in queue
    assert "Waiting<small>2</small>" in queue
    assert "This list cannot be read" in queue
    for tab in ("failed", "history", "workers", "schedulers"):
        assert house.get(f"{QUEUE}tab?tab={tab}", fragment=True).status == 200
    assert house.get(f"{QUEUE}chart?hours=24").status == 200
    until(lambda: house.get(JOB).status == 503, patience(NOTICED_SECONDS), "it is not in the memory of a moment ago")
    job = house.text(JOB, status=503)
    for told in ("A store does not answer", target, reason):
        assert told in job
    for path in (f"{JOB}/life", f"{JOB}/tab?tab=data"):
        answer = house.get(path, fragment=True)
        assert (answer.status, answer.headers["hx-retarget"]) == (503, "#trouble")
    until(lambda: "Not searched" in house.text("/search?q=w1"), patience(NOTICED_SECONDS))


@contextmanager
def _reloading(store: Store) -> Iterator[None]:
    """The server loads its data anew beside the test."""

    def reload() -> None:
        with suppress(redis.RedisError), store.connect(socket_timeout=30) as client:
            client.execute_command("DEBUG", "RELOAD")

    thread = threading.Thread(target=reload)
    thread.start()
    yield
    thread.join()
