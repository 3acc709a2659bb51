"""No secret setting comes out of any program: not in the doctor's findings, a log line, a traceback or a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import secret_settings
from tests.support.patience import patience
from tests.support.processes import processes
from tests.support.processes.processes import end, free_port, spawn
from tests.support.processes.web_process import ROOT, WebProcess
from tests.support.secret_settings import FORMS, MISTAKES, PLAIN, Form, SecretSettings
from tests.support.stores.stores import Store
from tests.support.waiting import until

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.timeout(600)]
PAGES = (
    *("/queues", "/stuck", "/stuck/n8n", "/search?q=1", "/audit", "/scanners", "/scanners/policies", "/servers"),
    *("/alerts", "/logs?plain=1", "/tuning", "/tuning/drill", "/idempotency", "/tokens", "/users", "/docs", "/api"),
    *("/queues/main/bull:mail/", "/queues/app/imports/", "/api/v1/openapi.json", "/healthz", "/readyz", "/metrics"),
)


@pytest.fixture
def settings(tmp_path: Path) -> SecretSettings:
    return secret_settings.written(tmp_path / "settings", PLAIN)


def run(directory: Path, environ: Mapping[str, str], *command: str) -> str:
    """Runs a command, and returns what it wrote."""
    clean = {**_clean(), "UNSTALL_DATA_DIR": str(directory / "data"), **environ}
    ended = processes.run(*command, environ=clean, seconds=120)
    return ended.stdout + ended.stderr


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("UNSTALL_", "DATABASE_"))}


def test_the_doctor_tries_each_and_tells_none(tmp_path: Path, settings: SecretSettings) -> None:
    said = run(tmp_path, settings.environ, "manage.py", "doctor")
    for about in ("database (postgresql)", "state store", "deployment ha", "database shop", "n8n n8n", "node two"):
        assert about in said
    for about in ("prometheus", "alerts slack", "alerts email"):
        assert about in said
    assert settings.seen_in(said) == [], said


@pytest.mark.long
@pytest.mark.parametrize("command", ["check", "doctor --json", "migrate", "queues", "web", "scheduler"])
@pytest.mark.parametrize("form", MISTAKES, ids=str)
def test_what_is_written_wrongly_is_told_without_it(tmp_path: Path, form: Form, command: str) -> None:
    settings = secret_settings.written(tmp_path / "settings", form)
    said = run(tmp_path, settings.environ, "manage.py", *command.split())
    assert "Traceback" not in said, said
    assert settings.seen_in(said) == [], said


@pytest.mark.long
@pytest.mark.parametrize("name", ["DATABASE_URL", "UNSTALL_STATE_URL", "UNSTALL_REDIS_URL", "UNSTALL_N8N_DATABASE_URL"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_one_that_is_wrong_among_good_ones_is_not_told_either(tmp_path: Path, form: Form, name: str) -> None:
    """With all of them wrong a program stops before it uses the others."""
    settings = secret_settings.written(tmp_path / "settings", form)
    said = run(tmp_path, {name: settings.environ[name]}, "manage.py", "doctor")
    assert "Traceback" not in said, said
    assert settings.seen_in(said) == [], said


@pytest.fixture
def logs(tmp_path: Path, settings: SecretSettings) -> Iterator[dict[str, Path]]:
    """Starts web process, scheduler and monitor while none of their stores answers; returns their logs."""
    environ = {**_clean(), "UNSTALL_DATA_DIR": str(tmp_path / "data"), **settings.environ}
    environ |= {"UNSTALL_BIND": f"127.0.0.1:{free_port()}", "UNSTALL_LOG_LEVEL": "debug"}
    commands = {
        "web": ("manage.py", "web"),
        "scheduler": ("manage.py", "scheduler"),
        "monitor": ("-m", "recovery.monitor"),
    }
    files = {name: tmp_path / f"{name}.log" for name in commands}
    started = []
    try:
        for name, command in commands.items():
            with files[name].open("wb") as log:
                started.append(
                    spawn([sys.executable, *command], environ=environ, directory=ROOT, stdout=log, stderr=log)
                )
        yield files
    finally:
        for process in started:
            end(process)


def test_no_log_line_of_a_process_tells_one(logs: dict[str, Path], settings: SecretSettings) -> None:
    for name, file in logs.items():
        until(lambda file=file: file.stat().st_size, 60, f"{name} says that something does not answer")  # type: ignore[misc]
        until(lambda file=file: "127.0.0.1" in file.read_text("utf-8", "replace"), 60, name)  # type: ignore[misc]
    said = {name: file.read_text("utf-8", "replace") for name, file in logs.items()}
    assert [name for name, text in said.items() if settings.seen_in(text)] == [], said


def test_no_page_tells_one(state_store: Store, settings: SecretSettings) -> None:
    """For an admin, and with the database of the test, because without one there are no pages."""
    kept = secret_settings.without(settings.environ, "DATABASE_URL", "UNSTALL_SECRET_KEY")
    with WebProcess({**kept, "UNSTALL_STATE_URL": state_store.url}) as web:
        answers = {page: web.get(page, "admin", seconds=patience(20)) for page in PAGES}
        said = {page: f"{answer.headers} {answer.body.decode('utf-8', 'replace')}" for page, answer in answers.items()}
        said["log"] = web.log
    assert [page for page in PAGES if answers[page].status == 500] == []
    assert {page: settings.seen_in(text) for page, text in said.items() if settings.seen_in(text)} == {}
