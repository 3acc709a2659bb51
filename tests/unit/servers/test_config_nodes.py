"""[[nodes]] and [prometheus]: what is enough, and what is refused, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.nodes import LIMIT, NodeConfig, PrometheusConfig
from recovery.errors import ConfigError
from tests.support.toml import Read, reading, refused


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return reading(tmp_path)


def test_a_name_and_an_address_are_enough(read: Read) -> None:
    config = read("[[nodes]]\nid = 'eu-1'\nexporter = 'http://eu-1:9100/metrics?collect[]=cpu'")
    assert config.nodes == (NodeConfig("eu-1", HttpEndpoint("http://eu-1:9100/metrics?collect[]=cpu")),)
    assert config.nodes[0].exporter is not None
    assert config.nodes[0].exporter.target == "http://eu-1:9100/metrics"


def test_a_prometheus_may_name_its_servers(read: Read) -> None:
    config = read(
        "[prometheus]\nurl = 'https://prom/base/'\nmatch = 'job=\"node\", env!~\"te\\\"st\"'\ntls_ca = 'ca.pem'\n"
        "token_file = 'secret'\n[[nodes]]\nid = 'eu-1'\ninstance = '10.0.0.1:9100'"
    )
    assert config.prometheus is not None
    endpoint = config.prometheus.endpoint
    assert (endpoint.url, endpoint.token, endpoint.ca[-7:]) == ("https://prom/base", "open sesame", "/ca.pem")
    assert config.prometheus == PrometheusConfig(endpoint, "instance", 'job="node", env!~"te\\"st"', "/")
    assert config.nodes == (NodeConfig("eu-1", None, "10.0.0.1:9100"),)
    assert "sesame" not in repr(config)


@pytest.mark.parametrize(
    "url",
    ["", "eu-1:9100", "ftp://h", "http://", "http://h:0", "http://h:x", "http://u:p@h", "http://h/#a", "http://h/a b"],
)
def test_what_is_no_address_is_refused_and_never_quoted(read: Read, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"[prometheus]\nurl = '{url}'")
    assert [problem.key for problem in caught.value.problems] == ["prometheus.url"]
    assert not url or f"{url} " not in str(caught.value).replace("http://HOST", "")


def test_everything_wrong_is_told_at_once(read: Read) -> None:
    toml = """
        [prometheus]
        url = "http://prom?token=x"
        label = "a-b"
        match = 'job="node"} or vector(1'
        disk = "root"
        [[nodes]]
        id = "a/b"
        exporter = "http://h"
        username = "me"
        [[nodes]]
        id = "twice"
        instance = "i"
        disk = "/data"
        [[nodes]]
        id = "twice"
        [[nodes]]
        id = "both"
        exporter = "http://h"
        instance = "i"
        token_file = "secret"
        tls_ca = "ca.pem"
    """
    assert refused(read, toml) == {
        *(f"prometheus.{key}" for key in ("url", "label", "match", "disk")),
        *("nodes[1].id", "nodes[1].password_file", "nodes[2].disk", "nodes[3].id", "nodes[3].exporter"),
        *(f"nodes[4].{key}" for key in ("exporter", "instance", "token_file", "tls_ca")),
    }


def test_an_instance_needs_a_prometheus(read: Read) -> None:
    assert refused(read, "[[nodes]]\nid = 'a'\ninstance = 'i'") == {"nodes[1].instance"}
    assert refused(read, "[prometheus]") == {"prometheus.url"}


def test_very_many_are_for_a_prometheus(read: Read) -> None:
    listed = "".join(f"[[nodes]]\nid = 'n{number}'\nexporter = 'http://h'\n" for number in range(LIMIT + 1))
    assert refused(read, listed) == {"nodes"}
