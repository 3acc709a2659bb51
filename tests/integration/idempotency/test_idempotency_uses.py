"""docs/idempotency.md as it is written there: a shell, a BullMQ worker, a Python function and an n8n workflow."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from dashboard.accounts.tokens import MARK
from recovery.domain.idempotency import ClaimStep, IdempotencyState
from tests.contract.desk import Desk as Queued
from tests.contract.desk import desk_of
from tests.support.idempotency import Desk
from tests.support.processes.driver import NODE_DIRECTORY, lacking, node
from tests.support.processes.fleet import Fleet
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "idempotency.md").read_text()
SECONDS = 60.0
TOKEN = MARK + "o" * 43
TTL = 1_500  # of the documented 60 s: a test waits until a dead worker's claim expires


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store("valkey") as store:
        yield store


@pytest.fixture(scope="module")
def web(store: Store) -> Iterator[WebProcess]:
    environ = {"UNSTALL_STATE_URL": store.url, "UNSTALL_REDIS_URL": store.url.replace("/0", "/1")}
    with WebProcess(environ) as process:
        process.change(
            "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
            " VALUES ('billing', ?, 'unstall_oooooo', 'idempotency', datetime('now'), datetime('now', '+1 day'))",
            hashlib.sha256(TOKEN.encode()).hexdigest(),
        )
        yield process


@pytest.fixture
def environ(web: WebProcess) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "UNSTALL_URL": f"http://127.0.0.1:{web.port}", "UNSTALL_TOKEN": TOKEN}


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store.client)


def written(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found
    return found[1]


def test_the_line_for_a_shell_claims_and_its_answer_is_the_one_that_stands_there(
    environ: dict[str, str], tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed (Debian: apt install curl)")
    (tmp_path / "idempotency.header").write_text(f"Authorization: Bearer {TOKEN}\n")
    ended = subprocess.run(
        ["sh", "-c", written("sh").replace("curl ", "curl -fsS ")],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    told, documented = json.loads(ended.stdout), json.loads(written("json"))
    assert list(told) == list(documented)
    same = ("key", "state", "owner", "by", "completed_at", "dropped", "result")
    assert {name: told[name] for name in same} == {name: documented[name] for name in same}
    assert documented["until"] - documented["since"] == told["until"] - told["since"]


# What the documented worker does in a test: it notes each charge in a file, and one order hangs in its first worker.
_CHARGE = """
import { appendFileSync, existsSync } from "node:fs";
async function charge(data, signal, token) {
  appendFileSync("charged", `${data.order} ${token}\\n`);
  if (data.untouched && !existsSync("touched")) {
    appendFileSync("touched", "x");
    throw Object.assign(new Error("the bank was never asked"), { untouched: true });
  }
  if (data.hangs && process.env.HANGS) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  return { order: data.order, token };
}
"""


class Workers:
    """Processes of the documented BullMQ worker on one queue, in one directory."""

    def __init__(self, queued: Queued, store: Store, environ: dict[str, str], directory: Path) -> None:
        self.queued = queued
        self.directory = directory
        (directory / "node_modules").symlink_to(NODE_DIRECTORY / "node_modules")
        lines = written("js").replace('"bullmq"', f'"{queued.queue.library.name}"').replace("6379", str(store.port))
        lines = lines.replace('Worker("charges"', f'Worker("{queued.queue.name}"').replace("60_000,", f"{TTL},")
        lines = lines.replace("maxRetriesPerRequest: null }", "maxRetriesPerRequest: null }, stalledInterval: 500")
        (directory / "worker.mjs").write_text(_CHARGE + lines)
        self._environ = environ
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            command = [str(node()), str(self.directory / "worker.mjs")]
            environ = self._environ | more
            worker = spawn(command, environ=environ, directory=self.directory, stdout=log, stderr=log)
        self._running.append(worker)
        return worker

    def charged(self) -> list[list[str]]:
        """Order and fencing token of each time."""
        path = self.directory / "charged"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def end(self) -> None:
        for worker in self._running:
            end(worker)


@pytest.fixture
def workers(valkey: Store, libraries: Fleet, environ: dict[str, str], tmp_path: Path) -> Iterator[Workers]:
    with desk_of("bullmq6", libraries, valkey) as queued:
        made = Workers(queued, valkey, environ, tmp_path)
        yield made
        made.end()


@pytest.mark.node
def test_a_job_of_bullmq_is_done_once_and_its_replay_gets_the_same_result(workers: Workers, desk: Desk) -> None:
    queue = workers.queued.queue
    workers.start()
    first = queue.add("charge", {"order": "17"})
    until(lambda: queue.counts()["completed"] == 1, SECONDS, "it is done")
    answer = desk.show(f"{queue.name}:{first}")
    assert answer.state is IdempotencyState.COMPLETED
    assert answer.claim
    result = {"order": "17", "token": answer.claim.token}
    assert json.loads(answer.result or b"") == result
    # What a restored queue, or a hand that adds a job once more, comes to.
    queue.job(first)
    workers.queued.store.client.zrem(queue.key("completed"), first)
    workers.queued.store.client.hdel(queue.key(first), "returnvalue", "finishedOn")
    workers.queued.store.client.lpush(queue.key("wait"), first)
    workers.queued.store.client.zadd(queue.key("marker"), {"0": 0})
    until(lambda: queue.counts()["completed"] == 1, SECONDS, "it is completed again")
    assert json.loads(workers.queued.hash(first)["returnvalue"]) == result
    assert len(workers.charged()) == 1


@pytest.mark.node
def test_a_job_whose_worker_was_killed_waits_for_its_claim_and_is_done_by_the_next(
    workers: Workers, desk: Desk
) -> None:
    queue = workers.queued.queue
    dying = workers.start(HANGS="1")
    job = queue.add("charge", {"order": "18", "hangs": True})
    until(workers.charged, SECONDS, "it has begun")
    dead = desk.show(f"{queue.name}:{job}").claim
    assert dead
    until(lambda: (desk.show(f"{queue.name}:{job}").claim or dead).until > dead.until, SECONDS, "the claim is renewed")
    dying.kill()
    dying.wait()
    workers.queued.store.client.delete(queue.key(job, "lock"))
    workers.start()
    until(lambda: queue.counts()["completed"] == 1, SECONDS, "the next one has done it")
    first, second = workers.charged()
    assert int(second[1]) > int(first[1]) == dead.token
    assert desk.complete(f"{queue.name}:{job}", dead.token, b"0").word == "late"


@pytest.mark.node
def test_work_that_was_not_touched_is_released_and_tried_again_at_once(workers: Workers, desk: Desk) -> None:
    queue = workers.queued.queue
    workers.start()
    job = queue.add("charge", {"order": "19", "untouched": True}, attempts=2)
    until(lambda: queue.counts()["completed"] == 1, SECONDS, "the second attempt has done it")
    assert len(workers.charged()) == 2
    assert desk.show(f"{queue.name}:{job}").state is IdempotencyState.COMPLETED


_PYTHON = """

