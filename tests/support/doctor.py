"""Runs `manage.py doctor` in this process, and picks what it said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from recovery import config

Doctor = Callable[..., tuple[int, dict[str, Any]]]


@contextmanager
def doctor_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Doctor]:
    """Run it with this environment: exit status and what it printed."""

    def run(**environ: str) -> tuple[int, dict[str, Any]]:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        config.current.cache_clear()
        out, status = StringIO(), 0
        try:
            call_command("doctor", "--json", stdout=out)
        except SystemExit as end:
            status = int(str(end.code))
        return status, json.loads(out.getvalue())

    yield run
    config.current.cache_clear()


def says(report: dict[str, Any], about: str, level: str) -> str:
    rows = [row for row in report["findings"] if row["about"].startswith(about) and row["level"] == level]
    return "\n".join(f"{row['says']} {row['remedy']}" for row in rows)
