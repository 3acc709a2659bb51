"""A server has one stable name, or is told what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.errors import ConfigError
from recovery.management.commands import up
from recovery.monitor.server_id import server_id

CONTAINER_ID = "3f2a9c0d1e4b"
MACHINE_ID = "0123456789abcdef"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root directory with a machine's id, on no container."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text(f"{MACHINE_ID}\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def container(machine: Path) -> Path:
    (machine / ".dockerenv").touch()
    return machine


def test_a_configured_name_wins_and_ours_before_the_other(machine: Path) -> None:
    both = {"UNSTALL_SERVER_ID": " worker-1 ", "SERVER_ID": "other"}
    assert server_id(both, root=machine) == "worker-1"
    assert server_id({"UNSTALL_SERVER_ID": "", "SERVER_ID": "other"}, root=machine) == "other"


def test_the_machines_own_id_gives_the_same_name_every_time_and_stays_secret(machine: Path) -> None:
    name = server_id({}, root=machine)
    assert name == server_id({}, root=machine, host="renamed")
    assert MACHINE_ID not in name


def test_without_any_id_it_is_the_host_name(tmp_path: Path) -> None:
    assert server_id({}, root=tmp_path, host="eu-1") == "eu-1"
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("\n")
    assert server_id({}, root=tmp_path, host="eu-1") == "eu-1"


@pytest.mark.parametrize("host", [CONTAINER_ID, CONTAINER_ID * 5 + "abcd"])
def test_a_container_s_random_name_is_refused_with_what_to_set(container: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="UNSTALL_SERVER_ID=worker-1"):
        server_id({}, root=container, host=host)


def test_it_is_refused_without_any_other_sign_of_a_container_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="looks like that of a container"):
        server_id({}, root=tmp_path, host=CONTAINER_ID)


def test_a_container_without_a_machine_s_id_is_refused(container: Path) -> None:
    (container / "etc/machine-id").unlink()
    with pytest.raises(ConfigError, match="no stable name"):
        server_id({}, root=container, host="web-7")


def test_a_pod_s_name_is_no_server_s(machine: Path) -> None:
    with pytest.raises(ConfigError, match="no stable name"):
        server_id({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, root=machine, host="worker-7d9f8b-x2x4z")


def test_the_host_s_own_id_handed_into_a_container_is_the_server_s(container: Path) -> None:
    (container / "proc/self/mountinfo").write_text("36 35 8:1 /etc/machine-id /etc/machine-id ro - ext4 /dev/sda1 ro\n")
    name = server_id({}, root=container, host=CONTAINER_ID)
    (container / ".dockerenv").unlink()
    assert name == server_id({}, root=container, host="the-host")


def test_a_container_that_was_named_like_itself_is_refused(container: Path) -> None:
    with pytest.raises(ConfigError, match="the id of this container"):
        server_id({"SERVER_ID": CONTAINER_ID}, root=container, host=CONTAINER_ID)


@pytest.mark.parametrize("name", ["a\nb", "x" * 101])
def test_what_fits_no_page_is_no_name(machine: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name"):
        server_id({"UNSTALL_SERVER_ID": name}, root=machine)


def test_everything_on_one_box_needs_no_name_from_anybody() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    up.name_server(pod)
    assert server_id(pod)  # its own where the machine's id is at hand, else ours
    named = {"SERVER_ID": "a\nb"}
    up.name_server(named)
    assert named == {"SERVER_ID": "a\nb"}  # what is wrong is told, and not covered up
