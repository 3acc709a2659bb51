"""Store URLs: every form, every slip, and what a person gets to see of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.config import DeploymentMode as Mode
from recovery.config import ServerAddress as Address
from recovery.config import StoreLogin as Login
from recovery.config import hidden
from recovery.config.addresses.redis_urls import BadRedisUrl, RedisUrl, parse, with_login
from tests.support.stores.wires import deployment


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://h", RedisUrl(Mode.SINGLE, False, (Address("h", 6379),), Login())),
        ("REDIS://h/", RedisUrl(Mode.SINGLE, False, (Address("h", 6379),), Login())),
        ("rediss://h:1/2", RedisUrl(Mode.SINGLE, True, (Address("h", 1),), Login(), 2)),
        ("redis://h?db=3", RedisUrl(Mode.SINGLE, False, (Address("h", 6379),), Login(), 3)),
        ("redis://:p%40%2Fw@h", RedisUrl(Mode.SINGLE, False, (Address("h", 6379),), Login("", "p@/w"))),
        ("redis://u:p:w@h", RedisUrl(Mode.SINGLE, False, (Address("h", 6379),), Login("u", "p:w"))),
        ("redis://u:p@w@h", RedisUrl(Mode.SINGLE, False, (Address("h", 6379),), Login("u", "p@w"))),
        ("redis://[::1]:7/0", RedisUrl(Mode.SINGLE, False, (Address("::1", 7),), Login())),
        ("unix:///run/r.sock", RedisUrl(Mode.SINGLE, False, (Address(path="/run/r.sock"),), Login())),
        ("unix://u:p@/r.sock?db=4", RedisUrl(Mode.SINGLE, False, (Address(path="/r.sock"),), Login("u", "p"), 4)),
        ("redis+sentinel://a,b:2/m",
         RedisUrl(Mode.SENTINEL, False, (Address("a", 26379), Address("b", 2)), Login(), 0, "m")),
        ("rediss+sentinel://u:p@a:1/m/5", RedisUrl(Mode.SENTINEL, True, (Address("a", 1),), Login("u", "p"), 5, "m")),
        ("redis+cluster://a:1,[::2]:2", RedisUrl(Mode.CLUSTER, False, (Address("a", 1), Address("::2", 2)), Login())),
        ("rediss+cluster://:p@a/0", RedisUrl(Mode.CLUSTER, True, (Address("a", 6379),), Login("", "p"))),
    ],
)  # fmt: skip
def test_a_url_says_what_it_says(url: str, place: RedisUrl) -> None:
    assert parse(url) == place


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:6379", "Write redis://"),
        ("http://h", "Write redis://"),
        ("redis://", "Write redis://"),
        ("redis://h:0", "HOST:PORT"),
        ("redis://h:99999", "HOST:PORT"),
        ("redis://::1:6379", "[brackets]"),
        ("redis://h/one", "number"),
        ("redis://h/-1", "number"),
        ("redis://h/1/2", "Write redis://"),
        ("redis://a:1,b:2", "redis+sentinel://"),
        ("redis://h?timeout=3", "[[deployments]]"),
        ("redis://user@h", "redis://USER:PASSWORD@HOST"),
        ("redis://:a/b@h", "%2F"),
        ("redis://:a#b@h", "%23"),
        ("redis://:a?b@h", "%3F"),
        ("redis://:a b@h", "%20"),
        (" redis://h", "Remove it"),
        ("unix://run/r.sock", "three slashes"),
        ("unix:///", "three slashes"),
        ("redis+sentinel://a:1", "MASTER"),
        ("redis+sentinel://a:1/m/0/x", "MASTER"),
        ("redis+cluster://a:1/3", "Remove the number"),
        ("redis+cluster://a:1,a:1", "each server once"),
    ],
)
def test_a_bad_url_says_what_would_be_right(url: str, words: str) -> None:
    with pytest.raises(BadRedisUrl) as caught:
        parse(url)
    assert words in caught.value.remedy


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://u:secret@h:1/0", "redis://u:***@h:1/0"),
        ("redis://:secret@h", "redis://:***@h"),
        ("redis://secret@h", "redis://***@h"),
        ("redis://u:se/cr@et@h", "redis://u:***@h"),
        ("redis+sentinel://u:secret@a,b/m/0", "redis+sentinel://u:***@a,b/m/0"),
        ("redis://h?password=secret&db=1", "redis://h?password=***&db=1"),
        ("postgres://u:secret@db/unstall", "postgres://u:***@db/unstall"),
    ],
)
def test_a_shown_url_has_no_password(url: str, shown: str) -> None:
    assert hidden(url) == shown


@given(st.text(min_size=1).filter(lambda password: "*" not in password and "\n" not in password))
def test_no_password_survives_being_hidden(password: str) -> None:
    mark = f"<{password}>"
    assert mark not in hidden(f"redis://user:{mark}@host:6379/0")


@given(st.text(max_size=8), st.text(min_size=1, max_size=8))
def test_a_login_survives_its_way_into_a_url(username: str, password: str) -> None:
    login = Login(username, password)
    assert parse(with_login("redis://other:one@host:1/2", login)).login == login


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("redis://u:p@h:1/2", "redis://u@h:1/2"),
        ("rediss://:p@h", "rediss://h:6379/0"),
        ("unix:///r.sock?db=3", "unix:///r.sock?db=3"),
        ("redis+sentinel://:p@a:1,b:2/m/0", "redis+sentinel://a:1,b:2/m/0"),
        ("redis+cluster://a:1,b:2", "redis+cluster://a:1,b:2"),
    ],
)
def test_the_target_is_the_address_without_the_password(url: str, target: str) -> None:
    assert deployment(url).target == target
