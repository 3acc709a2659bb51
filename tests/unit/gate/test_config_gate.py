"""[gate] and [[servers]]: what is read of them, and every slip of the pen told with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.config import Config, load
from recovery.config.gate import GateConfig, WithoutSample
from recovery.domain.gate.state_machine import GateThresholds
from recovery.errors import ConfigError


def read(directory: Path, written: str) -> Config:
    (directory / "unstall.toml").write_text(written)
    return load({}, directory=directory)


def test_a_server_has_the_common_thresholds_but_for_its_own(tmp_path: Path) -> None:
    gate = read(
        tmp_path,
        '[gate]\nclose_at = 85\nopen_at = 60\nwithout_sample = "measure"\nopen_on_loopback = true\n'
        '[[servers]]\nid = "eu-1"\nlabel = "Import box"\n[[servers]]\nid = "eu-2"\nclose_at = 95\nsettle = 4\n',
    ).gate
    assert (gate.without_sample, gate.open_on_loopback) == (WithoutSample.MEASURE, True)
    assert gate.terms_of("eu-1") == gate.terms_of("never seen") == GateThresholds(85, 60, 2)
    assert gate.terms_of("eu-2") == GateThresholds(95, 60, 4)
    assert [gate.label_of(id) for id in ("eu-1", "eu-2", "eu-3")] == ["Import box", "eu-2", "eu-3"]


def test_nothing_written_is_closed_to_all_without_a_token_and_refuses_without_a_sample(tmp_path: Path) -> None:
    assert read(tmp_path, "").gate == GateConfig(
        GateThresholds(80, 70, 2), WithoutSample.REFUSE, open_on_loopback=False
    )


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("[gate]\nclose_at = 75\n", ["gate.open_at"]),
        ("[gate]\nclose_at = 100\nsettle = 0\n", ["gate.close_at", "gate.settle"]),
        ('[gate]\nwithout_sample = "open"\n', ["gate.without_sample"]),
        ('[[servers]]\nid = "a"\nopen_at = 75\n', ["servers[1].open_at"]),
        ('[[servers]]\nlabel = "x"\n[[servers]]\nid = "a b"\n', ["servers[1].id", "servers[2].id"]),
        ('[[servers]]\nid = "a"\n[[servers]]\nid = "a"\n', ["servers[2].id"]),
        (f'[[servers]]\nid = "a"\nlabel = "{"x" * 61}"\n', ["servers[1].label"]),
    ],
)
def test_what_cannot_be_is_told_with_its_key(tmp_path: Path, written: str, keys: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, written)
    assert [problem.key for problem in raised.value.problems] == keys
