"""Defines the system checks of the web process: each names the setting, the problem and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks

from dashboard.server import loopback
from recovery import config
from recovery.errors import ConfigError, Problem


@checks.register("unstall")
def environment(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Reports the variables that the web's settings refused (E001)."""
    return _errors(settings.ENV.problems, "unstall.E001")


@checks.register("unstall")
def configuration(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Reports problems in deployments, thresholds and limits, from environment and TOML (E002)."""
    try:
        config.current()
    except ConfigError as error:
        return _errors(error.problems, "unstall.E002")
    return []


@checks.register("unstall")
def exposure(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Warns about settings that are right one by one and wrong together (W001 to W003)."""
    found: list[checks.CheckMessage] = []
    if settings.BIND_IS_OPEN and set(settings.ALLOWED_HOSTS) == set(settings.LOCAL_HOSTS):
        hint = "Set UNSTALL_TRUSTED_ORIGINS=https://the.name.people.type, or UNSTALL_ALLOWED_HOSTS."
        problem = "UNSTALL_BIND accepts other machines, but only localhost is an allowed host name."
        found.append(checks.Warning(problem, hint=hint, id="unstall.W001"))
    if settings.DEBUG and settings.BIND_IS_OPEN:
        problem = "UNSTALL_DEBUG shows source code and settings, and other machines can reach this process."
        found.append(checks.Warning(problem, hint="Unset UNSTALL_DEBUG.", id="unstall.W002"))
    hint = "Put a proxy with TLS in front, and set UNSTALL_TRUSTED_ORIGINS=https://the.name.people.type only."
    return found + [checks.Warning(problem, hint=hint, id="unstall.W003") for problem in _plain_http()]


def _plain_http() -> Iterator[str]:
    """Yields the settings by which passwords and sessions travel in the open. On loopback they may."""
    plain = [origin for origin in settings.TRUSTED_ORIGINS if _is_plain_elsewhere(origin)]
    if plain:
        yield f"UNSTALL_TRUSTED_ORIGINS: over {plain[0]} every network hop can read passwords and sessions."
    elif settings.BIND_IS_OPEN and not settings.IS_HTTPS and set(settings.ALLOWED_HOSTS) != set(settings.LOCAL_HOSTS):
        yield "UNSTALL_BIND: other machines reach it over http://, where every network hop can read passwords."
    elif not settings.IS_HTTPS and _is_production():
        yield "UNSTALL_ENVIRONMENT: this is production, but cookies are not limited to TLS."


def _is_plain_elsewhere(origin: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme == "http" and not loopback.is_own(parts.netloc)


def _is_production() -> bool:
    try:
        return config.current().environment_is_production
    except ConfigError:
        return False


def _errors(problems: Sequence[Problem], id: str) -> list[checks.CheckMessage]:
    return [checks.Error(f"{problem.key}: {problem.problem}", hint=problem.remedy, id=id) for problem in problems]
