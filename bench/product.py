"""Unstall as it is installed, for a measurement: a web process and schedulers over one Redis, asked by its API."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import django
import psycopg

from bench import stage
from tests.support.processes import web_process
from tests.support.processes.fleet import Queue
from tests.support.processes.schedulers import DATABASE, Process
from tests.support.processes.web_process import ROOT, WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until

AS_INSTALLED = ("manage.py", "scheduler")
_TOKEN = "unstall_" + "c" * 43
_MAKE = (
    "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
    " VALUES ('bench', ?, 'unstall_bench', 'read act bulk', '2026-01-01', '2126-01-01')"
)
_TAG = re.compile(r"<[^>]*>")


@dataclass(slots=True)
class Product:
    """`database` is the URL of a PostgreSQL; without one it is SQLite in the web process's directory."""

    web: WebProcess
    state: Store
    environ: dict[str, str]
    database: str = ""
    schedulers: list[Process] = field(default_factory=list)
    gave_up: int = 0  # schedulers that ended by themselves, and were started again
    _starts: dict[int, Callable[[int], Process]] = field(default_factory=dict)  # process → how it was started

    def schedule(self, arguments: tuple[str, ...] = AS_INSTALLED, environ: Mapping[str, str] | None = None) -> Process:
        """One scheduler more."""

        def start(number: int) -> Process:
            return Process(self.web.directory, f"scheduler-{number}", arguments, {**self.environ, **(environ or {})})

        self.schedulers.append(start(len(self._starts)))
        self._starts[self.schedulers[-1].pid] = start
        return self.schedulers[-1]

    def supervise(self) -> None:
        """Starts a scheduler again that ended by itself, as systemd or `manage.py up` does; not one that was killed."""
        for place, one in enumerate(self.schedulers):
            if one.child.poll() in (None, -signal.SIGKILL):
                continue
            self.gave_up += 1
            self.schedulers[place] = self._starts[one.pid](len(self._starts))
            self._starts[self.schedulers[place].pid] = self._starts[one.pid]

    def until(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Waits for it, while schedulers that give up are started again."""
        until(lambda: self.supervise() or condition(), seconds, what)

    def end(self) -> None:
        for scheduler in self.schedulers:
            scheduler.end()

    @property
    def leader(self) -> Process | None:
        """The scheduler that says in the state store that it leads."""
        from recovery.reads.scanners import scheduler_status  # noqa: PLC0415 -- its models need what `installed` has set up

        sign = scheduler_status.fetch(self.state.client)
        return next((one for one in self.schedulers if sign and sign.leads and sign.pid == one.pid), None)

    def call(self, method: str, path: str, body: Any = None, *, seconds: float = 30.0) -> tuple[int, Any]:
        """One request to the API: its status, and what its JSON says."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.web.port}/api/v1{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def order(self, act: str, chosen: str, queue: Queue) -> int:
        """Orders a bulk run; its number."""
        body = {"act": act, "queue": f"main/{queue.base}", "reason": "the host is back", "all": chosen}
        status, run = self.call("POST", "/bulk", body)
        if status != 202:
            raise RuntimeError(f"the run was not ordered: {status} {run}")
        return int(run["id"])

    def notices(self) -> list[str]:
        """The sentences above every page, as somebody reads them who is logged in."""
        answer = self.web.get("/banner", "viewer")
        if answer.status != 200:
            return [f"/banner answers {answer.status}"]
        _, *notices = answer.body.decode().split('<div class="notice"')
        return [" ".join(unescape(_TAG.sub(" ", f"<{notice}")).split()) for notice in notices]

    def ask(self, statement: str, *values: object) -> list[Any]:
        """Rows of its database; `?` stands for each value."""
        if not self.database:
            return self.web.ask(statement, *values)
        with psycopg.connect(self.database, connect_timeout=2) as connection:
            return connection.execute(statement.replace("?", "%s"), values).fetchall()

    def change(self, statement: str, *values: object) -> None:
        if not self.database:
            self.web.change(statement, *values)
            return
        with psycopg.connect(self.database, connect_timeout=2) as connection:
            connection.execute(statement.replace("?", "%s"), values)

    def broken_links(self) -> str:
        """What `audit verify` finds wrong with the chain of the audit; "": it is whole."""
        checked = subprocess.run(
            [sys.executable, "manage.py", "audit", "verify"],
            cwd=ROOT,
            env=environ_of(self.web.directory, self.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if checked.returncode == 0 else checked.stderr.strip() or f"exit status {checked.returncode}"


@contextmanager
def installed(
    url: str,
    *,
    queues: int = 1,
    settings: str = "",
    database: str = "",
    disk: Path | None = None,
    schedulers: int = 1,
) -> Iterator[Product]:
    """Both kinds of processes at their defaults, with a state store and a database of their own.

    `queues`: wait until so many are found; `settings`: TOML; `disk`: for the file of SQLite; `schedulers`: 0 leaves
    their start to the caller.
    """
    django.setup()
    with Store("valkey") as state, ExitStack() as stack:
        environ = {"UNSTALL_REDIS_URL": url, "UNSTALL_STATE_URL": state.url}
        environ |= {"DATABASE_URL": database} if database else {}
        web = WebProcess(environ)
        (web.directory / "unstall.toml").write_text(settings)
        if disk:
            shutil.move(web.directory / DATABASE, disk / DATABASE)
            (web.directory / DATABASE).symlink_to(disk / DATABASE)  # SQLite keeps its other files beside the target
        if database:
            web.cookies = web_process.seed(environ_of(web.directory, environ))
        stack.enter_context(web)
        product = Product(web, state, environ, database)
        product.change(_MAKE, hashlib.sha256(_TOKEN.encode()).hexdigest())
        stack.callback(product.end)
        for _ in range(schedulers):
            product.schedule()
        if schedulers:
            wait_until_watched(product, queues)
        yield product


def wait_until_watched(product: Product, queues: int) -> None:
    """All queues are found, the pages show them, and the orphan-watch has looked."""
    product.until(lambda: stage.shown(product.state) == queues, 180, "all queues are found")
    product.until(lambda: product.leader, 60, "a scheduler leads")
    product.until(lambda: b'"orphan-watch"' in product.web.get("/healthz").body, 120, "the orphan-watch has looked")
