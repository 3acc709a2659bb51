"""Which processes are workers: those that run jobs, and not those that only have the word in their command."""

from __future__ import annotations

import pytest

from recovery.errors import ConfigError
from recovery.monitor.settings import PATTERNS, read
from recovery.monitor.worker_patterns import COMMAND_LENGTH, is_worker, program, shown_command

DEFAULTS = tuple(PATTERNS.split(","))


@pytest.mark.parametrize(
    "command",
    [
        ("node", "/srv/app/dist/worker.js"),
        ("/usr/local/bin/node", "/usr/local/bin/n8n", "worker", "--concurrency=10"),
        ("node", "/app/node_modules/bullmq/dist/cjs/classes/main.js"),
        ("python3", "-m", "app.Workers"),
        ("node", "main.js", "--role=worker"),
        ("bull-mailer",),
    ],
)
def test_what_runs_jobs_is_a_worker(command: tuple[str, ...]) -> None:
    assert is_worker(command, DEFAULTS)


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("sh", "-c", "node worker.js"),
        ("-bash", "worker.sh"),
        ("/bin/bash", "/home/worker/run.sh"),
        ("tail", "-f", "/var/log/worker.log"),
        ("vim", "worker.js"),
        ("sudo", "-u", "app", "node", "worker.js"),
        ("node", "/usr/bin/npm", "run", "worker"),
        ("npm run worker",),
        ("nginx: worker process",),
        ("/opt/google/chrome/chrome", "--service-worker-schemes=x"),
        ("/home/worker/bin/node", "index.js"),
        ("python", "-m", "recovery.monitor", "worker"),
        ("/srv/worker/.venv/bin/python", "/srv/worker/manage.py", "scheduler"),
        ("node", "server.js"),
    ],
)
def test_what_only_has_the_word_in_it_is_none(command: tuple[str, ...]) -> None:
    assert not is_worker(command, DEFAULTS)


def test_own_parts_replace_ours_and_none_lists_none() -> None:
    chosen = read({"UNSTALL_SERVER_ID": "a", "UNSTALL_WORKER_PATTERNS": " consumer , mail.js "}).patterns
    assert chosen == ("consumer", "mail.js")
    assert is_worker(("node", "mail.js"), chosen)
    assert not is_worker(("node", "mailxjs"), chosen)  # literal, and no pattern of signs
    assert read({"UNSTALL_SERVER_ID": "a", "UNSTALL_WORKER_PATTERNS": ""}).patterns == ()


def test_a_part_that_is_in_every_command_is_refused() -> None:
    with pytest.raises(ConfigError, match="UNSTALL_WORKER_PATTERNS"):
        read({"UNSTALL_SERVER_ID": "a", "UNSTALL_WORKER_PATTERNS": "worker,e"})


@pytest.mark.parametrize(
    "secret",
    [
        ("node", "worker.js", "--password", "hunter2"),
        ("node", "worker.js", "--api-key=hunter2"),
        ("node", "worker.js", "redis://default:hunter2@redis:6379/0"),
        ("node", "worker.js", "redis://:hunter2@redis:6379/0"),
        ("env", "REDIS_TOKEN=hunter2", "node", "worker.js"),
    ],
)
def test_a_command_is_told_without_its_secrets(secret: tuple[str, ...]) -> None:
    assert "worker.js" in shown_command(secret)
    assert "hunter2" not in shown_command(secret)


def test_a_long_command_is_cut_after_its_secrets_are_gone() -> None:
    said = shown_command(("node", "worker.js", "x" * 150, "redis://:" + "s" * 500 + "@redis"))
    assert len(said) == COMMAND_LENGTH or said.endswith("@redis")
    assert "sss" not in said


def test_a_program_has_the_name_of_its_file() -> None:
    assert [program(one) for one in (("/usr/bin/node", "a"), ("-bash",), ("nginx: worker",), ())] == [
        "node",
        "bash",
        "nginx",
        "",
    ]
