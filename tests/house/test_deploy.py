"""What we hand out for production fits the program: names, commands, hashes, and no registry's address."""

from __future__ import annotations

import re
import shutil
import subprocess
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
CONTAINERS = (DEPLOY / "compose.yaml", DEPLOY / "Containerfile")
HANDED_OUT = (*UNITS, *DEPLOY.glob("*.example*"), *CONTAINERS)
STEPS = (ROOT / "Makefile", ROOT / ".ci" / "run", *DEPLOY.glob("setup/*"))
KNOWN = {*VARIABLES, *(f"{name}_FILE" for name in SECRETS)}
NAME = re.compile(r"\b(?:UNSTALL_[A-Z_]+|DATABASE_URL\w*)\b(?==|:)")
RUN = re.compile(r"manage\.py[\", ]+([a-z][a-z-]*)")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
REGISTRIES = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|index-url|find-links|trusted-host", re.IGNORECASE)


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_the_files_are_found() -> None:
    assert {"unstall-web@.service", "unstall-scheduler.service"} <= {unit.name for unit in UNITS}
    assert {"unstall.env.example", "unstall.example.toml"} <= {file.name for file in HANDED_OUT}
    assert {"runtime.txt", "demo.txt", "test.txt"} <= {lock.name for lock in LOCKS}
    assert DEPLOY / "setup" / "venv.sh" in STEPS


def test_every_setting_in_a_handed_out_file_is_one_of_ours() -> None:
    unknown = {named(file): sorted(set(NAME.findall(file.read_text())) - KNOWN) for file in HANDED_OUT}
    violations = {file: names for file, names in unknown.items() if names}
    assert violations == {}


def test_every_command_in_a_handed_out_file_exists() -> None:
    commands = set(get_commands())
    unknown = {named(file): sorted(set(RUN.findall(file.read_text())) - commands) for file in (*UNITS, *CONTAINERS)}
    violations = {file: names for file, names in unknown.items() if names}
    assert violations == {}


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


def test_a_program_of_the_compose_file_waits_for_the_migration() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    done = {"condition": "service_completed_successfully"}
    programs = ("web", "scheduler")
    violations = [name for name in programs if services[name].get("depends_on", {}).get("migrate") != done]
    assert violations == []


def test_the_state_store_of_the_compose_file_outlives_a_crash() -> None:
    command = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["state"]["command"]
    assert " ".join(command).find("--appendonly yes") > 0


def test_every_file_that_the_compose_file_mounts_from_here_is_there_or_told_in_its_head() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    head, read = text.partition("\nname:")[0], yaml.safe_load(text)
    mounts = [mount for service in read["services"].values() for mount in service.get("volumes", ())]
    places = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    files = [Path(place).name for place in (*places, *(secret["file"] for secret in read["secrets"].values()))]
    violations = [file for file in files if not (DEPLOY / file).exists() and file not in head]
    assert violations == []


def test_every_unit_that_runs_for_us_is_shut_in_alike() -> None:
    wanted = {"CapabilityBoundingSet=", "SystemCallFilter=@system-service", "PrivateDevices=yes"}
    ours = {named(unit): set(unit.read_text().splitlines()) for unit in UNITS if "User=unstall\n" in unit.read_text()}
    assert len(ours) == 3
    violations = {name: sorted(wanted - lines) for name, lines in ours.items() if wanted - lines}
    assert violations == {}


def test_what_a_service_of_the_compose_file_waits_for_exists() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    needed = [(name, other) for name, service in services.items() for other in service.get("depends_on", ())]
    violations = [f"{name} waits for {other}" for name, other in needed if other not in services]
    assert violations == []


@pytest.mark.usefixtures("processes")
def test_systemd_understands_the_units() -> None:
    """It complains of a template under the name of an instance, so each unit is known by the part that both share."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, UNITS)], capture_output=True, text=True, check=False
    )
    ours = [line for line in run.stderr.splitlines() if any(unit.stem in line for unit in UNITS)]
    violations = [line for line in ours if "not executable" not in line]
    assert violations == []


def test_every_package_in_a_lock_has_a_hash() -> None:
    violations = [f"{named(lock)}: {entry}" for lock in LOCKS for entry in _without_hash(lock.read_text())]
    assert violations == []


def _without_hash(lock: str) -> list[str]:
    lines = "\n".join(line for line in lock.splitlines() if not line.startswith("#"))
    entries = [entry for entry in re.split(r"\n(?=[A-Za-z0-9])", lines) if entry.strip()]
    return [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry]


def test_no_lock_and_no_step_of_the_setup_names_a_registry() -> None:
    locks = [(named(lock), lock.read_text()) for lock in LOCKS]
    # The step that writes the locks says what it must not write there.
    steps = [(named(step), re.sub(r".*--no-emit.*", "", step.read_text())) for step in STEPS]
    violations = [f"{name}: {found[0]}" for name, text in locks + steps for found in REGISTRIES.finditer(text)]
    assert violations == []


def test_the_wider_lock_holds_the_pins_of_the_narrower_one() -> None:
    runtime, demo, everything = (
        set(PIN.findall((DEPLOY / "locks" / f"{name}.txt").read_text())) for name in ("runtime", "demo", "test")
    )
    assert runtime < demo < everything
