"""schemathesis asks a real web process what the OpenAPI document allows and forbids, with tokens of several scopes.

No answer is a 5xx, each has the documented shape, and what the document allows is accepted unless
tests/openapi/schemathesis.toml says otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.accounts.token_scopes import TokenScope
from tests.support.processes.openapi_site import FOLDER, need, run, token_of
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.support.waiting import until

pytestmark = [pytest.mark.openapi, pytest.mark.timeout(900)]

BASE = "bull:mail"  # as in schemathesis.toml
EXAMPLES = 10  # of each operation, beside those that cover its schema
_OBSERVE = '[policy]\norphan_watch = { mode = "dry-run" }\nstale_check = { mode = "dry-run" }\n'


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Watches one queue with jobs that wait, and one that is orphaned."""
    with Store() as queues, Store() as state:
        bullmq(queues.client, BASE)
        add(queues.client, BASE, "1", "2", "3", "4", processedOn=now_ms() - 60_000, ats=1)
        queues.client.lrem(f"{BASE}:wait", 1, "1")
        queues.client.lpush(f"{BASE}:active", "1")
        with Site(queues, state, settings=_OBSERVE) as site:
            until(lambda: b"no lock" in site.web.get("/stuck", "viewer").body, 30, "the orphan is found")
            yield site


@pytest.mark.parametrize(
    "allowed",
    [(TokenScope.READ,), (TokenScope.IDEMPOTENCY,), tuple(TokenScope)],
    ids="-".join,
)
def test_no_answer_breaks_the_document(site: Site, allowed: tuple[TokenScope, ...], tmp_path: Path) -> None:
    need("schemathesis")
    token = token_of(site.web, *allowed)
    program = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(FOLDER / "schemathesis.toml"), "run"]
    options = ["--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--generation-deterministic"]
    ran = run(
        [*program, f"{site.url}/api/v1/openapi.json", "-H", f"Authorization: Bearer {token}", "--no-color", *options],
        tmp_path,
        seconds=800,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Tested: 33" in ran.stdout
