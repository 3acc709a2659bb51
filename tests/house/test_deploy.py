"""What we hand out for production fits the program: names, commands, hashes, and no registry's address."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from django.core.management import get_commands

from recovery import config
from recovery.config.schema import SECRETS, VARIABLES

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
LOCKS = sorted((DEPLOY / "locks").glob("*.txt"))
KNOWN = {*VARIABLES, *(f"{name}_FILE" for name in SECRETS)}
NAME = re.compile(r"\b(?:UNSTALL_[A-Z_]+|DATABASE_URL\w*)\b(?==|:)")
RUN = re.compile(r"manage\.py[\", ]+([a-z]+)")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
REGISTRIES = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|index-url|find-links|trusted-host", re.IGNORECASE)


def _handed_out() -> Iterator[Path]:
    yield from UNITS
    yield from DEPLOY.glob("*.example*")
    yield from (DEPLOY / "compose.yaml", DEPLOY / "Containerfile")


@pytest.mark.parametrize("file", list(_handed_out()), ids=lambda file: file.name)
def test_every_setting_in_a_handed_out_file_is_one_of_ours(file: Path) -> None:
    unknown = set(NAME.findall(file.read_text())) - KNOWN
    assert not unknown


@pytest.mark.parametrize(
    "file", [*UNITS, DEPLOY / "compose.yaml", DEPLOY / "Containerfile"], ids=lambda file: file.name
)
def test_every_command_in_a_handed_out_file_exists(file: Path) -> None:
    assert set(RUN.findall(file.read_text())) <= set(get_commands())


def test_the_example_configuration_is_one_that_starts(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "unstall.example.toml", tmp_path / "unstall.toml")
    (tmp_path / "secrets").mkdir()
    for name in ("shop", "billing"):
        (tmp_path / "secrets" / name).write_text("secret\n")
    for name in ("app", "n8n"):
        (tmp_path / "secrets" / name).write_text(f"postgresql://unstall:secret@db/{name}\n")
    loaded = config.load({}, directory=tmp_path)
    assert [deployment.name for deployment in loaded.deployments] == ["shop", "billing", "n8n"]
    assert [(table.database, table.name) for table in loaded.tables] == [("app", "imports")]
    assert loaded.environment_is_production


def test_the_compose_file_starts_nothing_before_what_it_needs() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in ("web", "scheduler"):
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in run.stderr.splitlines() if unit.name in line and "not executable" not in line]
    assert complaints == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_a_hash_for_every_package_and_no_registry(lock: Path) -> None:
    text = lock.read_text()
    assert not REGISTRIES.search(text)
    entries = re.split(r"\n(?=[A-Za-z0-9])", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    assert all("--hash=sha256:" in entry for entry in entries if entry.strip())


def test_the_wider_lock_holds_the_pins_of_the_narrower_one() -> None:
    runtime, demo, everything = (
        set(PIN.findall((DEPLOY / "locks" / f"{name}.txt").read_text())) for name in ("runtime", "demo", "test")
    )
    assert runtime < demo < everything


@pytest.mark.parametrize(
    "name", ["Makefile", ".ci/run", *(str(file.relative_to(ROOT)) for file in DEPLOY.glob("setup/*"))]
)
def test_the_steps_of_the_setup_name_no_registry(name: str) -> None:
    text = "\n".join(line for line in (ROOT / name).read_text().splitlines() if "--no-emit" not in line)
    assert not REGISTRIES.search(text)
