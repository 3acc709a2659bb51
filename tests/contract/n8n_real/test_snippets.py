"""docs/gate-n8n.json and docs/idempotency-n8n.json in a real n8n: imported, filled in as the documents say, and run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dashboard.accounts.tokens import MARK
from recovery.domain.idempotency import IdempotencyState
from recovery.gate import queries as gate_queries
from tests.support.idempotency import Desk
from tests.support.n8n.n8n_console import handed_over
from tests.support.n8n.n8n_flows import step, webhook
from tests.support.n8n.n8n_real import RealN8n
from tests.support.processes.site import Site
from tests.support.stuck.gating import Steady, steady
from tests.support.waiting import until

pytestmark = [pytest.mark.n8n, pytest.mark.timeout(900)]

DOCS = Path(__file__).parents[3] / "docs"
GATE, IDEMPOTENCY = "gate-n8n.json", "idempotency-n8n.json"
LOCK_MS = 60_000  # n8n's own: nothing of this is about lost workers, and a second run would be one too many
SERVER = "worker-1"
TOKEN = MARK + "n" * 43
SECONDS = 90.0
_COUNT = "Number($('Webhook').first().json.query.items)"
_Items = list[dict[str, Any]]


@pytest.mark.parametrize("snippet", [GATE, IDEMPOTENCY])
def test_it_is_imported_by_the_command_line(n8n: RealN8n, key: str, snippet: str) -> None:
    written = json.loads((DOCS / snippet).read_text())
    said = n8n.shell("import:workflow", f"--input={DOCS / snippet}")
    assert "Successfully imported 1 workflow" in said, said
    imported = n8n.rest(f"/workflows/{written['id']}")
    assert [one["name"] for one in imported["nodes"]] == [one["name"] for one in written["nodes"]]
    assert (imported["connections"], imported["active"]) == (written["connections"], False)


@pytest.fixture(scope="module")
def header(n8n: RealN8n, site: Site) -> dict[str, str]:
    """The credential that the documents tell to make, for a token of both scopes."""
    site.web.change(
        "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
        " VALUES ('flows', ?, 'unstall_nnnnnn', 'gate idempotency', datetime('now'), datetime('now', '+1 day'))",
        hashlib.sha256(TOKEN.encode()).hexdigest(),
    )
    return n8n.credential("Unstall", "Authorization", f"Bearer {TOKEN}")


def imported(snippet: str, site: Site, header: dict[str, str]) -> dict[str, Any]:
    """What the editor takes of the file, with the address and the credential filled in."""
    text = (DOCS / snippet).read_text().replace("https://unstall.example.internal", site.url)
    written = json.loads(text)
    for node in written["nodes"]:
        if "genericAuthType" in node["parameters"]:
            node["credentials"] = {"httpHeaderAuth": header}
    return {name: written[name] for name in ("name", "active", "nodes", "connections", "settings", "pinData")}


def replace(workflow: dict[str, Any], name: str, *steps: dict[str, Any]) -> None:
    """These nodes in the place of one; the last of them has its name."""
    names = [*(one["name"] for one in steps[:-1]), name]
    workflow["nodes"] = [one for one in workflow["nodes"] if one["name"] != name]
    workflow["nodes"] += [{**one, "name": name} for one, name in zip(steps, names, strict=True)]
    for outputs in workflow["connections"].values():
        for one in [one for output in outputs["main"] for one in output if one["node"] == name]:
            one["node"] = names[0]
    for before, after in pairwise(names):
        workflow["connections"][before] = {"main": [[{"node": after, "type": "main", "index": 0}]]}


def fields(**expressions: str) -> dict[str, Any]:
    told = ", ".join(f"{name}: {expression}" for name, expression in expressions.items())
    return {"mode": "raw", "jsonOutput": f"={{{{ JSON.stringify({{ {told} }}) }}}}", "options": {}}


def split(name: str, field: str) -> dict[str, Any]:
    return step(name, "splitOut", 1, {"fieldToSplitOut": field, "options": {}})


@pytest.fixture(scope="module")
def once(n8n: RealN8n, site: Site, header: dict[str, str]) -> None:
    """Called with `orders`, and with the number of items that the work returns for each."""
    flow = imported(IDEMPOTENCY, site, header)
    told = step("Told", "set", 3.4, fields(order="$json.query.orders.split(',')"))
    replace(flow, "Start", webhook("once"), told, split("Start", "order"))
    order = next(one for one in flow["nodes"] if one["name"] == "Order")
    order["parameters"]["assignments"]["assignments"][0]["value"] = "={{ $json.order }}"
    charges = f"Array.from({{ length: {_COUNT} }}, (_, number) => ({{ charge: number, of: $execution.id }}))"
    replace(flow, "The work", step("Work", "set", 3.4, fields(charges=charges)), split("The work", "charges"))
    n8n.add(flow)


@pytest.fixture
def worker(n8n: RealN8n, clean: None) -> None:
    n8n.start_worker()


def run(n8n: RealN8n, call: str) -> str:
    """The execution, when it has succeeded."""
    return succeeded(n8n, handed_over(n8n, call))


def succeeded(n8n: RealN8n, execution: str) -> str:
    until(lambda: n8n.status(execution) in ("success", "error"), SECONDS, "it ends")
    assert n8n.status(execution) == "success", n8n.rest(f"/executions/{execution}")
    return execution


def items(n8n: RealN8n, execution: str, node: str) -> list[_Items]:
    """What it put out in each of its runs, by its first output that had anything."""
    runs = n8n.runs(execution).get(node, ())
    put = [next((output for output in one["data"]["main"] if output), []) for one in runs]
    return [[item["json"] for item in output] for output in put]


def test_the_work_of_an_order_is_done_once_and_all_its_items_are_the_result_of_a_second_execution(
    n8n: RealN8n, once: None, worker: None
) -> None:
    first, second = run(n8n, "once?orders=17&items=3"), run(n8n, "once?orders=17&items=3")
    result = [{"charge": number, "of": first} for number in range(3)]
    assert items(n8n, first, "Items") == items(n8n, second, "Items") == [result]
    assert items(n8n, second, "Work") == []


def test_work_that_returns_nothing_is_completed_and_not_done_again(
    n8n: RealN8n, site: Site, once: None, worker: None
) -> None:
    first = run(n8n, "once?orders=18&items=0")
    assert Desk(site.state.client).show("charge:18").state is IdempotencyState.COMPLETED
    second = run(n8n, "once?orders=18&items=0")
    assert [len(items(n8n, one, "Work")) for one in (first, second)] == [1, 0]
    assert items(n8n, first, "Items") == items(n8n, second, "Items") == [[]]


def test_each_of_several_orders_is_claimed_for_itself(n8n: RealN8n, once: None, worker: None) -> None:
    first, second = run(n8n, "once?orders=19,20&items=2"), run(n8n, "once?orders=20,21&items=2")
    assert [len(items(n8n, one, "Work")) for one in (first, second)] == [2, 1]
    assert items(n8n, second, "Items") == [
        [{"charge": number, "of": execution} for execution in (first, second) for number in range(2)]
    ]


def test_an_order_that_another_has_is_waited_for_and_done_when_its_claim_has_lapsed(
    n8n: RealN8n, site: Site, once: None, worker: None
) -> None:
    desk = Desk(site.state.client)
    theirs = desk.token("charge:22", span=20_000, owner="another")
    execution = run(n8n, "once?orders=22&items=2")
    assert len(items(n8n, execution, "Wait")) >= 1
    assert len(items(n8n, execution, "Work")) == 1
    assert items(n8n, execution, "Items") == [[{"charge": number, "of": execution} for number in range(2)]]
    assert desk.complete("charge:22", theirs, b"0").word == "late"


@pytest.fixture
def server(site: Site, header: dict[str, str]) -> Iterator[Steady]:
    """One that is busy."""
    with steady(site.state.client, SERVER, 95.0, poll=1_000) as one:
        asked = {"Authorization": f"Bearer {TOKEN}"}
        until(lambda: site.web.get(f"/cpu-gate?server={SERVER}", headers=asked).status != 404, SECONDS, "it is known")
        yield one


@pytest.fixture(scope="module")
def gate(n8n: RealN8n, site: Site, header: dict[str, str]) -> None:
    """Called with `parts`, each of which is an item."""
    flow = imported(GATE, site, header)
    told = step("Told", "set", 3.4, fields(part="$json.query.parts.split(',')"))
    replace(flow, "Start", webhook("gate"), told, split("Start", "part"))
    n8n.add(flow)


def test_the_gate_is_asked_once_for_all_items_and_all_go_on_after_a_yes(
    n8n: RealN8n, site: Site, server: Steady, gate: None, worker: None
) -> None:
    execution = handed_over(n8n, "gate?parts=a,b,c")
    until(lambda: _refused(site), SECONDS, "it asks and is refused")
    server.cpu = 20.0
    succeeded(n8n, execution)
    assert items(n8n, execution, "Heavy work") == [[{"part": part} for part in "abc"]]
    answers = [[item["statusCode"] for item in one] for one in items(n8n, execution, "Ask the gate")]
    assert answers == [[503]] * (len(answers) - 1) + [[200]]
    assert len(items(n8n, execution, "Wait")) == len(answers) - 1 >= 1


def _refused(site: Site) -> bool:
    asked = gate_queries.decisions(site.state.client, SERVER, 0)
    return any(one.caller == "Heavy work behind the gate" and not one.ready for one in asked)
