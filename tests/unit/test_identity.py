"""A server has one stable name."""

from __future__ import annotations

import socket
from pathlib import Path

from recovery.monitor.identity import server_id


def test_a_configured_name_wins(tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("abc\n")
    assert server_id({"UNSTALL_SERVER_ID": " worker-1 "}, tmp_path / "machine-id") == "worker-1"


def test_the_machines_own_id_gives_the_same_name_every_time_and_stays_secret(tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef\n")
    name = server_id({}, tmp_path / "machine-id")
    assert name == server_id({}, tmp_path / "machine-id")
    assert "0123456789abcdef" not in name


def test_without_any_id_it_is_the_host_name(tmp_path: Path) -> None:
    assert server_id({}, tmp_path / "missing") == socket.gethostname()
    (tmp_path / "empty").write_text("\n")
    assert server_id({}, tmp_path / "empty") == socket.gethostname()
