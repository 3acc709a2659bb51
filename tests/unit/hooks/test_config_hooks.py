"""[[hooks]]: what is read of them, and every slip of the pen told with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.config import Config, load
from recovery.domain.hooks.types import HookEvent, StageChoice
from recovery.errors import ConfigError

DATABASE = '[[databases]]\nname = "app"\nurl = "postgresql://u@db.example.internal/app"\n'
DEPLOYMENT = '[[deployments]]\nname = "shop"\nurl = "redis://redis.example.internal/0"\n'
ROW = {
    "name": '"imports"',
    "queue": '"shop/bull:imports"',
    "database": '"app"',
    "table": '"shop.imports"',
    "id": '"id"',
    "path": '"import.id"',
    "stage": '"stage"',
    "from": '["importing"]',
    "to": '"pending"',
}


def read(directory: Path, keys: dict[str, str], rest: str = "") -> Config:
    written = "".join(f"{key} = {value}\n" for key, value in keys.items())
    (directory / "unstall.toml").write_text(f"{DATABASE}{DEPLOYMENT}[[hooks]]\n{written}{rest}")
    return load({}, directory=directory)


def problems(directory: Path, keys: dict[str, str], rest: str = "") -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(directory, keys, rest)
    return [problem.key for problem in raised.value.problems]


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in ROW.items() if key != name}


def test_a_row_that_follows_is_read(tmp_path: Path) -> None:
    choose = (
        '[[hooks.choose]]\ncolumn = "file"\nis = "empty"\nto = "lost"\n'
        '[[hooks.choose]]\ncolumn = "kind"\nequals = ""\nto = "bare"\n'
    )
    (hook,) = read(tmp_path, ROW | {"on": '["lost", "recovered"]', "failed": '"broken"'}, choose).hooks
    assert (hook.name, hook.deployment, hook.base, hook.call) == ("imports", "shop", "bull:imports", "")
    assert hook.on == {HookEvent.LOST, HookEvent.RECOVERED}
    assert hook.follow is not None
    assert (hook.follow.table, hook.follow.path, hook.follow.active) == (
        "shop.imports",
        ("import", "id"),
        ("importing",),
    )
    assert (hook.follow.to, hook.follow.failed) == ("pending", "broken")
    assert hook.follow.choices == (StageChoice("file", "lost", is_set=False), StageChoice("kind", "bare", equals=""))


def test_a_function_is_read(tmp_path: Path) -> None:
    (hook,) = read(tmp_path, {"name": '"a"', "queue": '"bull:x"', "call": '"shop.recovery:told"'}).hooks
    assert (hook.deployment, hook.call, hook.follow) == ("", "shop.recovery:told", None)
    assert hook.on == {HookEvent.RECOVERED}


@pytest.mark.parametrize("key", ["name", "queue", "database", "table", "id", "stage", "from", "to"])
def test_what_a_row_needs_is_missed_by_its_key(tmp_path: Path, key: str) -> None:
    assert problems(tmp_path, without(key)) == [f"hooks[1].{key}"]


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("name", '"No Name"', "hooks[1].name"),
        ("on", '["gone"]', "hooks[1].on"),
        ("on", "[]", "hooks[1].on"),
        ("queue", '"elsewhere/bull:x"', "hooks"),
        ("database", '"other"', "hooks[1].database"),
        ("table", "'imports\"; DROP TABLE x'", "hooks[1].table"),
        ("table", '"a.b.c"', "hooks[1].table"),
        ("id", '"a.b"', "hooks[1].id"),
        ("stage", '"sta`ge"', "hooks[1].stage"),
        ("path", '"import..id"', "hooks[1].path"),
        ("to", '"importing"', "hooks[1].from"),
        ("failed", '"importing"', "hooks[1].from"),
        ("call", '"a:b"', "hooks[1].database"),
        ("colour", '"red"', "hooks[1].colour"),
    ],
)
def test_a_slip_is_told(tmp_path: Path, key: str, value: str, where: str) -> None:
    assert where in problems(tmp_path, ROW | {key: value})


@pytest.mark.parametrize("call", ["told", "a.b", "a b:c", "a:b.c", ":x"])
def test_what_is_no_function_is_told(tmp_path: Path, call: str) -> None:
    assert problems(tmp_path, {"name": '"a"', "queue": '"q"', "call": f'"{call}"'}) == ["hooks[1].call"]


@pytest.mark.parametrize(
    ("choice", "key"),
    [
        ('to = "x"\nis = "set"', "column"),
        ('column = "c"\nis = "set"', "to"),
        ('column = "c"\nto = "x"', "is"),
        ('column = "c"\nto = "x"\nis = "there"', "is"),
        ('column = "c"\nto = "x"\nis = "set"\nequals = "y"', "is"),
        ('column = \'c"c\'\nto = "x"\nis = "set"', "column"),
    ],
)
def test_a_choice_that_is_not_clear_is_told(tmp_path: Path, choice: str, key: str) -> None:
    assert problems(tmp_path, ROW, f"[[hooks.choose]]\n{choice}\n") == [f"hooks[1].choose[1].{key}"]


def test_two_hooks_of_one_name_are_told(tmp_path: Path) -> None:
    again = "[[hooks]]\n" + "".join(f"{key} = {value}\n" for key, value in ROW.items())
    assert problems(tmp_path, ROW, again) == ["hooks[2].name"]
