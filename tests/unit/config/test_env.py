from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.env import Environment


def test_a_bad_value_is_refused_and_the_default_used() -> None:
    env = Environment({"UNSTALL_DEBUG": "perhaps", "UNSTALL_SESSION_DAYS": "0"})
    assert env.flag("UNSTALL_DEBUG", default=False) is False
    assert env.number("UNSTALL_SESSION_DAYS", 7, least=1, most=90) == 7
    assert [problem.key for problem in env.problems] == ["UNSTALL_DEBUG", "UNSTALL_SESSION_DAYS"]
    assert all(problem.remedy for problem in env.problems)


@pytest.mark.parametrize(("written", "meant"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)])
def test_a_flag_is_read_as_people_write_it(written: str, meant: bool) -> None:
    env = Environment({"X": written})
    assert env.flag("X", default=not meant) is meant
    assert not env.problems


def test_an_empty_value_means_not_set() -> None:
    env = Environment({"X": " ", "Y": ""})
    assert env.number("X", 3) == 3
    assert env.text("Y", "default") == "default"
    assert not env.problems


def test_a_list_loses_blanks() -> None:
    assert Environment({"X": " a, ,b ,"}).names("X") == ("a", "b")


def test_a_value_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    env = Environment({"X_FILE": str(tmp_path / "key")})
    assert env.text("X") == "from a file"


def test_a_file_that_cannot_be_read_is_a_problem_of_its_variable(tmp_path: Path) -> None:
    env = Environment({"X_FILE": str(tmp_path / "none")})
    assert env.text("X", "default") == "default"
    (problem,) = env.problems
    assert problem.key == "X_FILE"
    assert "No such file" in problem.problem


def test_a_value_and_its_file_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("b")
    env = Environment({"X": "a", "X_FILE": str(tmp_path / "key")})
    assert env.text("X") == "a"
    assert [problem.key for problem in env.problems] == ["X"]


def test_a_refused_url_is_not_repeated_because_it_may_hold_a_password() -> None:
    env = Environment({"DATABASE_URL": "mysql://root:hunter2@db/unstall"})
    assert env.url("DATABASE_URL", "sqlite:///x", schemes=("sqlite", "postgres")) == "sqlite:///x"
    assert "hunter2" not in str(env.problems[0])
    assert "sqlite" in env.problems[0].remedy


def test_a_password_that_was_not_encoded_is_refused_without_a_word_of_it() -> None:
    env = Environment({"DATABASE_URL": "postgres://unstall:hunter2/x@db/unstall"})
    assert env.url("DATABASE_URL", "sqlite:///x", schemes=("sqlite", "postgres")) == "sqlite:///x"
    assert "hunter2" not in str(env.problems[0])
    assert "%2F" in env.problems[0].remedy


@pytest.mark.parametrize("written", ["unstall.example.com", "https://", "https://a.example/path", "ftp://a.example"])
def test_only_an_origin_is_an_origin(written: str) -> None:
    env = Environment({"X": written})
    assert env.origins("X") == ()
    assert env.problems


def test_an_origin_loses_its_last_slash() -> None:
    assert Environment({"X": "https://a.example/"}).origins("X") == ("https://a.example",)


@pytest.mark.parametrize(
    "written",
    ["unix", "127.0.0.1", "::1", "10.0.0.0/8", "fc00::/7", "172.16.0.0/12,192.168.0.0/16", "unix, 10.0.0.7"],
)
def test_a_proxy_is_an_address_a_network_or_our_socket(written: str) -> None:
    env = Environment({"X": written})
    assert env.proxies("X") == tuple(part.strip() for part in written.split(","))
    assert not env.problems


@pytest.mark.parametrize(
    "written", ["*", "0.0.0.0/0", "::/0", "0.0.0.0/1", "10.0.0.1/8", "proxy", "UNIX", "10.0.0.7:80", "10.0.0.*", "true"]
)
def test_a_proxy_that_matches_every_client_or_none_is_refused(written: str) -> None:
    env = Environment({"X": f"10.0.0.7,{written}"})
    assert env.proxies("X") == ("10.0.0.7",)
    (problem,) = env.problems
    assert problem.key == "X"
    assert repr(written) in problem.problem
    assert "10.1.0.0/24" in problem.remedy


@pytest.mark.parametrize("written", ["unstall.example.com", ".example.com", "10.0.0.7", "[fd00::7]", "web_1"])
def test_a_host_is_a_name_or_an_address(written: str) -> None:
    env = Environment({"X": written})
    assert env.hosts("X") == (written,)
    assert not env.problems


@pytest.mark.parametrize("written", ["*", "*.example.com", "https://a.example", "a.example:8000", "a/b", "a b", "."])
def test_a_host_that_means_every_name_or_none_is_refused(written: str) -> None:
    env = Environment({"X": f"a.example,{written}"})
    assert env.hosts("X") == ("a.example",)
    assert [problem.key for problem in env.problems] == ["X"]


@pytest.mark.parametrize(
    "written",
    ["https://*", "https://*.example.com", "https://a:b@c.example", "https://a.example:x", "https://", "https://[::1"],
)
def test_an_origin_that_means_every_site_or_none_is_refused(written: str) -> None:
    env = Environment({"X": written})
    assert env.origins("X") == ()
    assert [problem.key for problem in env.problems] == ["X"]


def test_a_refused_origin_is_not_repeated_with_its_password() -> None:
    env = Environment({"X": "https://somebody:hunter2@a.example"})
    env.origins("X")
    assert "hunter2" not in str(env.problems[0])
