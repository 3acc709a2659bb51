"""A real web process for tests: `manage.py web` on loopback with a database of its own, and its tabs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from recovery.processes import malloc
from tests.support.patience import patience
from tests.support.processes.processes import end, free_port, spawn, succeed
from tests.support.stores.keys import SECRET_KEY
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
COOKIE = "unstall-session"
PEOPLE = ("viewer", "operator", "admin", "second", "third", "fourth", "fifth", "sixth")
_START_SECONDS = 30.0  # two cores, and other tests on them

# Run in a process of its own: the tests' Django has another database.
_SEED = """
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
import django; django.setup()
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core.management import call_command
from dashboard.accounts.reauthentication import SESSION_NAME
from dashboard.accounts.sessions import SessionStore
call_command("migrate", verbosity=0)
PBKDF2PasswordHasher.iterations = 1  # of people whom nobody attacks; at its own number each takes most of a second
cookies = {}
for name in sys.argv[1:]:
    role = name if name in ("viewer", "operator", "admin") else "viewer"
    user = get_user_model().objects.create_user(name, password="pass-" + name, role=role)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session[SESSION_NAME] = 1 << 40  # a test run lasts longer than one password counts
    session.create()
    cookies[name] = session.session_key
print(json.dumps(cookies))
"""


# `manage.py web` with constants changed before it starts; without any it is the command itself.
_WEB = """
import importlib, json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
import django; django.setup()
from django.core.management import execute_from_command_line
for name, value in json.loads(sys.argv[1]).items():
    module, _, constant = name.rpartition(".")
    getattr(importlib.import_module(module), constant)
    setattr(importlib.import_module(module), constant, value)
execute_from_command_line(["manage.py", "web"])
"""


@cache
def _seeded() -> tuple[Path, dict[str, str]]:
    """A migrated data directory with people and their sessions, made once a test run and copied for each process."""
    directory = Path(tempfile.mkdtemp(prefix="unstall-seed-"))
    return directory, seed(environ_of(directory))


def seed(environ: Mapping[str, str]) -> dict[str, str]:
    """Migrates the database of this environment and adds people; the session of each."""
    cookies: dict[str, str] = json.loads(succeed("-c", _SEED, *PEOPLE, environ=environ).splitlines()[-1])
    return cookies


def environ_of(directory: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process of ours, with nothing in it of the developer's own."""
    foreign = ("UNSTALL_", "DATABASE_", "DJANGO_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    config = directory / "unstall.toml"
    config.touch()
    # Static files from their sources, whatever `collectstatic` once made here.
    own = {"UNSTALL_DATA_DIR": str(directory), "UNSTALL_STATIC_DIR": str(directory / "static")}
    own["UNSTALL_SECRET_KEY"] = SECRET_KEY  # what a test reads of another process was signed with it
    return {**clean, **own, "UNSTALL_CONFIG": str(config), **(more or {})}


class WebProcess:
    """`manage.py web`. Use as a context; `stop` says how it ended."""

    def __init__(
        self,
        environ: Mapping[str, str],
        limits: Mapping[str, object] | None = None,
        *,
        socket_path: Path | None = None,
        unit: Path | None = None,
    ) -> None:
        """`limits`: constants by their full name that shall be smaller, so that a test can reach them.

        `unit`: what it runs by, under what that forbids (tests/support/processes/confined.py).
        """
        seed, self.cookies = _seeded()
        self.directory = Path(tempfile.mkdtemp(prefix="unstall-web-"))
        shutil.copytree(seed, self.directory, dirs_exist_ok=True)
        self.port = free_port()
        self._socket_path = socket_path
        bind = {"UNSTALL_BIND": f"127.0.0.1:{self.port}"}
        self._environ = environ_of(self.directory, {**malloc.ENVIRON, **bind, **environ})  # as `manage.py web` has it
        self._command = ["-c", _WEB, json.dumps(dict(limits))] if limits else ["manage.py", "web"]
        if unit:
            self._command = ["-m", "tests.support.processes.confined", str(unit)]
        self._log = self.directory / "web.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WebProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process:
            end(self._process)
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> WebProcess:
        with self._log.open("wb") as log:
            command = [sys.executable, *self._command]
            self._process = spawn(command, environ=self._environ, directory=ROOT, stdout=log, stderr=log)
        with ExitStack() as failed:
            failed.callback(end, self._process)  # one that does not answer is not left over for the tests after this
            until(self._is_up, _START_SECONDS, "the web process answers")
            failed.pop_all()
        return self

    def ask(self, statement: str, *values: object) -> list[Any]:
        """What stands in its database."""
        place = f"file:{self.directory / 'unstall.sqlite3'}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=10)) as connection:
            return connection.execute(statement, values).fetchall()

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def wait(self, seconds: float) -> int:
        return self._running().wait(patience(seconds))

    def get(
        self,
        path: str,
        person: str = "",
        *,
        method: str = "GET",
        seconds: float = 10.0,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request. `form` is what is posted."""
        sent = {**({"Cookie": f"{COOKIE}={self.cookies[person]}"} if person else {}), **(headers or {})}
        body = None if form is None else urlencode(form).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, body, sent, method="POST" if body is not None else method)
        try:
            with _NO_REDIRECT.open(request, timeout=seconds) as response:
                return Answer(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())

    def change(self, statement: str, *values: object) -> None:
        """What an admin does, straight in the database."""
        connection = sqlite3.connect(self.directory / "unstall.sqlite3", timeout=10)
        try:
            with connection:
                connection.execute(statement, values)
        finally:
            connection.close()

    @asynccontextmanager
    async def tab(self, person: str = "viewer", path: str = "/live/events") -> AsyncIterator[Tab]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {COOKIE}={self.cookies[person]}\r\n\r\n".encode()
        )
        tab = Tab(reader, writer)
        try:
            await tab.read_head()
            yield tab
        finally:
            writer.transport.abort()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _is_up(self) -> bool:
        if self._running().poll() is not None:
            raise AssertionError(self.log)
        if self._socket_path:
            return "listens on" in self.log
        try:
            return self.get("/healthz", seconds=5).status < 500
        except OSError:
            return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


_NO_REDIRECT = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Event:
    kind: str
    detail: Any
    id: str = ""


@dataclass(slots=True)
class Tab:
    """One open stream, read as a browser reads it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    retry: int | None = None
    _rest: str = ""

    async def read_head(self) -> None:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), patience(10))).decode()
        first, *lines = head.split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
        }

    async def next(self, kind: str = "", seconds: float = 10.0) -> Event:
        """The next event, of this kind if one is given."""
        async with asyncio.timeout(patience(seconds)):
            while True:
                event = self._event(await self._block())
                if event and kind in ("", event.kind):
                    return event

    async def ended(self, seconds: float = 10.0) -> bool:
        """True when the server has closed it."""
        async with asyncio.timeout(patience(seconds)):
            while await self.reader.read(1 << 16):
                pass
        return True

    async def _block(self) -> str:
        while "\n\n" not in self._rest:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            chunk = await self.reader.readexactly(size + 2)
            if not size:
                raise EOFError
            self._rest += chunk[:-2].decode()
        block, _, self._rest = self._rest.partition("\n\n")
        return block

    def _event(self, block: str) -> Event | None:
        event = Event("", None)
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not name:
                self.comments.append(value)
            elif name == "retry":
                self.retry = int(value)
            elif name == "data":
                event.detail = json.loads(value)
            elif name == "event":
                event.kind = value
            elif name == "id":
                event.id = value
        return event if event.kind else None
