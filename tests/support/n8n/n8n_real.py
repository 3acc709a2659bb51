"""A real n8n of a generation that deploy/setup/n8n.sh installed: main, webhook processor and workers in queue mode on
loopback, with a real PostgreSQL and a real store. It calls nobody: what it would tell or ask the world is switched off.

    for folder in installed(): …                # one for each generation
    with RealN8n(folder, store, postgres) as n8n:
        n8n.start_main()
        key = n8n.own()                         # the owner, and a key of the public API
        n8n.add(workflow("long", 60))
        n8n.start_worker("one")
        n8n.call("long"); n8n.kill("one")
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx
import psycopg

from tests.support.patience import patience
from tests.support.processes.driver import node
from tests.support.processes.processes import end, free_port, spawn
from tests.support.stores.postgres import Postgres
from tests.support.stores.stores import Store
from tests.support.waiting import until

FOLDERS = "N8N"  # the variable that says in which folders it was installed, with a colon between them
LOCK_MS = 20_000  # a slow machine bears it, and no test waits for a minute
SHUTDOWN = 8  # seconds that a process which is told to end gives what it runs
_LISTS = ("active", "wait", "paused")
_SECONDS = 90.0  # to come up: it loads four hundred nodes
_KEY = "unstall tests"
_OWNER = {"email": "owner@example.com", "firstName": "O", "lastName": "W", "password": "Correct-horse-9"}
_QUIET = {
    "N8N_DIAGNOSTICS_ENABLED": "false",
    "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
    "N8N_TEMPLATES_ENABLED": "false",
    "N8N_PERSONALIZATION_ENABLED": "false",
    "N8N_HIRING_BANNER_ENABLED": "false",
    "N8N_COMMUNITY_PACKAGES_ENABLED": "false",
    "N8N_LICENSE_AUTO_RENEW_ENABLED": "false",
    "N8N_RUNNERS_ENABLED": "false",
    # No workflow of the tests has code: from 2.0 on each process would start another one for it.
    "N8N_RUNNERS_MODE": "external",
    "N8N_RUNNERS_AUTH_TOKEN": "of the tests",
    "N8N_ENFORCE_SETTINGS_FILE_PERMISSIONS": "false",
    "EXTERNAL_FRONTEND_HOOKS_URLS": "",
    "N8N_LOG_LEVEL": "info",
}


def installed() -> dict[str, Path]:
    """The folder of each generation ("1.123", "2.41") that is there."""
    folders = [Path(one) for one in os.environ.get(FOLDERS, "").split(":") if one]
    return {".".join(_version(folder).split(".")[:2]): folder for folder in folders}


def _version(folder: Path) -> str:
    return str(json.loads((folder / "node_modules/n8n/package.json").read_text())["version"])


class RealN8n:
    """Use as a context. `program`: the folder that it was installed in; `lock`: how long a worker's lock lasts."""

    def __init__(self, program: Path, store: Store, postgres: Postgres, lock: int = LOCK_MS) -> None:
        self.program = program
        self.lock = lock
        self.version = _version(program)
        self.release = ".".join(self.version.split(".")[:2])
        self.is_two = self.version.startswith("2.")
        self.store = store
        self.postgres = postgres
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="unstall-n8n-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._client = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        for process in self._processes.values():
            end(process)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_main(self) -> None:
        """With the folder that it had before, as on a volume."""
        self._start("main", "start", {"N8N_PORT": str(self.port)}, folder=self._folder / "main")
        # Its /healthz/readiness says yes before it has its pages, and until then each of them says that it starts.
        until(lambda: self._is_ready("main", f"{self.url}/rest/settings"), _SECONDS, "n8n's main is ready")

    def start_webhooks(self) -> int:
        """A webhook processor; its port."""
        port = free_port()
        self._start("webhooks", "webhook", {"N8N_PORT": str(port)})
        ready = f"http://127.0.0.1:{port}/healthz/readiness"
        until(lambda: self._is_ready("webhooks", ready), _SECONDS, "n8n's webhook processor is up")
        # In 1.123 it says so before it looks webhooks up, and until then it knows none.
        until(lambda: "not registered" in self.call("none", port).text, _SECONDS, "it looks webhooks up")
        return port

    def start_worker(self, name: str = "worker", *, concurrency: int = 5) -> None:
        """With a folder of its own that is empty, as a container."""
        port = free_port()
        own = {"QUEUE_HEALTH_CHECK_ACTIVE": "true", "QUEUE_HEALTH_CHECK_PORT": str(port)}
        self._start(name, "worker", own, f"--concurrency={concurrency}")
        until(
            lambda: self._is_ready(name, f"http://127.0.0.1:{port}/healthz/readiness"),
            _SECONDS,
            f"n8n's {name} is ready",
        )

    def kill(self, name: str = "worker") -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def terminate(self, name: str) -> None:
        """SIGTERM, as whoever deploys sends it."""
        self._processes[name].send_signal(signal.SIGTERM)

    def await_end(self, name: str, seconds: float = SHUTDOWN + 20) -> None:
        until(lambda: not self.is_running(name), seconds, f"{name} has ended by itself")
        del self._processes[name]

    def freeze(self, name: str) -> None:
        """It runs no more, and its connections stay."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    def is_running(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def shell(self, *arguments: str) -> str:
        """A command of its command line; what it said."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        environ = self._environ(folder) | {"N8N_RUNNERS_BROKER_PORT": str(free_port())}
        done = subprocess.run(
            [*self._program, *arguments],
            env=environ,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=patience(120),
            check=False,
        )
        return done.stdout + done.stderr

    def own(self) -> str:
        """Sets the owner up, as the first person at its page does; a key of its public API."""
        self._post("/rest/owner/setup", _OWNER)
        wish = {"label": _KEY, "expiresAt": None, "scopes": ["execution:read", "execution:list", "execution:retry"]}
        return str(self._post("/rest/api-keys", wish)["rawApiKey"])

    def add(self, workflow: Mapping[str, Any], *, active: bool = True) -> str:
        """A workflow, switched on; its id."""
        made = self._post("/rest/workflows", workflow)
        if active:
            self.activate(made)
        return str(made["id"])

    def activate(self, made: Mapping[str, Any]) -> None:
        """`made`: the workflow as n8n tells it."""
        path = f"/rest/workflows/{made['id']}"
        if self.is_two:
            self._post(f"{path}/activate", {"versionId": made["versionId"]})
            return
        answer = self._client.patch(path, json={**made, "active": True})
        assert answer.status_code == 200, f"{answer.status_code} {answer.text[:500]}"

    def credential(self, name: str, header: str, value: str) -> dict[str, str]:
        """A Header Auth, as a node of a workflow names it."""
        data = {"name": header, "value": value}
        made = self._post("/rest/credentials", {"name": name, "type": "httpHeaderAuth", "data": data})
        return {"id": made["id"], "name": name}

    def stop(self, execution: str) -> None:
        """As a person cancels it in the editor."""
        self._post(f"/rest/executions/{execution}/stop", {})

    def delete(self, execution: str) -> None:
        """As a person deletes it in the editor."""
        self._post("/rest/executions/delete", {"ids": [execution]})

    def call(self, webhook: str, port: int = 0) -> httpx.Response:
        """`port`: of a webhook processor."""
        return self._client.get(f"http://127.0.0.1:{port or self.port}/webhook/{webhook}")

    def public(self, key: str, method: str, path: str, **more: Any) -> httpx.Response:
        return self._client.request(method, f"/api/v1{path}", headers={"X-N8N-API-KEY": key}, **more)

    def page(self, path: str) -> httpx.Response:
        return self._client.get(path)

    def rest(self, path: str) -> Any:
        """What its own editor asks, as the owner."""
        answer = self._client.get(f"/rest{path}")
        assert answer.status_code == 200, answer.text[:500]
        return answer.json()["data"]

    def runs(self, execution: str) -> dict[str, Any]:
        """What each node of an execution did, run by run."""
        flat = json.loads(self.rest(f"/executions/{execution}")["data"])
        result = flat[int(flat[0]["resultData"])]
        return dict(_unflattened(flat, result["runData"]))

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Of its database."""
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            return connection.execute(statement, parameters).fetchall()

    def status(self, execution: str | int) -> str:
        found = self.rows("SELECT status FROM execution_entity WHERE id = %s", int(execution))
        return str(found[0][0]) if found else ""

    def set_ended(self, execution: str, status: str) -> None:
        """Its row stands as after this end."""
        self.rows(
            'UPDATE execution_entity SET status = %s, finished = %s, "stoppedAt" = now() WHERE id = %s RETURNING id',
            status,
            status == "success",
            int(execution),
        )

    def newest(self) -> int:
        return int(self.rows("SELECT COALESCE(max(id), 0) FROM execution_entity")[0][0])

    def insert(self, status: str) -> str:
        """A row as n8n leaves one, with what it has kept of it, copied from the newest."""
        made = self.rows(
            'INSERT INTO execution_entity (finished, mode, status, "startedAt", "stoppedAt", "workflowId")'
            " SELECT %s = 'success', 'webhook', %s, now(), now(), id FROM workflow_entity LIMIT 1 RETURNING id",
            status,
            status,
        )[0][0]
        self.rows(
            'INSERT INTO execution_data ("executionId", "workflowData", data)'
            ' SELECT %s, row_to_json(w), %s FROM workflow_entity w LIMIT 1 RETURNING "executionId"',
            made,
            '[{"resultData":"1","executionData":"2"},{"runData":"3"},{"nodeExecutionStack":"4"},{},[]]',
        )
        return str(made)

    def job_of(self, execution: str) -> str:
        """The job of an execution in any list; "" when there is none."""
        ids = [id for name in _LISTS for id in self.store.client.lrange(f"bull:jobs:{name}", 0, -1)]
        data = {id.decode(): self.store.client.hget(f"bull:jobs:{id.decode()}", "data") or b"{}" for id in ids}
        return next((id for id, one in data.items() if json.loads(one).get("executionId") == execution), "")

    def has_jobs(self) -> bool:
        return any(self.store.client.llen(f"bull:jobs:{name}") for name in _LISTS)

    def pause(self) -> None:
        """The queue, while it is empty, as bull does it."""
        self.store.client.set("bull:jobs:meta-paused", 1)

    def held_job_of(self, execution: str) -> str:
        job = self.job_of(execution)
        return job if self.store.client.exists(f"bull:jobs:{job}:lock") else ""

    def settle(self) -> None:
        """Both stores and main are up; no worker, no job, and no execution that counts as going."""
        for name in [name for name in self._processes if name != "main"]:
            self.kill(name)
        if not self.store.is_running:
            self.store.start()
        if not self.postgres.is_running:
            self.postgres.start()
        if not self.is_running("main"):
            self.start_main()
        for key in self.store.client.keys("bull:jobs:*"):
            if key != b"bull:jobs:id":
                self.store.client.delete(key)
        self.rows("UPDATE execution_entity SET status = 'crashed' WHERE status IN ('new', 'running') RETURNING id")

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = self._client.post(path, json=body)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json().get("data")

    def _start(
        self, name: str, command: str, own: Mapping[str, str], *arguments: str, folder: Path | None = None
    ) -> None:
        place = folder or Path(tempfile.mkdtemp(dir=self._folder))
        place.mkdir(exist_ok=True)
        broker = {"N8N_RUNNERS_BROKER_PORT": str(free_port())}  # from 2.0 on each process listens there
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = spawn(
                [*self._program, command, *arguments],
                stdout=log,
                stderr=log,
                environ=self._environ(place) | broker | own,
                directory=place,
            )

    def _is_ready(self, name: str, url: str) -> bool:
        assert self._processes[name].poll() is None, self.log(name)[-3000:]
        try:
            answer = httpx.get(url, timeout=5.0, trust_env=False)
            return answer.status_code == 200 and "json" in answer.headers.get("content-type", "")
        except httpx.HTTPError:
            return False

    @property
    def _program(self) -> list[str]:
        program = node()
        assert program is not None
        return [str(program), str(self.program / "node_modules/n8n/bin/n8n")]

    def _environ(self, folder: Path) -> dict[str, str]:
        address = httpx.URL(self.postgres.url)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "N8N_USER_FOLDER": str(folder),
            "N8N_ENCRYPTION_KEY": _KEY,
            "N8N_LISTEN_ADDRESS": "127.0.0.1",
            "N8N_WORKER_SERVER_ADDRESS": "127.0.0.1",
            "N8N_SECURE_COOKIE": "false",
            "DB_TYPE": "postgresdb",
            "DB_POSTGRESDB_HOST": address.host,
            "DB_POSTGRESDB_PORT": str(address.port),
            "DB_POSTGRESDB_USER": address.username,
            "DB_POSTGRESDB_PASSWORD": "any",
            "DB_POSTGRESDB_DATABASE": address.path.strip("/"),
            "EXECUTIONS_MODE": "queue",
            "QUEUE_BULL_REDIS_HOST": "127.0.0.1",
            "QUEUE_BULL_REDIS_PORT": str(self.store.port),
            "QUEUE_WORKER_LOCK_DURATION": str(self.lock),
            "QUEUE_WORKER_LOCK_RENEW_TIME": str(self.lock // 4),
            "QUEUE_WORKER_STALLED_INTERVAL": str(self.lock // 2),
            "N8N_GRACEFUL_SHUTDOWN_TIMEOUT": str(SHUTDOWN),
            **_QUIET,
        }


def _unflattened(flat: list[Any], value: Any) -> Any:
    """n8n keeps a list, in which a value that is a text is the number of another one."""
    found = flat[int(value)] if isinstance(value, str) else value
    if isinstance(found, dict):
        return {name: _unflattened(flat, one) for name, one in found.items()}
    return [_unflattened(flat, one) for one in found] if isinstance(found, list) else found
