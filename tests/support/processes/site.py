"""The whole product as somebody runs it in production: one web process and one scheduler, on the tests' stores."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Self

from tests.support.processes.processes import end, run, spawn
from tests.support.processes.web_process import ROOT, WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until

# The quickest that the configuration allows: a test should not wait for the next look.
_INTERVALS = "[intervals]\ncollect = 0.5\ndiscover = 5\norphans = 1\n"
_START_SECONDS = 30.0


class Site:
    """Use as a context. `web` is the web process with the sessions of one person of each role."""

    def __init__(
        self,
        queues: Store,
        state: Store,
        environ: Mapping[str, str] | None = None,
        *,
        deployments: Mapping[str, str] | None = None,
        settings: str = "",
    ) -> None:
        """`deployments`: URLs by name, when it shall watch these and not `queues` alone; `settings`: more of TOML."""
        watched = {} if deployments else {"UNSTALL_REDIS_URL": queues.url}
        chosen = {**watched, "UNSTALL_STATE_URL": state.url, **(environ or {})}
        self.queues = queues
        self.state = state
        self.web = WebProcess(chosen)
        (self.web.directory / "unstall.toml").write_text(_INTERVALS + settings + _tables(deployments or {}))
        self._environ = environ_of(self.web.directory, chosen)
        self._scheduler: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.push(self.web.__exit__)  # first: a start that fails leaves nothing behind
            self.web.start()
            started.callback(self.unschedule)
            self.schedule()
            self._started = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web.port}"

    @property
    def log(self) -> str:
        """What the scheduler wrote."""
        return (self.web.directory / "scheduler.log").read_text(errors="replace")

    def cookie(self, person: str) -> str:
        """The session of `viewer`, `operator` or `admin`."""
        return self.web.cookies[person]

    def shell(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of somebody who sits at the same machine."""
        return run("manage.py", *arguments, environ=self._environ)

    def schedule(self) -> None:
        """Start the scheduler, and wait until it works."""
        with (self.web.directory / "scheduler.log").open("wb") as log:
            command = [sys.executable, "manage.py", "scheduler"]
            self._scheduler = spawn(command, environ=self._environ, directory=ROOT, stdout=log, stderr=log)
        until(self._is_at_work, _START_SECONDS, "the scheduler works")

    def unschedule(self) -> None:
        """End the scheduler: from now on the pages have old numbers."""
        if self._scheduler is not None:
            end(self._scheduler, seconds=15)
            self._scheduler = None

    def _is_at_work(self) -> bool:
        if self._scheduler is not None and self._scheduler.poll() is not None:
            raise AssertionError(self.log)
        return "started" in self.log


def _tables(deployments: Mapping[str, str]) -> str:
    return "".join(f'\n[[deployments]]\nname = "{name}"\nurl = "{url}"\n' for name, url in deployments.items())
