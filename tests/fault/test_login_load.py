"""Many log-ins at once: each costs a password hash, and the pages of others stay as quick as they were."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.patience import patience
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until

CONNECTIONS = 24
PAGES = 15
ROUNDS = 3  # another process of the machine may take a core during one of them
TIMES_SLOWER = 2.0
MOST = 4.0  # however busy the machine is: with eight hashes at once it is nine times and more
SECRET = "c" * 32  # of the form: an attacker has one from a look at the page

pytestmark = pytest.mark.long  # a minute of hashing on every core, and a figure that a busy machine spoils


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with Store() as queues, Store() as state:
        environ = {
            "UNSTALL_STATE_URL": state.url,
            "UNSTALL_REDIS_URL": queues.url,
            "UNSTALL_TRUSTED_PROXIES": "127.0.0.1",  # so that each attempt comes from another address
        }
        with WebProcess(environ) as process:
            yield process


class Attack:
    """Log-ins with invented names from ever new addresses: no limit but the queue of the hashes holds them up."""

    def __init__(self, web: WebProcess) -> None:
        self._web = web
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._guess, args=(number,)) for number in range(CONNECTIONS)]
        self.statuses: Counter[int] = Counter()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            until(lambda: self.statuses.total() >= 3, 60, "log-ins are answered")
            yield
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join()

    def _guess(self, number: int) -> None:
        tries = 0
        while not self._is_over.is_set():
            tries += 1
            self.statuses[_log_in(self._web, f"name{number}-{tries}", f"10.{number}.{tries // 250}.{tries % 250}")] += 1


def _log_in(web: WebProcess, name: str, address: str, password: str = "wrong") -> int:
    headers = {"X-Forwarded-For": address, "Cookie": f"unstall-csrf={SECRET}"}
    form = {"username": name, "password": password, "csrfmiddlewaretoken": SECRET}
    return web.get("/login", headers=headers, form=form, seconds=60).status


def _median(web: WebProcess) -> float:
    """Seconds that a page of somebody who is logged in takes."""
    taken = []
    for _ in range(PAGES):
        began = time.monotonic()
        assert web.get("/audit", "operator", seconds=60).status == 200
        taken.append(time.monotonic() - began)
    return statistics.median(taken)


def test_pages_stay_quick_while_many_log_in(web: WebProcess) -> None:
    _median(web)  # the first ones load templates
    ratios = []
    for _ in range(ROUNDS):
        alone, attack = _median(web), Attack(web)
        with attack.under_way():
            ratios.append(_median(web) / alone)
        assert attack.statuses[200], "passwords were hashed meanwhile"
        if ratios[-1] <= min(patience(TIMES_SLOWER), MOST):
            return
    raise AssertionError(f"slower by {ratios}")


def test_somebody_with_the_right_password_still_gets_in(web: WebProcess) -> None:
    attack = Attack(web)
    with attack.under_way():
        until(lambda: _log_in(web, "viewer", "192.0.2.7", "pass-viewer") == 302, 60, "viewer is logged in")
