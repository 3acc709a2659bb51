from __future__ import annotations

import logging

import pytest

from dashboard.logging_config import OneLineFormatter, redacted


def line(message: str, *args: object, exc: BaseException | None = None) -> str:
    exc_info = (type(exc), exc, exc.__traceback__) if exc else None
    record = logging.LogRecord("unstall.test", logging.WARNING, __file__, 1, message, args, exc_info)
    return OneLineFormatter().format(record)


def test_an_entry_is_one_line_with_time_level_and_name() -> None:
    text = line("hello %s", "world")
    assert text.endswith(" warn  unstall.test  hello world")
    assert text[:4].isdigit()
    assert "Z " in text


def test_a_name_cannot_forge_an_entry() -> None:
    assert "\n" not in line("job %s", "7\n2026-01-01T00:00:00Z info root  all is well")


def test_an_entry_does_not_speak_to_a_terminal() -> None:
    assert line("queue %s", "\x1b[2Jmail\u009b31m\u202e").endswith("queue ␛[2Jmail\ufffd31m\ufffd")
    assert line("%s", "half a character \ud800").endswith("\ud800")


def test_a_traceback_stays_on_the_line() -> None:
    with pytest.raises(ValueError, match="no") as caught:
        int("no")
    text = line("broke", exc=caught.value)
    assert "\n" not in text
    assert "ValueError: invalid literal" in text


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2@db:6379/0",
        "rediss://:hunter2@db",
        "GET /welcome/hunter2 200",
        "password=hunter2",
        "{'password': 'hunter2'}",
        "Authorization: hunter2",
    ],
)
def test_secrets_do_not_reach_the_log(text: str) -> None:
    assert "hunter2" not in redacted(text)


def test_what_is_no_secret_stays() -> None:
    text = "redis://db:6379/0 refused; GET /queues/main/bull:jobs/ 200"
    assert redacted(text) == text
