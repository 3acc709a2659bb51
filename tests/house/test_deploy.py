"""What we hand out for production fits the program: names, commands, hashes, and no registry's address."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import redis
import yaml
from django.core.management import get_commands

from recovery import config
from recovery.config.schema import SECRETS, VARIABLES
from recovery.servers import monitor_acl
from tests.support.processes import confined
from tests.support.processes.processes import end, free_port, spawn
from tests.support.stores.stores import binary
from tests.support.waiting import until

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
    done = {"condition": "service_completed_successfully"}
    programs = ("web", "scheduler")
    violations = [name for name in programs if services()[name].get("depends_on", {}).get("migrate") != done]
    assert violations == []


def test_the_state_store_of_the_compose_file_outlives_a_crash() -> None:
    command = services()["state"]["command"]
    assert " ".join(command).find("--appendonly yes") > 0


def test_the_compose_file_gives_no_address_of_the_state_store_without_a_password() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    violations = [name for name, service in services.items() if "redis://state" in str(service.get("environment", ""))]
    assert violations == []


@pytest.mark.usefixtures("processes")
def test_the_state_store_of_the_compose_file_lets_nobody_in_without_a_password(tmp_path: Path) -> None:
    """Its own command, with other paths and another port."""
    text = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["state"]["command"][0]
    for name in ("state", "monitor"):
        (tmp_path / f"{name}-password").write_text(f"{name}-secret\n")
    port = free_port()
    text = text.replace("$$", "$").replace("/run/secrets", str(tmp_path)).replace("docker-entrypoint.sh ", "")
    text = text.replace("valkey-server -", f"{binary('valkey')} - --port {port} --dir {tmp_path} --bind 127.0.0.1")
    server = spawn(["/bin/sh", "-ec", text], environ=os.environ | {"UNSTALL_SERVER_ID": "this-server"})
    try:
        nobody, own, monitor = (redis.Redis(port=port, username=name, password=password) for name, password in USERS)
        until(lambda: _greets(own), 30, "it is up")
        with pytest.raises(redis.AuthenticationError):
            nobody.ping()
        monitor.hset("worker-monitor:this-server:metrics", "a", "b")
        for denied in (
            lambda: monitor.set("unstall:snapshot", "x"),
            lambda: monitor.delete("worker-monitor:other:logs"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                denied()
        assert set(monitor_acl.rule("this-server").split()[7:]) - set(text.split()) == {OWN_KEYS}
        for client in (nobody, own, monitor):
            client.close()
    finally:
        end(server)


OWN_KEYS = "~worker-monitor:this-server:*"
USERS = ((None, None), ("default", "state-secret"), ("monitor", "monitor-secret"))


def _greets(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_every_file_that_the_compose_file_mounts_from_here_is_there_or_told_in_its_head() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    head, read = text.partition("\nname:")[0], yaml.safe_load(text)
    mounts = [mount for service in read["services"].values() for mount in service.get("volumes", ())]
    places = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    files = [Path(place).name for place in (*places, *(secret["file"] for secret in read["secrets"].values()))]
    violations = [file for file in files if not (DEPLOY / file).exists() and file not in head]
    assert violations == []


# What every unit has, and the value. The exceptions have their reason in the unit.
SHUT_IN = {
    "UMask": "0077",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "ProtectProc": "invisible",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "PrivateDevices": "yes",
    "PrivateMounts": "yes",
    "PrivateTmp": "yes",
    "PrivateUsers": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service, ~@privileged @resources",
    "SystemCallErrorNumber": "EPERM",
}
EXCEPTIONS = {
    "unstall-monitor.service": {"ProtectProc", "PrivateUsers"},
    "unstall-scheduler.service": {"MemoryDenyWriteExecute"},
}
EXPOSURE = 2.0  # of 10, as systemd counts


def directives(unit: Path) -> dict[str, str]:
    """Parses [Service]; what is written several times is joined."""
    return {name: ", ".join(values) for name, values in confined.directives(unit).items()}


def test_every_unit_is_shut_in() -> None:
    violations = []
    for unit in UNITS:
        found, excepted = directives(unit), EXCEPTIONS.get(unit.name, set())
        violations += [
            f"{unit.name}: {name}" for name in SHUT_IN if (found.get(name) != SHUT_IN[name]) != (name in excepted)
        ]
    assert violations == []


def test_every_unit_has_limits_and_runs_without_root() -> None:
    found = {unit.name: directives(unit) for unit in UNITS}
    assert len(found) == 4
    violations = [
        f"{name}: {key}" for name, own in found.items() for key in ("MemoryMax", "TasksMax") if not own.get(key)
    ]
    violations += [
        name for name, own in found.items() if own.get("User", "root") == "root" and own.get("DynamicUser") != "yes"
    ]
    assert violations == []


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_counts_little_exposure(unit: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    level = re.search(r"Overall exposure level for \S+: (\d+\.\d)", said)
    assert level, said
    assert float(level[1]) <= EXPOSURE, said


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def test_every_service_of_the_compose_file_has_limits_and_gains_no_rights() -> None:
    wanted = {"mem_limit", "pids_limit", "networks", "security_opt"}
    violations = {name: sorted(wanted - set(service)) for name, service in services().items() if wanted - set(service)}
    assert violations == {}


def test_our_programs_run_under_a_number_and_as_the_image_has_it() -> None:
    number = re.search(r"^USER (\d+:\d+)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert number
    ours = {name: service.get("user") for name, service in services().items() if service.get("image") == "unstall"}
    assert set(ours.values()) == {number[1]}


def test_the_networks_are_apart() -> None:
    """The proxy reaches the pages alone; database and state store have no way out."""
    networks = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["networks"]
    assert {name for name, own in networks.items() if own and own.get("internal")} == {"database", "state"}
    members = {
        name: sorted(one for one, service in services().items() if name in service["networks"]) for name in networks
    }
    assert members == {
        "front": ["proxy", "web"],
        "database": ["database", "migrate", "scheduler", "web"],
        "state": ["monitor", "scheduler", "state", "web"],
        "outside": ["scheduler", "web"],
    }


def test_the_one_that_is_believed_is_the_proxy() -> None:
    networks = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["networks"]
    (place,) = networks["front"]["ipam"]["config"]
    address = ip_address(services()["proxy"]["networks"]["front"]["ipv4_address"])
    assert services()["web"]["environment"]["UNSTALL_TRUSTED_PROXIES"] == str(address)
    assert address in ip_network(place["subnet"])
    assert address not in ip_network(place["ip_range"]), "no other container is given it"


IGNORED = (
    *("deploy/secrets/secret-key", "deploy/unstall.toml", "unstall.toml", ".unstall/unstall.sqlite3", ".git/config"),
    *(".venv/bin/python", "tests/conftest.py", "bench/results/latest.json", ".env", "recovery/__pycache__/x.pyc"),
    *("docs/decisions/0001-reads-without-scripts.md", ".sbom/unstall.cdx.json", "node_modules/x", "id_rsa"),
)


def is_ignored(path: str) -> bool:
    """As Docker reads .dockerignore: the last pattern counts that fits the path, or a directory that it is in."""
    parts = Path(path).parts
    prefixes = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        anywhere = line.startswith("**/")
        names = [Path(prefix).name for prefix in prefixes] if anywhere else prefixes
        if (
            line
            and not line.startswith("#")
            and any(PurePosixPath(name).match(pattern) and name.count("/") == pattern.count("/") for name in names)
        ):
            ignored = not line.startswith("!")
    return ignored


def test_a_build_is_given_what_it_copies_and_no_secret() -> None:
    copied = re.findall(r"^COPY (\S+)", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert {"recovery", "deploy/sbom.py"} <= set(copied)
    assert [path for path in copied if is_ignored(path)] == []
    assert [path for path in IGNORED if not is_ignored(path)] == []
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(allowed) == sorted(copied)


def test_what_a_service_of_the_compose_file_waits_for_exists() -> None:
    needed = [(name, other) for name, service in services().items() for other in service.get("depends_on", ())]
    violations = [f"{name} waits for {other}" for name, other in needed if other not in services()]
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
