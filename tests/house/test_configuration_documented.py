"""docs/configuration.md and the code name the same settings with the same defaults, both ways."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from recovery.config import load
from recovery.config.schema import SECRETS, TABLES, VARIABLES, ConfigKey, SettingKind
from recovery.domain.auto_retry.backoff import Backoff
from recovery.domain.policies.policy_layers import DUTY, NAMES, NOTE, SIGNATURES
from recovery.domain.policies.types import PolicyScanner

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
    "audit": "`[audit]`",
    "alerts.webhooks": "`[[alerts.webhooks]]`",
    "alerts.email": "`[alerts.email]`",
    "gate": "`[gate]`",
    "servers": "`[[servers]]`",
    "metrics": "`[metrics]`",
    "idempotency": "`[idempotency]`",
    "redaction": "`[redaction]`",
    "redaction.show": "`[[redaction.show]]`",
    "nodes": "`[[nodes]]`",
    "prometheus": "`[prometheus]`",
    "logs": "`[[logs]]`",
    "n8n": "`[[n8n]]`",
    "n8n.copies": "`[n8n.copies]`",
    "n8n.rescue": "`[[n8n.rescue]]`",
}
PARENTS = (SettingKind.TABLE, SettingKind.TABLES)  # a key that opens a table of its own has no row
_ROW = re.compile(r"^\| `(?P<name>[A-Za-z0-9_]+)` \| (?P<default>.+?) \| (?P<meaning>.+?) \|$", re.MULTILINE)
_NAME = re.compile(r"\"(UNSTALL_[A-Z0-9_]*[A-Z]|DATABASE_URL)\"")


def section(heading: str) -> str | None:
    """The text below this heading, down to the next; None when there is no such heading."""
    _, found, rest = DOCUMENT.partition(f"# {heading}\n")
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0] if found else None


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """The table below this heading, by name: default and meaning."""
    return {row["name"]: (row["default"], row["meaning"]) for row in _ROW.finditer(section(heading) or "")}


def used_in_code() -> dict[str, set[str]]:
    """The variables that the code names, and the files that do."""
    used: dict[str, set[str]] = {}
    schema = ROOT / "recovery" / "config" / "schema.py"
    for path in [path for folder in ("recovery", "dashboard") for path in (ROOT / folder).rglob("*.py")]:
        for name in _NAME.findall(path.read_text("utf-8")) if path != schema else ():
            used.setdefault(name.removesuffix("_FILE"), set()).add(str(path.relative_to(ROOT)))
    return used


def test_every_variable_that_the_code_reads_is_known() -> None:
    violations = {name: sorted(files) for name, files in used_in_code().items() if name not in VARIABLES}
    assert violations == {}


def test_every_variable_is_read_by_the_code() -> None:
    violations = sorted(set(VARIABLES) - set(used_in_code()))
    assert violations == []


def test_every_variable_is_documented_and_no_other() -> None:
    assert list(rows("Environment")) == list(VARIABLES)


def test_every_secret_names_its_file() -> None:
    violations = [name for name in SECRETS if f"`{name}_FILE`" not in DOCUMENT]
    assert violations == []


def test_every_table_has_its_heading() -> None:
    violations = [table for table in TABLES if table not in HEADINGS or section(HEADINGS[table]) is None]
    assert violations == []


def test_every_key_is_documented_and_no_other() -> None:
    """In the order of the code."""
    keys = {table: [key.name for key in TABLES[table] if key.kind not in PARENTS] for table in TABLES}
    documented = {table: list(rows(HEADINGS[table])) for table in TABLES}
    violations = {
        f"[{table}]": {"documented": documented[table], "in the code": keys[table]}
        for table in TABLES
        if documented[table] != keys[table]
    }
    assert violations == {}


def test_every_word_of_a_policy_is_documented_and_no_other() -> None:
    words = {*DUTY, *(field.name for field in fields(Backoff)), NAMES, SIGNATURES, NOTE}
    assert set(rows("`[policy]`")) == words


def test_every_scanner_has_its_policy_documented() -> None:
    violations = [scanner for scanner in PolicyScanner if f"`[policy.{scanner.field}]`" not in DOCUMENT]
    assert violations == []


def test_every_default_is_the_codes_own() -> None:
    settings = [(table, key) for table, keys in TABLES.items() for key in keys if key.kind not in PARENTS]
    violations = [f"[{table}] {key.name}: {what}" for table, key in settings for what in _differences(table, key)]
    assert violations == []


def _differences(table: str, key: ConfigKey) -> Iterator[str]:
    if key.name not in rows(HEADINGS[table]):
        yield "not documented"
        return
    default, meaning = rows(HEADINGS[table])[key.name]
    written = re.fullmatch(r"`(.+)`", default)
    value = tomllib.loads(f"x = {written[1]}")["x"] if written else ""
    if (tuple(value) if isinstance(value, list) else value) != key.default:
        yield f"the default is {key.default!r}, documented is {default}"
    if key.kind is SettingKind.NUMBER and (bounds := f"({key.low:g} to {key.high:g})") not in meaning:
        yield f"its meaning does not say {bounds}"


def test_the_example_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.+?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    (tmp_path / "secrets").mkdir()
    for name in ("secrets/shop", "secrets/billing", "ca.pem"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "unstall.toml").write_text(example)
    assert [deployment.name for deployment in load({}, directory=tmp_path).deployments] == ["shop", "billing", "n8n"]
