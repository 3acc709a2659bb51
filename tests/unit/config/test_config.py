"""Reading the configuration: what is enough, what wins, and what is refused, all at once and with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from recovery.config import Config, DeploymentMode, Thresholds, load
from recovery.domain.auto_retry.backoff import Backoff
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.policy_layers import PolicySource, resolve_policy
from recovery.domain.policies.types import ScannerMode as PolicyMode
from recovery.errors import ConfigError, DeploymentMissing, Problem

Read = Callable[..., Config]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Load a TOML text and an environment, from an empty directory."""

    def load_from(toml: str = "", **environ: str) -> Config:
        if toml:
            (tmp_path / "unstall.toml").write_text(toml)
        return load(environ, directory=tmp_path)

    return load_from


@pytest.fixture
def refused(read: Read) -> Callable[..., tuple[Problem, ...]]:
    def problems(toml: str = "", **environ: str) -> tuple[Problem, ...]:
        with pytest.raises(ConfigError) as caught:
            read(toml, **environ)
        return caught.value.problems

    return problems


Refused = Callable[..., tuple[Problem, ...]]


def table(**settings: object) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in settings.items()]
    return "[[deployments]]\n" + "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


# -- what is enough


def test_nothing_at_all_is_a_configuration_without_deployments(read: Read) -> None:
    assert read() == Config()


def test_one_url_is_enough(read: Read) -> None:
    config = read(UNSTALL_REDIS_URL="redis://queues:6380/2")
    (main,) = config.deployments
    assert (main.name, main.label, main.mode, main.database) == ("main", "main", DeploymentMode.SINGLE, 2)
    assert str(main.nodes[0]) == "queues:6380"
    assert config.state_url is None


