"""What stops the start, or deserves a warning: each with its key, what is wrong, and what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks

from recovery import config
from recovery.errors import ConfigError, Problem


@checks.register("unstall")
def environment(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E001: a variable that the web's settings refused."""
    return _errors(settings.ENV.problems, "unstall.E001")


@checks.register("unstall")
def configuration(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E002: deployments, thresholds, limits; environment and TOML."""
    try:
        config.current()
    except ConfigError as error:
        return _errors(error.problems, "unstall.E002")
    return []


@checks.register("unstall")
def exposure(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W001, W002: settings that are right one by one and wrong together."""
    found: list[checks.CheckMessage] = []
    if settings.BIND_IS_OPEN and set(settings.ALLOWED_HOSTS) == set(settings.LOCAL_HOSTS):
        hint = "Set UNSTALL_TRUSTED_ORIGINS=https://the.name.people.type, or UNSTALL_ALLOWED_HOSTS."
        problem = "UNSTALL_BIND listens to other machines, but only localhost is an allowed name."
        found.append(checks.Warning(problem, hint=hint, id="unstall.W001"))
    if settings.DEBUG and settings.BIND_IS_OPEN:
        problem = "UNSTALL_DEBUG shows source and settings, and other machines can reach it."
        found.append(checks.Warning(problem, hint="Leave UNSTALL_DEBUG out.", id="unstall.W002"))
    return found


def _errors(problems: Sequence[Problem], id: str) -> list[checks.CheckMessage]:
    return [checks.Error(f"{problem.key}: {problem.problem}", hint=problem.remedy, id=id) for problem in problems]
