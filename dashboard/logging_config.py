"""Configures logging: one line per entry, time first, and nothing secret in it."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import Any

from recovery.domain.identifiers import visible

_HIDDEN = "***"
_SECRETS = (
    # the password of any URL
    (re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+@"), rf"\1:{_HIDDEN}@"),
    # a one-time link is a key as long as it is unused
    (re.compile(r"(/welcome/)[A-Za-z0-9_-]+"), rf"\1{_HIDDEN}"),
    # a machine token, wherever it was put
    (re.compile(r"unstall_[A-Za-z0-9_-]{20,}"), _HIDDEN),
    (
        re.compile(r"(?i)\b(password|passwd|secret|token|authorization)(['\"]?\s*[=:]\s*['\"]?)[^\s'\"&,;)}]+"),
        rf"\1\2{_HIDDEN}",
    ),
)
LEVELS = ("debug", "info", "warning", "error")
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "fatal"}


def is_worth_its_traceback(record: logging.LogRecord) -> bool:
    """Returns False for a request that failed for lack of the database: its error page logs one line already."""
    from dashboard.base.error_pages import is_database_error  # noqa: PLC0415 -- it needs Django, which reads this first

    return not (record.exc_info and is_database_error(record.exc_info[1]))


def redacted(text: str) -> str:
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class OneLineFormatter(logging.Formatter):
    """Formats `2026-11-18T00:41:07.123Z warn  recovery.scanners  message`; a traceback follows on the same line."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        # Line breaks would let a job's name forge an entry, and terminal codes would act where it is read.
        text = " | ".join(visible(part) for part in redacted(text).splitlines() if part.strip())
        return line(record.created, _LEVELS.get(record.levelname, record.levelname.lower()), record.name, text)


def line(at: float, level: str, name: str, text: str) -> str:
    return f"{_stamp(at)} {level:<5} {name}  {text}"


def _stamp(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configuration(*, level: str) -> dict[str, Any]:
    """Returns the configuration for `logging.config.dictConfig`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "dashboard.logging_config.OneLineFormatter"}},
        "filters": {"told": {"()": "django.utils.log.CallbackFilter", "callback": is_worth_its_traceback}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Each of these logs more than an operator can read, below the level that matters.
            "django.db.backends": {"level": "INFO"},
            "django.request": {"level": "ERROR", "filters": ["told"]},
            "django.utils.autoreload": {"level": "INFO"},
            "apscheduler": {"level": "WARNING"},
            "asyncio": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},  # a line for each request, into the answer of a command too
            "httpcore": {"level": "WARNING"},
            "django.security.DisallowedHost": {"level": "CRITICAL"},  # the page says the remedy; bots cause it all day
        },
    }
