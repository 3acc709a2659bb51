"""docs/configuration.md and the code name the same settings with the same defaults, both ways."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from recovery.config import load
from recovery.config.schema import SECRETS, TABLES, VARIABLES, Key, Kind
from recovery.domain.backoff import Backoff
from recovery.domain.policies import DUTY, NAMES, NOTE, SIGNATURES
from recovery.domain.policy import Scanner

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text("utf-8")
HEADINGS = {
    "": "The TOML file",
    "deployments": "`[[deployments]]`",
    "state": "`[state]`",
    "intervals": "`[intervals]`",
    "thresholds": "`[thresholds]`",
    "queues": "`[[queues]]`",
    "databases": "`[[databases]]`",
    "tables": "`[[tables]]`",
    "policies": "`[[policies]]`",
    "hooks": "`[[hooks]]`",
    "hooks.choose": "`[[hooks.choose]]`",
    "alerts": "`[alerts]`",
    "alerts.webhooks": "`[[alerts.webhooks]]`",
    "alerts.email": "`[alerts.email]`",
    "gate": "`[gate]`",
    "servers": "`[[servers]]`",
    "metrics": "`[metrics]`",
    "once": "`[once]`",
    "nodes": "`[[nodes]]`",
    "prometheus": "`[prometheus]`",
    "logs": "`[[logs]]`",
    "n8n": "`[[n8n]]`",
}
_ROW = re.compile(r"^\| `(?P<name>[A-Za-z0-9_]+)` \| (?P<default>.+?) \| (?P<meaning>.+?) \|$", re.MULTILINE)
_NAME = re.compile(r"\"(UNSTALL_[A-Z0-9_]*[A-Z]|DATABASE_URL)\"")


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """The table below this heading, by name: default and meaning."""
    _, found, rest = DOCUMENT.partition(f"# {heading}\n")
    assert found, f"no heading {heading!r}"
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return {row["name"]: (row["default"], row["meaning"]) for row in _ROW.finditer(section)}


def used_in_code() -> set[str]:
    sources = [path for folder in ("recovery", "dashboard") for path in (ROOT / folder).rglob("*.py")]
    schema = ROOT / "recovery" / "config" / "schema.py"
    names = {name for path in sources if path != schema for name in _NAME.findall(path.read_text("utf-8"))}
    return {name.removesuffix("_FILE") for name in names}


def test_every_variable_that_the_code_reads_is_known() -> None:
    assert used_in_code() == set(VARIABLES)


def test_every_variable_is_documented_and_no_other() -> None:
    assert list(rows("Environment")) == list(VARIABLES)


def test_every_secret_names_its_file() -> None:
    assert all(f"`{name}_FILE`" in DOCUMENT for name in SECRETS)


@pytest.mark.parametrize("table", TABLES)
def test_every_key_is_documented_and_no_other(table: str) -> None:
    keys = [key.name for key in TABLES[table] if key.kind not in (Kind.TABLE, Kind.TABLES)]
    assert list(rows(HEADINGS[table])) == keys


def test_every_word_of_a_policy_is_documented_and_no_other() -> None:
    words = {*DUTY, *(field.name for field in fields(Backoff)), NAMES, SIGNATURES, NOTE}
    assert set(rows("`[policy]`")) == words
    assert all(f"`[policy.{scanner.field}]`" in DOCUMENT for scanner in Scanner)


@pytest.mark.parametrize(("table", "key"), [(table, key) for table, keys in TABLES.items() for key in keys])
def test_every_default_is_the_codes_own(table: str, key: Key) -> None:
    if key.kind in (Kind.TABLE, Kind.TABLES):
        return
    default, meaning = rows(HEADINGS[table])[key.name]
    written = re.fullmatch(r"`(.+)`", default)
    if written:
        value = tomllib.loads(f"x = {written[1]}")["x"]
        assert (tuple(value) if isinstance(value, list) else value) == key.default
    else:
        assert key.default == ""
    if key.kind is Kind.NUMBER:
        assert f"({key.low:g} to {key.high:g})" in meaning


def test_the_example_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.+?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    (tmp_path / "secrets").mkdir()
    for name in ("secrets/shop", "secrets/billing", "ca.pem"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "unstall.toml").write_text(example)
    assert [deployment.name for deployment in load({}, directory=tmp_path).deployments] == ["shop", "billing", "n8n"]
