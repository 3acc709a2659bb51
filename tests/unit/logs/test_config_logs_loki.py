"""[[logs]] of kind loki: what is enough, and what is refused, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LIMIT, SHIPPED, LogSource
from recovery.errors import ConfigError
from tests.support.toml import Read, reading, refused

LOKI = "[[logs]]\nname = 'all'\nkind = 'loki'\nurl = 'http://loki:3100'\n"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return reading(tmp_path)


def test_without_any_there_are_the_lines_that_monitors_ship(read: Read) -> None:
    assert read("").logs == (SHIPPED,)


def test_a_name_and_an_address_are_enough(read: Read) -> None:
    assert read(LOKI).logs == (SHIPPED, LogSource("all", "all", "loki", HttpEndpoint("http://loki:3100")))


def test_all_that_may_be_said_is_taken_and_no_secret_is_shown(read: Read) -> None:
    config = read(
        "[[logs]]\nname = 'prod'\nlabel = 'Production'\nkind = 'loki'\nurl = 'https://loki/base/'\n"
        "username = 'me'\npassword_file = 'secret'\ntls_ca = 'ca.pem'\ntenant = 'team-a|team-b'\n"
        'match = \'env="prod", job!~"te\\"st|x{2}"\'\ntimeout = 9\nserver_label = \'host\'\n'
    )
    source = config.logs[1]
    assert source.endpoint is not None
    assert (source.endpoint.url, source.endpoint.password) == ("https://loki/base", "open sesame")
    assert source.endpoint.ca.endswith("/ca.pem")
    assert (source.label, source.tenant, source.timeout, source.server_label) == (
        "Production",
        "team-a|team-b",
        9.0,
        "host",
    )
    assert source.match == 'env="prod", job!~"te\\"st|x{2}"'
    assert "sesame" not in repr(config)


@pytest.mark.parametrize(
    "match",
    ['{env="prod"}', 'env="prod"} |= "x', "env=prod", 'env="a" job="b"', 'env="a",', "a-b='c'", '="x"', 'env="a\\"'],
)
def test_what_is_no_list_of_matchers_is_refused(read: Read, match: str) -> None:
    assert refused(read, f"{LOKI}match = '''{match}'''") == {"logs[1].match"}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("tenant = 'a\\nb'".replace("'", '"'), "tenant"),
        ("tenant = 'ä'", "tenant"),
        ("server_label = 'a-b'", "server_label"),
        ("timeout = 0.1", "timeout"),
        ("timeout = 31", "timeout"),
        ("tls_ca = 'ca.pem'", "tls_ca"),
        ("username = 'me'", "password_file"),
        ("token_file = 'nowhere'", "token_file"),
        ("roots = ['/var/log']", "roots"),
        ("patterns = ['*.log']", "patterns"),
        ("server = 'eu-1'", "server"),
        ("job = 'x'", "job"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_key(read: Read, line: str, key: str) -> None:
    assert refused(read, LOKI + line) == {f"logs[1].{key}"}


@pytest.mark.parametrize("url", ["", "loki:3100", "http://me:secret@loki", "http://loki/?a=b", "ftp://loki"])
def test_what_is_no_address_is_refused_and_never_quoted(read: Read, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"[[logs]]\nname = 'all'\nkind = 'loki'\nurl = '{url}'")
    assert [problem.key for problem in caught.value.problems] == ["logs[1].url"]
    assert "secret" not in str(caught.value)


def test_everything_wrong_is_told_at_once(read: Read) -> None:
    toml = LOKI + LOKI + "[[logs]]\nname = 'Not so'\nkind = 'journal'\n[[logs]]\nname = 'servers'\nkind = 'loki'\n"
    assert refused(read, toml) == {"logs[2].name", "logs[3].name", "logs[3].kind", "logs[4].name", "logs[4].url"}


def test_there_are_as_many_as_a_page_can_offer(read: Read) -> None:
    listed = "".join(LOKI.replace("all", f"l{number}") for number in range(LIMIT))
    assert refused(read, listed) == {"logs"}
    assert len(read("".join(LOKI.replace("all", f"l{number}") for number in range(LIMIT - 1))).logs) == LIMIT
