"""Several people edit one policy at once, on SQLite and PostgreSQL: no edit is lost, and the audit tells each step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes.processes import spawn, succeed
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.furnished import KINDS

EACH = 12
_SECONDS = 120
# Each edit is made of what was seen before it, and tried again when that was no longer so.
_EDITS = f"""
import sys, django
django.setup()
from recovery.actions import policy_edits
from recovery.domain.actions.types import Actor
from recovery.errors import BadOrder
from recovery.reads.policies import queries as reads
name, actor = sys.argv[1], Actor("person", sys.argv[1], "admin", may_act=True, may_bulk=True)
made = 0
while made < {EACH}:
    seen = reads.edited_values("", "bull:mail")
    names = seen.get("never", {{}}).get("names", [])
    wanted = {{"never": {{"names": [*names, f"{{name}}-{{made}}"]}}}}
    try:
        policy_edits.edit(actor, "", "bull:mail", wanted, "more", seen=seen)
        made += 1
    except BadOrder as error:
        assert "meanwhile" in str(error), error
"""
_TOLD = """
import json, django
django.setup()
from recovery.reads.audit import queries as audit
from recovery.reads.policies import queries as policies
lines = audit.entries(audit.AuditFilter(act="policy"), size=200).lines
bodies = [audit.load_entry(line.number).body for line in reversed(lines)]
print(json.dumps([policies.edited_values("", "bull:mail"), bodies, audit.verify().is_sound]))
"""


@pytest.fixture(params=KINDS)
def environ(request: pytest.FixtureRequest, our_database: Callable[[str, Path], str], tmp_path: Path) -> dict[str, str]:
    """Of processes that share one database with our tables."""
    own = {"DJANGO_SETTINGS_MODULE": "dashboard.settings", "DATABASE_URL": our_database(request.param, tmp_path)}
    return environ_of(tmp_path, own)


def test_no_edit_is_lost_and_each_begins_where_the_one_before_ended(environ: dict[str, str]) -> None:
    writers = [
        spawn([sys.executable, "-c", _EDITS, name], directory=ROOT, environ=environ, stderr=subprocess.PIPE)
        for name in ("one", "other", "third")
    ]
    for writer in writers:
        _, trouble = writer.communicate(timeout=_SECONDS)
        assert writer.returncode == 0, trouble.decode()
    written, bodies, is_sound = json.loads(succeed("-c", _TOLD, environ=environ, seconds=_SECONDS))
    names = written["never"]["names"]
    assert sorted(names) == sorted(f"{name}-{number}" for name in ("one", "other", "third") for number in range(EACH))
    assert [body["after"]["never"]["names"] for body in bodies] == [names[: end + 1] for end in range(len(names))]
    assert [body["before"] for body in bodies] == [{}, *(body["after"] for body in bodies[:-1])]
    assert is_sound
