"""A real n8n, installed by deploy/setup/n8n.sh: main and worker in queue mode on loopback, with a real PostgreSQL and
a real store. It calls nobody: what it would tell or ask the world is switched off.
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

from tests.driver import node
from tests.postgres import Postgres
from tests.processes import end, free_port, spawn
from tests.stores import Store
from tests.waiting import until

PROGRAM = "N8N"  # the variable that says in which folder it was installed
LOCK_MS = 6_000  # as short as a slow machine bears, so that no test waits for a minute
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
    "N8N_ENFORCE_SETTINGS_FILE_PERMISSIONS": "false",
    "EXTERNAL_FRONTEND_HOOKS_URLS": "",
    "N8N_LOG_LEVEL": "info",
}


class RealN8n:
    """Use as a context."""

    def __init__(self, store: Store, postgres: Postgres) -> None:
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
        self._start("main", "start", {"N8N_PORT": str(self.port)})
        # Its /healthz/readiness says yes before it has its pages, and until then each of them says that it starts.
        until(lambda: self._is_ready("main", f"{self.url}/rest/settings"), _SECONDS, "n8n's main is ready")

    def start_worker(self, name: str = "worker") -> None:
        port = free_port()
        own = {"QUEUE_HEALTH_CHECK_ACTIVE": "true", "QUEUE_HEALTH_CHECK_PORT": str(port)}
        self._start(name, "worker", own, "--concurrency=5")
        until(
            lambda: self._is_ready(name, f"http://127.0.0.1:{port}/healthz/readiness"),
            _SECONDS,
            "n8n's worker is ready",
        )

    def kill(self, name: str = "worker") -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def own(self) -> str:
        """Sets the owner up, as the first person at its page does; a key of its public API."""
        self._post("/rest/owner/setup", _OWNER)
        wish = {"label": _KEY, "expiresAt": None, "scopes": ["execution:read", "execution:list", "execution:retry"]}
        return str(self._post("/rest/api-keys", wish)["rawApiKey"])

    def add(self, workflow: Mapping[str, Any]) -> str:
        """A workflow, switched on; its id."""
        made = self._post("/rest/workflows", workflow)
        answer = self._client.patch(f"/rest/workflows/{made['id']}", json={**made, "active": True})
        assert answer.status_code == 200, f"{answer.status_code} {answer.text[:500]}"
        return str(made["id"])

    def call(self, webhook: str) -> httpx.Response:
        return self._client.get(f"/webhook/{webhook}")

    def public(self, key: str, method: str, path: str, **more: Any) -> httpx.Response:
        return self._client.request(method, f"/api/v1{path}", headers={"X-N8N-API-KEY": key}, **more)

    def page(self, path: str) -> httpx.Response:
        return self._client.get(path)

    def rest(self, path: str) -> Any:
        """What its own editor asks, as the owner."""
        answer = self._client.get(f"/rest{path}")
        assert answer.status_code == 200, answer.text[:500]
        return answer.json()["data"]

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Of its database."""
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            return connection.execute(statement, parameters).fetchall()

    def status(self, execution: str | int) -> str:
        found = self.rows("SELECT status FROM execution_entity WHERE id = %s", int(execution))
        return str(found[0][0]) if found else ""

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
        ids = [id for name in ("active", "wait") for id in self.store.client.lrange(f"bull:jobs:{name}", 0, -1)]
        data = {id.decode(): self.store.client.hget(f"bull:jobs:{id.decode()}", "data") or b"{}" for id in ids}
        return next((id for id, one in data.items() if json.loads(one).get("executionId") == execution), "")

    def held_job_of(self, execution: str) -> str:
        job = self.job_of(execution)
        return job if self.store.client.exists(f"bull:jobs:{job}:lock") else ""

    def settle(self) -> None:
        """No worker, no job, and no execution that counts as going."""
        for name in [name for name in self._processes if name != "main"]:
            self.kill(name)
        for key in self.store.client.keys("bull:jobs:*"):
            if key != b"bull:jobs:id":
                self.store.client.delete(key)
        self.rows("UPDATE execution_entity SET status = 'crashed' WHERE status IN ('new', 'running') RETURNING id")

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = self._client.post(path, json=body)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text[:500]}"
        return answer.json()["data"]

    def _start(self, name: str, command: str, own: Mapping[str, str], *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = spawn(
                [*self._program, command, *arguments],
                stdout=log,
                stderr=log,
                environ=self._environ | own,
                directory=self._folder,
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
        return [str(program), f"{os.environ[PROGRAM]}/node_modules/n8n/bin/n8n"]

    @property
    def _environ(self) -> dict[str, str]:
        address = httpx.URL(self.postgres.url)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "N8N_USER_FOLDER": str(self._folder),
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
            "QUEUE_WORKER_LOCK_DURATION": str(LOCK_MS),
            "QUEUE_WORKER_LOCK_RENEW_TIME": str(LOCK_MS // 3),
            "QUEUE_WORKER_STALLED_INTERVAL": str(LOCK_MS),
            **_QUIET,
        }


def workflow(id: str, seconds: int) -> dict[str, Any]:
    """Its webhook answers at once, then it waits in its worker: n8n puts aside only what waits longer than 65 s."""
    hook = {
        "id": f"{id}-1",
        "name": "Webhook",
        "type": "n8n-nodes-base.webhook",
        "typeVersion": 2,
        "position": [0, 0],
        "webhookId": id,
        "parameters": {"path": id, "responseMode": "onReceived", "options": {}},
    }
    wait = {
        "id": f"{id}-2",
        "name": "Wait",
        "type": "n8n-nodes-base.wait",
        "typeVersion": 1.1,
        "position": [200, 0],
        "webhookId": f"{id}-wait",
        "parameters": {"resume": "timeInterval", "amount": seconds, "unit": "seconds"},
    }
    return {
        "name": f"Waits {seconds} s",
        "active": False,
        "nodes": [hook, wait],
        "connections": {"Webhook": {"main": [[{"node": "Wait", "type": "main", "index": 0}]]}},
        "settings": {"executionOrder": "v1"},
        "pinData": {},
    }
