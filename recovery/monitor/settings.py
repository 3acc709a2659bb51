"""Settings of the monitor from its environment, except for the state store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from recovery.errors import ConfigError, Problem
from recovery.monitor.server_id import server_id
from recovery.monitor.shipping import settings as shipping
from recovery.monitor.shipping.settings import ShippingSettings

PATTERNS = "worker,bull,n8n"
_LEAST = 2  # characters: a pattern of one is in every command
_MOST = 50  # patterns

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    server: str
    disk: str
    patterns: tuple[str, ...]  # literal parts of a worker's command line; none: no process is listed
    shipping: ShippingSettings = field(default_factory=ShippingSettings)


def read(environ: Mapping[str, str]) -> MonitorSettings:
    """Reads the settings. Raises ConfigError with all problems at once."""
    problems: list[Problem] = []
    server = _tried(server_id, environ, "", problems)
    patterns = _tried(_patterns, environ, tuple[str, ...](), problems)
    logs = _tried(shipping.read, environ, ShippingSettings(), problems)
    if problems:
        raise ConfigError(tuple(problems))
    return MonitorSettings(server, environ.get("UNSTALL_DISK_PATH", "").strip() or "/", patterns, logs)


def _tried(
    read: Callable[[Mapping[str, str]], T], environ: Mapping[str, str], otherwise: T, problems: list[Problem]
) -> T:
    try:
        return read(environ)
    except ConfigError as error:
        problems += error.problems
        return otherwise


def _patterns(environ: Mapping[str, str]) -> tuple[str, ...]:
    written = environ.get("UNSTALL_WORKER_PATTERNS", PATTERNS).split(",")
    patterns = tuple(pattern.strip() for pattern in written if pattern.strip())
    if len(patterns) > _MOST or any(len(pattern) < _LEAST for pattern in patterns):
        problem = f"has more than {_MOST} parts, or one that is shorter than {_LEAST} characters."
        raise ConfigError(
            (
                Problem(
                    "UNSTALL_WORKER_PATTERNS",
                    problem,
                    f"Write parts of commands, like {PATTERNS}; `none` disables the list.",
                ),
            )
        )
    return patterns