import sys
def work(token, lost):
    open("charged", "a").write(f"{token}\\n")
    if "hang" in sys.argv:
        print(token, flush=True)
        lost.wait()
        print("lost", flush=True)
    return {"token": token}

try:
    print(json.dumps(once(sys.argv[1], 1_500, work)))
except Elsewhere as elsewhere:
    print(f"elsewhere: {elsewhere}")
except RuntimeError as refused:
    print(refused)
"""


@pytest.fixture
def python(environ: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    (tmp_path / "work.py").write_text(written("python") + _PYTHON)

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "work.py", *arguments]
        return spawn(command, environ=environ, directory=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    return run


def test_the_python_function_does_its_work_once_and_renews_and_hears_that_it_was_replaced(
    python: Callable[..., subprocess.Popen[bytes]], desk: Desk, tmp_path: Path
) -> None:
    first, _ = python("py").communicate(timeout=SECONDS)
    second, _ = python("py").communicate(timeout=SECONDS)
    assert json.loads(first) == json.loads(second)
    assert len((tmp_path / "charged").read_text().splitlines()) == 1
    slow = python("slow", "hang")
    try:
        assert slow.stdout
        token = int(slow.stdout.readline())
        begun = desk.show("slow").claim
        assert begun
        until(lambda: (desk.show("slow").claim or begun).until > begun.until, SECONDS, "it renews")
        assert python("slow").communicate(timeout=SECONDS)[0].startswith(b"elsewhere: The key is claimed")
        assert desk.step(ClaimStep.RELEASE, "slow", token).word == "released"
        assert desk.claim("slow", owner="heir").word == "won"
        assert slow.stdout.readline() == b"lost\n"
        assert b"done, and refused: This token is not the newest" in slow.stdout.read()
    finally:
        end(slow)


# An expression's $json, and what other nodes put out last.
_NODE = (
    "const [$json, put, id] = JSON.parse(process.argv[1]), $workflow = {name: 'charges'}, $execution = {id};"
    "const $ = (name) => ({first: () => ({json: put[name][0]}), all: () => put[name].map((json) => ({json}))});"
    "console.log(JSON.stringify(eval(process.argv[2])))"
)


class Flow:
    """An exported workflow of n8n, played one node at a time; its expressions are JavaScript, and run as that.

    `make test-n8n` runs it in n8n itself (tests/contract/n8n_real/test_snippets.py).
    """

    def __init__(self, web: WebProcess, *orders: str, execution: str = "1", returns: int = 1) -> None:
        """`returns`: how many items its work puts out."""
        self.flow = json.loads((DOCS / "idempotency-n8n.json").read_text())
        self.nodes = {one["name"]: one for one in self.flow["nodes"]}
        self.web = web
        self.orders = orders
        self.execution = execution
        self.returns = returns
        self.worked = 0
        self.items: list[dict[str, Any]] = [{}]
        self.put: dict[str, list[dict[str, Any]]] = {}  # what each node put out last
        self._open: list[dict[str, Any]] | None = None  # orders that the loop has not handed on yet
        self._back: list[dict[str, Any]] = []  # what came back to the loop

    def play(self) -> Iterator[str]:
        at: str | None = "Start"
        while at:
            yield at
            output = self._run(self.nodes[at])
            self.put[at] = self.items
            at = self._next(at, output)

    def _run(self, one: dict[str, Any]) -> int:
        """Which of its outputs is taken."""
        parameters = one["parameters"]
        match one["type"].removeprefix("n8n-nodes-base."):
            case "splitInBatches":
                return self._loop()
            case "set":
                self._set(parameters)
            case "httpRequest":
                assert len(self.items) == 1 or one["executeOnce"]
                self._request(parameters)
            case "if":
                return int(not all(map(self._holds, parameters["conditions"]["conditions"])))
            case "noOp":
                self.worked += 1
                self.items = [{"charge": f"ch_{self.worked}_{number}"} for number in range(self.returns)]
            case "merge":
                self.items = self.items + self.put["Is it mine?"]
            case "splitOut":
                self.items = [item for one in self.items for item in one[parameters["fieldToSplitOut"]]]
            case "wait":
                assert 1 <= self.value(parameters["amount"]) <= 60
            case "stopAndError":
                raise RuntimeError(self.value(parameters["errorMessage"]))
        return 0

    def _loop(self) -> int:
        if self._open is None:
            self._open = list(self.items)
        else:
            self._back += self.items
        self.items = [self._open.pop(0)] if (is_on := bool(self._open)) else self._back
        return int(is_on)

    def _set(self, parameters: dict[str, Any]) -> None:
        if parameters.get("mode") == "raw":
            self.items = [json.loads(self.value(parameters["jsonOutput"]))]
        else:
            [named] = parameters["assignments"]["assignments"]
            self.items = [{named["name"]: order} for order in self.orders]

    def _request(self, parameters: dict[str, Any]) -> None:
        assert (parameters["method"], parameters["genericAuthType"]) == ("POST", "httpHeaderAuth")
        response = parameters["options"]["response"]["response"]
        assert response == {"neverError": True, "fullResponse": True, "responseFormat": "json"}
        url = f"http://127.0.0.1:{self.web.port}{urlsplit(parameters['url']).path}"
        body = json.loads(self.value(parameters["jsonBody"]))
        answer = httpx.post(url, json=body, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=SECONDS)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        self.items = [{"statusCode": answer.status_code, "headers": headers, "body": answer.json()}]

    def _holds(self, condition: dict[str, Any]) -> bool:
        assert condition["operator"]["operation"] == "true"
        return bool(self.value(condition["leftValue"]) is True)

    def _next(self, at: str, output: int) -> str | None:
        outputs = self.flow["connections"].get(at, {"main": []})["main"]
        return outputs[output][0]["node"] if outputs else None

    def value(self, told: str) -> Any:
        """n8n takes what stands in ={{ }} as an expression."""
        assert told.startswith("={{")
        code = told.removeprefix("={{").removesuffix("}}").strip()
        known = json.dumps([self.items[0], self.put, self.execution])
        command = [str(node()), "-e", _NODE, known, code]
        return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=SECONDS).stdout)


@pytest.fixture
def flow(web: WebProcess) -> Callable[..., Flow]:
    if node() is None:
        pytest.skip(lacking())
    return lambda *orders, **more: Flow(web, *orders, **more)


@pytest.mark.node
def test_the_workflow_of_n8n_works_once_and_a_second_execution_gets_its_result(flow: Callable[..., Flow]) -> None:
    first, second = flow("17"), flow("17", execution="2")
    assert list(first.play())[-7:-1] == ["The work", "Collect", "Complete", "Is it kept?", "Result", "Each order"]
    assert list(second.play())[-4:] == ["Was it done?", "Kept result", "Each order", "Items"]
    assert (first.worked, second.worked) == (1, 0)
    assert first.items == second.items == [{"charge": "ch_1_0"}]


@pytest.mark.node
@pytest.mark.parametrize("returns", [0, 3])
def test_the_workflow_of_n8n_keeps_all_items_of_each_order_and_of_none(
    flow: Callable[..., Flow], desk: Desk, returns: int
) -> None:
    orders = [f"{returns}-a", f"{returns}-b"]
    first, second = flow(*orders, returns=returns), flow(*orders, execution="2")
    assert (list(first.play())[-1], list(second.play())[-1]) == ("Items", "Items")
    assert (first.worked, second.worked) == (2, 0)
    assert first.items == second.items == [{"charge": f"ch_{nth}_{item}"} for nth in (1, 2) for item in range(returns)]
    assert all(desk.show(f"charge:{order}").state is IdempotencyState.COMPLETED for order in orders)


@pytest.mark.node
def test_the_workflow_of_n8n_waits_while_another_execution_has_it(flow: Callable[..., Flow], desk: Desk) -> None:
    waiting = flow("18", execution="3")
    token = desk.token("charge:18", owner="another")
    steps = waiting.play()
    until(lambda: next(steps) == "Wait", SECONDS, "it is not its turn")
    assert waiting.worked == 0
    desk.complete("charge:18", token, b'{"charge":"theirs"}')
    assert list(steps)[-1] == "Items"
    assert (waiting.worked, waiting.items) == (0, [{"charge": "theirs"}])


@pytest.mark.node
def test_the_workflow_of_n8n_says_when_it_lost_its_claim_meanwhile(flow: Callable[..., Flow], desk: Desk) -> None:
    slow = flow("19", execution="4")
    steps = slow.play()
    until(lambda: next(steps) == "Complete", SECONDS, "its work is done")
    claim = desk.show("charge:19").claim
    assert claim
    assert claim.owner == "charges 4"
    desk.step(ClaimStep.RELEASE, "charge:19", claim.token)
    desk.token("charge:19", owner="heir")
    with pytest.raises(RuntimeError, match="Unstall says 409: This token is not the newest"):
        list(steps)
