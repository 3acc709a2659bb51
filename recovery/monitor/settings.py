"""What the monitor is told by its environment, beside the state store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.errors import ConfigError, Problem
from recovery.monitor.identity import server_id

PATTERNS = "worker,bull,n8n"
_LEAST = 2  # characters: a pattern of one is in every command
_MOST = 50  # patterns


@dataclass(frozen=True, slots=True)
class Settings:
    server: str
    disk: str
    patterns: tuple[str, ...]  # literal parts of a worker's command line; none: no process is listed


def read(environ: Mapping[str, str]) -> Settings:
    """Raises ConfigError."""
    return Settings(server_id(environ), environ.get("UNSTALL_DISK_PATH", "").strip() or "/", _patterns(environ))


def _patterns(environ: Mapping[str, str]) -> tuple[str, ...]:
    written = environ.get("UNSTALL_WORKER_PATTERNS", PATTERNS).split(",")
    patterns = tuple(pattern.strip() for pattern in written if pattern.strip())
    if len(patterns) > _MOST or any(len(pattern) < _LEAST for pattern in patterns):
        problem = f"has more than {_MOST} parts, or one that is shorter than {_LEAST} characters."
        raise ConfigError(
            (
                Problem(
                    "UNSTALL_WORKER_PATTERNS", problem, f"Write parts of commands, like {PATTERNS}; none lists none."
                ),
            )
        )
    return patterns
