"""A configuration as somebody wrote it, with files beside it that it may name, and what is refused of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.config import Config, load
from recovery.errors import ConfigError

Read = Callable[[str], Config]


def reading(directory: Path) -> Read:
    """From a text to what is configured by it; `secret` and `ca.pem` lie beside it."""

    def load_from(toml: str) -> Config:
        (directory / "secret").write_text("open sesame\n")
        (directory / "ca.pem").write_text("x")
        (directory / "unstall.toml").write_text(toml)
        return load({}, directory=directory)

    return load_from


def refused(read: Read, toml: str) -> set[str]:
    """The keys that are wrong in it, each told with what would be right."""
    with pytest.raises(ConfigError) as caught:
        read(toml)
    assert all(problem.problem and problem.remedy for problem in caught.value.problems)
    return {problem.key for problem in caught.value.problems}
