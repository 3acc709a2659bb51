"""docs/gate.md as it is written there: the shell line, the BullMQ worker and the n8n workflow wait, and then go on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

from dashboard.accounts.tokens import MARK
from recovery.gate import queries as gate_queries
from tests.contract.desk import desk_of
from tests.support.processes.driver import NODE_DIRECTORY, lacking, node
from tests.support.processes.fleet import Fleet
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.support.stuck.gating import Steady, steady
from tests.support.waiting import until

DOCS = Path(__file__).parents[3] / "docs"
SERVER = "worker-1"
SECONDS = 60.0
TOKEN = MARK + "a" * 43
LIMITS = {"dashboard.live.state_cache.POLL_SECONDS": 0.2}
_NODE = (
    "const [json, code] = process.argv.slice(1); const $json = JSON.parse(json); const $workflow = {name: 'nightly'};"
)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store("valkey") as store:
        yield store


@pytest.fixture(scope="module")
def web(store: Store) -> Iterator[WebProcess]:
    environ = {"UNSTALL_STATE_URL": store.url, "UNSTALL_REDIS_URL": store.url.replace("/0", "/1")}
    with WebProcess(environ, LIMITS) as process:
        process.change(
            "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
            " VALUES ('heavy', ?, 'unstall_aaaaaa', 'gate', datetime('now'), datetime('now', '+1 day'))",
            hashlib.sha256(TOKEN.encode()).hexdigest(),
        )
        yield process


@pytest.fixture
def server(store: Store, web: WebProcess) -> Iterator[Steady]:
    """One that is busy, and that the web process knows."""
    with steady(store.client, SERVER, 95.0, poll=1_000) as one:
        until(lambda: _asked(web).status_code != 404, SECONDS, "the web process knows it")
        yield one


def _asked(web: WebProcess) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.get(f"http://127.0.0.1:{web.port}/cpu-gate?server={SERVER}&caller=test", headers=headers)


@pytest.fixture
def environ(web: WebProcess) -> dict[str, str]:
    url = f"http://127.0.0.1:{web.port}"
    return {"PATH": os.environ["PATH"], "UNSTALL_URL": url, "UNSTALL_SERVER_ID": SERVER, "UNSTALL_TOKEN": TOKEN}


def written(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / "gate.md").read_text(), re.DOTALL)
    assert found
    return found[1]


def refused(server: Steady, caller: str) -> bool:
    return any(one.caller == caller and not one.ready for one in gate_queries.decisions(server.store, server.id, 0))


def test_the_shell_line_starts_the_import_only_after_a_yes(
    server: Steady, environ: dict[str, str], tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed (Debian: apt install curl)")
    (tmp_path / "gate.header").write_text(f"Authorization: Bearer {TOKEN}\n")
    work = tmp_path / "import.sh"
    work.write_text("#!/bin/sh\ncp gate.json started\n")
    work.chmod(0o700)
    shell = spawn(["sh", "-c", written("sh")], environ=environ, directory=tmp_path)
    try:
        until(lambda: refused(server, "import"), SECONDS, "it asks and is refused")
        assert not (tmp_path / "started").exists()
        server.cpu = 20.0
        until(lambda: shell.poll() is not None, SECONDS, "it goes on")
        assert shell.returncode == 0
        assert json.loads((tmp_path / "started").read_text())["ready"] is True
    finally:
        end(shell)


@pytest.mark.node
def test_a_job_of_bullmq_waits_for_the_gate_and_has_made_one_attempt(
    server: Steady, environ: dict[str, str], valkey: Store, libraries: Fleet, tmp_path: Path
) -> None:
    with desk_of("bullmq6", libraries, valkey) as desk:
        (tmp_path / "node_modules").symlink_to(NODE_DIRECTORY / "node_modules")
        own = "const runImport = async (data) => data.rows;\n"
        lines = written("js").replace('"bullmq"', f'"{desk.queue.library.name}"').replace("6379", str(valkey.port))
        script = tmp_path / "worker.mjs"
        script.write_text(lines.replace("const gate =", f"{own}const gate =").replace("imports", desk.queue.name))
        job = desk.queue.add("import", {"rows": 9}, attempts=1)
        with (tmp_path / "log").open("wb") as log:
            worker = spawn([str(node()), str(script)], environ=environ, directory=tmp_path, stdout=log, stderr=log)
        try:
            until(lambda: refused(server, desk.queue.name), SECONDS, "it asks and is refused")
            until(lambda: desk.queue.counts()["delayed"] == 1, SECONDS, "it has given the job back")
            assert worker.poll() is None, (tmp_path / "log").read_text()
            server.cpu = 20.0
            until(lambda: desk.queue.counts()["completed"] == 1, SECONDS, "it is done")
            assert desk.row(job).attempts == 1
        finally:
            end(worker)


class Flow:
    """An exported workflow of n8n, played one node at a time; its expressions are JavaScript, and run as that."""

    def __init__(self, web: WebProcess, server: str) -> None:
        self.flow = json.loads((DOCS / "gate-n8n.json").read_text())
        self.nodes = {one["name"]: one for one in self.flow["nodes"]}
        self.web = web
        self.server = server
        self.item: dict[str, Any] = {}

    def play(self) -> Iterator[str]:
        """The names of the nodes in their order; it ends where nothing follows."""
        at: str | None = "Start"
        while at:
            yield at
            at = self._next(at, self._run(self.nodes[at]))

    def _run(self, one: dict[str, Any]) -> int:
        """Which of its outputs is taken."""
        match one["type"].removeprefix("n8n-nodes-base."):
            case "httpRequest":
                self._request(one["parameters"])
            case "if":
                return int(not all(map(self._holds, one["parameters"]["conditions"]["conditions"])))
            case "wait":
                assert 1 <= self.value(one["parameters"]["amount"]) <= 60
            case "stopAndError":
                raise RuntimeError(self.value(one["parameters"]["errorMessage"]))
        return 0

    def _request(self, parameters: dict[str, Any]) -> None:
        assert parameters["genericAuthType"] == "httpHeaderAuth"
        assert parameters["options"]["response"]["response"]["neverError"]
        asked = {one["name"]: self.value(one["value"]) for one in parameters["queryParameters"]["parameters"]}
        query = urlencode(asked | {"server": self.server})
        path = urlsplit(parameters["url"]).path
        answer = self.web.get(f"{path}?{query}", headers={"Authorization": f"Bearer {TOKEN}"}, seconds=SECONDS)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        self.item = {"statusCode": answer.status, "headers": headers, "body": json.loads(answer.body)}

    def _holds(self, condition: dict[str, Any]) -> bool:
        assert condition["operator"]["operation"] in ("equals", "true")
        return bool(self.value(condition["leftValue"]) == condition["rightValue"])

    def _next(self, at: str, output: int) -> str | None:
        outputs = self.flow["connections"].get(at, {"main": []})["main"]
        return outputs[output][0]["node"] if outputs else None

    def value(self, told: Any) -> Any:
        """n8n takes what stands in ={{ }} as an expression."""
        if not isinstance(told, str) or not told.startswith("={{"):
            return told
        code = told.removeprefix("={{").removesuffix("}}").strip()
        command = [str(node()), "-e", f"{_NODE} console.log(JSON.stringify(eval(code)))", json.dumps(self.item), code]
        return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=SECONDS).stdout)


@pytest.mark.node
def test_the_workflow_of_n8n_asks_waits_asks_again_and_then_does_its_work(server: Steady, web: WebProcess) -> None:
    if node() is None:
        pytest.skip(lacking())
    flow = Flow(web, SERVER)
    steps = flow.play()
    until(lambda: next(steps) == "Wait", SECONDS, "it has been refused")
    assert next(steps) == "Ask the gate"
    until(lambda: refused(server, "nightly"), SECONDS, "the refusal is noted")
    server.cpu = 20.0
    until(lambda: next(steps) == "Heavy work", SECONDS, "it does its work")
    assert flow.item["body"]["ready"] is True
    assert list(steps) == []


@pytest.mark.node
def test_the_workflow_of_n8n_does_not_wait_for_a_server_that_nobody_knows(web: WebProcess) -> None:
    if node() is None:
        pytest.skip(lacking())
    with pytest.raises(RuntimeError, match="The gate says 404: No server named 'nobody'"):
        list(Flow(web, "nobody").play())
