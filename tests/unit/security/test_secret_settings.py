"""No secret setting comes out of the configuration, however it is written: not as a problem, not in a repr."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard import database_url
from dashboard.env import Environment
from recovery.config import load
from recovery.errors import ConfigError
from tests.support import secret_settings
from tests.support.secret_settings import FORMS, PLAIN, Form


def test_every_setting_that_looks_like_a_secret_is_tried() -> None:
    assert secret_settings.forgotten() == {}


def test_a_secret_that_comes_out_would_be_seen(tmp_path: Path) -> None:
    settings = secret_settings.written(tmp_path, PLAIN)
    assert settings.seen_in(settings.environ["DATABASE_URL"]) == ["DATABASE_URL"]
    assert len(settings.marks) > 20


def test_as_it_should_be_it_can_be_used(tmp_path: Path) -> None:
    assert load(secret_settings.written(tmp_path, PLAIN).environ, directory=tmp_path).state_url


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_the_configuration_says_of_itself_holds_none(tmp_path: Path, form: Form) -> None:
    settings = secret_settings.written(tmp_path, form)
    try:
        said = repr(load(settings.environ, directory=tmp_path))
    except ConfigError as error:
        said = str(error)
    assert settings.seen_in(said) == [], said


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_the_web_says_of_its_variables_holds_none(tmp_path: Path, form: Form) -> None:
    settings = secret_settings.written(tmp_path, form)
    env = Environment(settings.environ)
    database_url.database_settings(env.url("DATABASE_URL", "sqlite:///x", schemes=database_url.SCHEMES))
    assert settings.seen_in(f"{env.problems}") == []
