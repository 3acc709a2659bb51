"""Clients generated from the OpenAPI document: each has every operation, compiles, and requeues a real orphan."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.accounts.token_scopes import TokenScope
from tests.support.processes.driver import node
from tests.support.processes.fleet import Fleet, Queue
from tests.support.processes.openapi_site import FOLDER, MODULES, need, node_program, succeed, token_of
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.waiting import until

pytestmark = [pytest.mark.openapi, pytest.mark.timeout(900)]

# The generator writes the same client.py for any API, and its `__exit__` has no types.
_MYPY = "[mypy]\nstrict = true\n[mypy-unstall_client.client]\nignore_errors = true\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Its scanners change nothing, so the client is the only one to requeue."""
    settings = '[thresholds]\nstalled_interval = 1\n[policy]\nstale_check = { mode = "dry-run" }\n'
    with Store() as queues, Store() as state, Site(queues, state, settings=settings) as site:
        yield site


@pytest.fixture(scope="module")
def token(site: Site) -> str:
    return token_of(site.web, TokenScope.READ, TokenScope.ACT)


@pytest.fixture
def document(site: Site, token: str, tmp_path: Path) -> Path:
    answer = site.web.get("/api/v1/openapi.json", headers={"Authorization": f"Bearer {token}"})
    file = tmp_path / "openapi.json"
    file.write_bytes(answer.body)
    return file


@pytest.fixture
def orphaned(site: Site, token: str, libraries: Fleet, request: pytest.FixtureRequest) -> Queue:
    """A queue whose only worker was killed, and whose job the orphan watch calls abandoned."""
    queue = libraries["bullmq5"].queue(site.queues, request.node.name)
    worker = queue.work("hang", apart=True, lockDuration=3000, stalledInterval=1000)
    queue.add("digest")
    until(lambda: queue.counts()["active"] == 1, what="the worker has it")
    worker.kill()
    path = f"/api/v1/orphans?queue=main/{queue.base}&verdict=abandoned"
    headers = {"Authorization": f"Bearer {token}"}
    until(lambda: json.loads(site.web.get(path, headers=headers).body).get("orphans"), 60, "it is abandoned")
    return queue


def operations(document: Path) -> set[str]:
    paths = json.loads(document.read_text())["paths"].values()
    return {operation["operationId"] for methods in paths for operation in methods.values()}


def test_a_python_client_has_every_operation_and_requeues_an_orphan(
    site: Site, token: str, document: Path, orphaned: Queue, tmp_path: Path
) -> None:
    need("openapi_python_client")
    program = [sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning", "--meta", "none"]
    succeed([*program, "--path", str(document), "--output-path", "unstall_client"], tmp_path)
    modules = {file.stem for file in tmp_path.glob("unstall_client/api/*/*.py")} - {"__init__"}
    assert modules == operations(document)

    shutil.copy(FOLDER / "requeue.py", tmp_path)
    (tmp_path / "mypy.ini").write_text(_MYPY)
    succeed([sys.executable, "-m", "mypy", "requeue.py", "unstall_client"], tmp_path)
    outcomes = _requeue([sys.executable, "requeue.py"], site, token, orphaned, tmp_path)
    assert outcomes == ["done", "refused"]
    _is_done(orphaned)


def test_a_typescript_client_has_every_operation_and_requeues_an_orphan(
    site: Site, token: str, document: Path, orphaned: Queue, tmp_path: Path
) -> None:
    generate = node_program("openapi-typescript/bin/cli.js")
    succeed([*generate, str(document), "--output", "unstall.d.ts", "--default-non-nullable", "false"], tmp_path)
    interface = re.search(
        r"^export interface operations {$(.*?)^}$", (tmp_path / "unstall.d.ts").read_text(), re.MULTILINE | re.DOTALL
    )
    assert interface is not None
    assert set(re.findall(r"^    (\w+): {$", interface[1], re.MULTILINE)) == operations(document)

    for name in ("package.json", "requeue.ts"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    compiler = node_program("typescript/bin/tsc")
    options = ("--noEmit", "--strict", "--module", "nodenext", "--allowImportingTsExtensions")
    succeed([*compiler, *options, "requeue.ts"], tmp_path)
    outcomes = _requeue([str(node()), "requeue.ts"], site, token, orphaned, tmp_path)
    assert outcomes == ["done", "refused"]
    _is_done(orphaned)


def _requeue(program: list[str], site: Site, token: str, queue: Queue, directory: Path) -> list[str]:
    environ = {"TOKEN": token, "NODE_NO_WARNINGS": "1"}
    return succeed([*program, site.url, f"main/{queue.base}"], directory, environ).split()


def _is_done(queue: Queue) -> None:
    queue.work("ok")
    until(lambda: queue.counts()["completed"] == 1, what="a live worker completes it")
