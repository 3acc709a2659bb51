"""Settings of log shipping from the monitor's environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from recovery.errors import ConfigError, Problem

FILES, DOCKER, JOURNAL = "UNSTALL_LOG_FILES", "UNSTALL_LOG_DOCKER", "UNSTALL_LOG_JOURNAL"
KEEP_MB, KEEP_HOURS = "UNSTALL_LOG_KEEP_MB", "UNSTALL_LOG_KEEP_HOURS"
LIMIT = 50  # patterns, or units: each pattern is a walk through directories every other second
MIB = 1 << 20
_HOUR = 3_600_000
_UNIT = re.compile(r"[A-Za-z0-9_*?][A-Za-z0-9:_.@\\*?-]*")  # none that looks like an option of journalctl


@dataclass(frozen=True, slots=True)
class ShippingSettings:
    """Logs that are shipped, and how much of them the state store keeps: bytes and milliseconds."""

    files: tuple[str, ...] = ()
    docker: str = ""
    units: tuple[str, ...] = ()
    keep_bytes: int = 64 * MIB
    keep_ms: int = 24 * _HOUR

    @property
    def is_wanted(self) -> bool:
        return bool(self.files or self.docker or self.units)


def read(environ: Mapping[str, str]) -> ShippingSettings:
    """Reads the settings. Raises ConfigError with all problems at once."""
    problems: list[Problem] = []
    files, units = _list(environ, FILES, problems), _list(environ, JOURNAL, problems)
    docker = environ.get(DOCKER, "").strip()
    if any(not PurePath(pattern).is_absolute() or not pattern.strip("/") for pattern in files):
        remedy = "Write absolute paths, like /var/log/app/*.log, with a comma between them."
        problems.append(Problem(FILES, "has a pattern that is not an absolute path.", remedy))
    if docker and not PurePath(docker).is_absolute():
        problems.append(Problem(DOCKER, "is not an absolute path.", "Write it as /var/lib/docker/containers."))
    if any(not _UNIT.fullmatch(unit) for unit in units):
        problems.append(Problem(JOURNAL, "has an invalid unit name.", "Write names like worker.service, mail-*."))
    keep_bytes = _number(environ, KEEP_MB, 64, 4096, problems) * MIB
    keep_ms = _number(environ, KEEP_HOURS, 24, 720, problems) * _HOUR
    if problems:
        raise ConfigError(tuple(problems))
    return ShippingSettings(files, docker.rstrip("/") or docker, units, keep_bytes, keep_ms)


def _list(environ: Mapping[str, str], name: str, problems: list[Problem]) -> tuple[str, ...]:
    found = tuple(part.strip() for part in environ.get(name, "").split(",") if part.strip())
    if len(found) > LIMIT:
        problems.append(
            Problem(name, f"has {len(found)} parts.", f"Write at most {LIMIT}; one pattern can match many.")
        )
    return found


def _number(environ: Mapping[str, str], name: str, default: int, most: int, problems: list[Problem]) -> int:
    written = environ.get(name, "").strip()
    if not written:
        return default
    if not (re.fullmatch("[0-9]{1,6}", written) and 1 <= int(written) <= most):
        problems.append(Problem(name, "is not such a number.", f"Write a whole number from 1 to {most}."))
        return default
    return int(written)