@pytest.mark.parametrize(("written", "is_read_only"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_one_variable_makes_that_url_read_only(read: Read, written: str, is_read_only: bool) -> None:
    config = read("", UNSTALL_REDIS_URL="redis://localhost", UNSTALL_READ_ONLY=written)
    assert config.deployment("main").read_only is is_read_only


def test_every_key_of_a_deployment_arrives(read: Read) -> None:
    toml = table(
        name="eu", label="Europe", url="redis+sentinel://a:1,b:2/m/3", username="u", password="p/w",
        sentinel_username="su", sentinel_password="sp", queues=["bull:mail"], prefixes=["bull", "{x}"],
        read_only=True, timeout=2,
    )  # fmt: skip
    eu = read(toml).deployment("eu")
    assert (eu.label, eu.mode, eu.sentinel_master, eu.database) == ("Europe", DeploymentMode.SENTINEL, "m", 3)
    assert (eu.login.username, eu.login.password) == ("u", "p/w")
    assert (eu.sentinel_login.username, eu.sentinel_login.password) == ("su", "sp")
    assert (eu.queues, eu.prefixes, eu.read_only, eu.timeout) == (("bull:mail",), ("bull", "{x}"), True, 2.0)


def test_the_url_of_the_environment_stands_beside_the_file(read: Read) -> None:
    config = read(table(name="other", url="redis://b"), UNSTALL_REDIS_URL="redis://a")
    assert [deployment.name for deployment in config.deployments] == ["main", "other"]


def test_the_environment_wins_over_the_file(read: Read) -> None:
    toml = "environment = 'staging'\n[state]\nurl = 'redis://file/1'\n"
    config = read(toml, UNSTALL_STATE_URL="redis://variable/1", UNSTALL_ENVIRONMENT="production")
    assert (config.state_url, config.environment) == ("redis://variable/1", "production")


def test_an_empty_variable_is_no_variable(read: Read) -> None:
    config = read(table(name="a", url="redis://b"), UNSTALL_REDIS_URL="", UNSTALL_STATE_URL=" ", UNSTALL_CONFIG="")
    assert len(config.deployments) == 1
    assert config.state is None


def test_the_intervals_are_read(read: Read) -> None:
    config = read("[intervals]\ncollect = 5\ndiscover = 30.5\n")
    assert (config.collect_every, config.discover_every) == (5.0, 30.5)


@pytest.mark.parametrize(("name", "is_production"), [("production", True), ("Prod", True), ("staging", False)])
def test_production_is_known_by_its_name(read: Read, name: str, is_production: bool) -> None:
    assert read(UNSTALL_ENVIRONMENT=name).environment_is_production is is_production


def test_the_file_may_stand_elsewhere(read: Read, tmp_path: Path) -> None:
    elsewhere = tmp_path / "etc" / "mine.toml"
    elsewhere.parent.mkdir()
    (elsewhere.parent / "pw").write_text("from-file\n")
    elsewhere.write_text(table(name="a", url="redis://b", password_file="pw"))
    assert read(UNSTALL_CONFIG=str(elsewhere)).deployment("a").login.password == "from-file"


def test_secrets_may_come_from_files(read: Read, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("redis://:pw@h:1/0\n")
    config = read(UNSTALL_REDIS_URL_FILE=str(tmp_path / "url"), UNSTALL_STATE_URL="redis://s/1")
    assert config.deployment("main").login.password == "pw"


def test_tls_settings_arrive(read: Read, tmp_path: Path) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text("x")
    toml = table(name="a", url="rediss://b", tls_ca="ca", tls_certificate="crt", tls_key="key")
    tls = read(toml).deployment("a").tls
    assert tls is not None
    assert [Path(part).name for part in (tls.ca, tls.certificate, tls.key)] == ["ca", "crt", "key"]
    assert tls.verify


def test_values_cannot_be_changed(read: Read) -> None:
    config = read(UNSTALL_REDIS_URL="redis://a")
    with pytest.raises(FrozenInstanceError):
        config.environment = "other"  # type: ignore[misc]


def test_a_missing_deployment_is_told_with_the_known_ones(read: Read) -> None:
    with pytest.raises(DeploymentMissing, match="Configured: main"):
        read(UNSTALL_REDIS_URL="redis://a").deployment("mian")


# -- what is refused


def test_all_problems_are_told_at_once(refused: Refused) -> None:
    toml = "enviroment = 'x'\n" + table(name="A b", url="http://h", timout=1, read_only="yes") + "[state]\nurl = 5\n"
    found = refused(toml, UNSTALL_REDIS_URL="redis://h:port")
    assert {problem.key for problem in found} == {
        "enviroment", "UNSTALL_REDIS_URL", "deployments[1].name", "deployments[1].url", "deployments[1].timout",
        "deployments[1].read_only", "state.url",
    }  # fmt: skip
    assert all(problem.problem and problem.remedy for problem in found)


@pytest.mark.parametrize(
    ("toml", "key", "words"),
    [
        ("colect = 1", "colect", "Known:"),
        ("enviroment = 'x'", "enviroment", "Did you mean environment?"),
        ("[intervals]\ncolect = 1", "intervals.colect", "Did you mean collect?"),
        ("[intervals]\ncollect = 0.1", "intervals.collect", "from 0.5 to 60"),
        ("[intervals]\ncollect = true", "intervals.collect", "Write a number"),
        ("intervals = 3", "intervals", "Write a table"),
        ("deployments = 'x'", "deployments", "[[name]]"),
        ("environment = 'a name that is far too long for a frame'", "environment", "printable"),
        (table(url="redis://h"), "deployments[1].name", "a–z"),
        (table(name="a"), "deployments[1].url", "Write url or url_file"),
        (table(name="a", url=""), "deployments[1].url", "Write url or url_file"),
        (table(name="a", url="redis://h", queues="mail"), "deployments[1].queues", "a list of strings"),
        (table(name="a", url="redis://h", timeout=0), "deployments[1].timeout", "from 0.05 to 10"),
        (table(name="a", url="redis://h", username="u"), "deployments[1].username", "Add password"),
        (table(name="a", url="redis://u:p@h", password="p"), "deployments[1].password", "one of the two"),
        (table(name="a", url="redis://h", password="p", password_file="unstall.toml"), "deployments[1].password_file",
         "one of the two"),
        (table(name="a", url="redis://h", password_file="none"), "deployments[1].password_file", "path of a file"),
        (table(name="a", url="redis://h", tls_verify=False), "deployments[1].tls_verify", "rediss://"),
        (table(name="a", url="rediss://h", tls_key="unstall.toml"), "deployments[1].tls_certificate", "both"),
        (table(name="a", url="rediss://h", tls_ca="unstall.toml", tls_verify=False), "deployments[1].tls_ca",
         "Remove one"),
        (table(name="a", url="redis://h", sentinel_password="p"), "deployments[1].sentinel_password", "fix the URL"),
        (table(name="a", url="redis://h") * 2, "deployments", "a unique name"),
        (table(name="a", url="redis://h/1") + table(name="b", url="redis://h/1"), "deployments", "different prefixes"),
        ("[state]\nurl = 'redis+cluster://h'", "state.url", "Write redis://"),
        ("[state]\n", "state.url", "Write url or url_file"),
        ("environment = 'x\n", "unstall.toml", "Fix that line"),
    ],
)  # fmt: skip
def test_a_problem_names_its_key_and_a_remedy(refused: Refused, toml: str, key: str, words: str) -> None:
    (problem,) = refused(toml)
    assert problem.key.endswith(key)
    assert words in problem.remedy


@pytest.mark.parametrize(
    ("environ", "key", "words"),
    [
        ({"UNSTALL_REDIS_ULR": "redis://h"}, "UNSTALL_REDIS_ULR", "Did you mean UNSTALL_REDIS_URL?"),
        ({"UNSTALL_STATE_URI": "x", "UNSTALL_STATE_URL": "redis://h"}, "UNSTALL_STATE_URI", "UNSTALL_STATE_URL?"),
        ({"UNSTALL_COLECT": "1"}, "UNSTALL_COLECT", "Did you mean collect? It is set in the file, under [intervals]."),
        ({"UNSTALL_CONFIG": "/none/such.toml"}, "UNSTALL_CONFIG", "path of a file"),
        ({"UNSTALL_REDIS_URL_FILE": "/none"}, "UNSTALL_REDIS_URL_FILE", "path of a file"),
        ({"UNSTALL_REDIS_URL": "redis://a", "UNSTALL_REDIS_URL_FILE": "/none"}, "UNSTALL_REDIS_URL_FILE", "one of"),
        ({"UNSTALL_REDIS_URL": "redis://a", "UNSTALL_READ_ONLY": "maybe"}, "UNSTALL_READ_ONLY", "Write 1"),
        ({"UNSTALL_ENVIRONMENT": "x" * 30}, "UNSTALL_ENVIRONMENT", "printable"),
        ({"UNSTALL_ENVIRONMENT": "production", "UNSTALL_DEBUG": "true"}, "UNSTALL_DEBUG", "Remove it"),
    ],
)
def test_a_problem_of_the_environment_names_its_variable(
    refused: Refused, environ: dict[str, str], key: str, words: str
) -> None:
    (problem,) = refused(**environ)
    assert problem.key == key
    assert words in problem.remedy


def test_variables_that_resemble_nothing_of_ours_are_left_alone(read: Read) -> None:
    read(UNSTALL_MY_OWN_NOTE="x", REDIS_URL="y", UNSTALL_TEST_RUN="1", UNSTALL_URL="https://u", UNSTALL_TOKEN="t")


def test_two_mains_are_explained(refused: Refused) -> None:
    (problem,) = refused(table(name="main", url="redis://b"), UNSTALL_REDIS_URL="redis://a")
    assert "UNSTALL_REDIS_URL makes one named main" in problem.problem


@pytest.mark.parametrize(
    ("queues", "state"),
    [
        ("redis://localhost/0", "redis://127.0.0.1:6379/0"),
        ("redis://HOST:6379", "rediss://host"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("redis+cluster://a:1,b:2", "redis://b:2"),
    ],
)
def test_the_state_never_lives_beside_queues(refused: Refused, queues: str, state: str) -> None:
    (problem,) = refused(UNSTALL_REDIS_URL=queues, UNSTALL_STATE_URL=state)
    assert problem.key == "UNSTALL_STATE_URL"
    assert "another database number" in problem.remedy


@pytest.mark.parametrize("state", ["redis://localhost/1", "redis://localhost:6380/0", "unix:///run/redis.sock"])
def test_another_database_or_server_is_apart(read: Read, state: str) -> None:
    assert read(UNSTALL_REDIS_URL="redis://localhost/0", UNSTALL_STATE_URL=state).state is not None


def test_a_secret_file_must_hold_one_line(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("one\ntwo\n")
    (problem,) = refused(table(name="a", url="redis://h", password_file="pw"))
    assert "one line" in problem.problem


def test_no_problem_repeats_a_secret(refused: Refused) -> None:
    toml = table(name="a", url="redis://:hunter2/x@h", password=["hunter2"]) + table(name="b", url="redis://h:hunter2")
    found = refused(toml, UNSTALL_REDIS_URL="redis://user:hunter2@h:1/x?y", UNSTALL_STATE_URL="hunter2@host")
    assert len(found) >= 4
    assert "hunter2" not in "\n".join(map(str, found))


# -- thresholds


def test_a_queue_may_have_thresholds_of_its_own(read: Read) -> None:
    config = read(
        '[thresholds]\nstalled_interval = 10\n[[queues]]\nname = "main/bull:mail"\noverdue_after = 600\n'
        '[[queues]]\nname = "bull:slow"\nstalled_interval = 60.5\n',
        UNSTALL_REDIS_URL="redis://queues",
    )
    assert config.thresholds_of("main", "bull:mail") == Thresholds(10_000, 600_000)
    assert config.thresholds_of("main", "bull:slow") == Thresholds(60_500, None)
    assert config.thresholds_of("main", "bull:other") == Thresholds(10_000, None)
    assert Config().thresholds_of("main", "bull:other") == Thresholds(30_000, None)


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[[queues]]\noverdue_after = 5\n", "queues[1].name"),
        ('[[queues]]\nname = "shop/bull:a"\n', "queues"),
        ('[[queues]]\nname = "bull:a"\n[[queues]]\nname = "bull:a"\n', "queues[2].name"),
        ("[thresholds]\nstalled_interval = 0\n", "thresholds.stalled_interval"),
    ],
)
def test_thresholds_that_would_do_nothing_are_refused(refused: Refused, toml: str, key: str) -> None:
    assert [problem.key for problem in refused(toml, UNSTALL_REDIS_URL="redis://queues")] == [key]


# -- policies


def test_policies_are_read_for_all_queues_for_a_deployment_and_for_one_queue(read: Read) -> None:
    config = read(
        '[policy.orphan_watch]\nmode = "enabled"\nrelease = true\n'
        '[[policies]]\ndeployment = "main"\nstale_check = { most = 7 }\n'
        '[[policies]]\nqueue = "main/bull:mail"\nidempotency = "sent once"\n'
        '[[policies]]\nqueue = "bull:mail"\nbackoff."mail*" = { attempts = 3, first = 5 }\n',
        UNSTALL_REDIS_URL="redis://queues",
    )
    places = [(layer.origin.deployment, layer.origin.base) for layer in config.policies]
    assert places == [("", ""), ("main", ""), ("main", "bull:mail"), ("", "bull:mail")]
    assert {layer.origin.source for layer in config.policies} == {PolicySource.FILE}
    mail = resolve_policy(config.policies, QueueRef("main", "bull:mail")).policy
    assert (mail.orphan_watch.mode, mail.orphan_watch.release) == (PolicyMode.ENABLED, True)
    assert (mail.stale_check.most, mail.idempotency) == (7, "sent once")
    assert mail.backoffs.of("mail:7") == Backoff(3, 5000)
    assert resolve_policy(config.policies, QueueRef("shop", "bull:pay")).policy.stale_check.most == 500


@pytest.mark.parametrize(
    ("toml", "key", "words"),
    [
        ("[policy]\norphan_wach = {}", "policy.orphan_wach", "Did you mean orphan_watch?"),
        ("[policy.stale_check]\nafter = -1", "policy.stale_check.after", "from 0 to 2,592,000"),
        ("policy = 3", "policy", "Write a table"),
        ("policies = 3", "policies", "[[name]]"),
        ('[[policies]]\nqueue = "bull:a"\nnever = { names = 3 }', "policies[1].never.names", "a list of strings"),
        ("[[policies]]\nstale_check = {}", "policies[1].deployment", "[policy] is for all queues"),
        ('[[policies]]\nqueue = "a"\ndeployment = "main"', "policies[1].deployment", "one of the two"),
        ("[[policies]]\nqueue = 3", "policies[1].queue", "a string in quotes"),
        ('[[policies]]\nqueue = ""', "policies[1].queue", "a string in quotes"),
        ('[[policies]]\nqueue = "main/"', "policies[1].queue", "DEPLOYMENT/BASE"),
        ('[[policies]]\nqueue = "/bull:a"', "policies[1].queue", "DEPLOYMENT/BASE"),
        ('[[policies]]\nqueue = "a"\n' * 2, "policies[2]", "one table for each queue"),
        ('[[policies]]\nqueue = "shop/bull:a"', "policies", "Configured: main"),
        ('[[policies]]\ndeployment = "shop"', "policies", "Configured: main"),
    ],
)
def test_a_policy_that_would_not_do_what_it_says_is_refused(refused: Refused, toml: str, key: str, words: str) -> None:
    (problem,) = refused(toml, UNSTALL_REDIS_URL="redis://queues")
    assert problem.key == key
    assert words in problem.remedy
