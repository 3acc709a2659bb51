"""Containers' logs as Docker's json-file driver writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.logs.shipping import SERVER, Driven, append, arrived, texts
from tests.support.stores.stores import Store

ID = "4f1c0b" + "0" * 58
MINUTE = 1714979280_000_000_000  # 2024-05-06T07:08


class Container:
    """What Docker keeps of one."""

    def __init__(self, root: Path, id: str = ID, **details: object) -> None:
        self.folder = root / id
        self.folder.mkdir()
        if details:
            (self.folder / "config.v2.json").write_text(json.dumps(details))
        self.log = self.folder / f"{id}-json.log"
        self.log.touch()

    def says(self, log: str, stream: str = "stdout", second: int = 0) -> None:
        line = {"log": log, "stream": stream, "time": f"2024-05-06T07:08:{second:02}.000000001Z"}
        append(self.log, json.dumps(line))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def mail(root: Path) -> Container:
    return Container(root, Name="/mail-worker", Config={"Image": "app:1.2", "Labels": {}})


@pytest.fixture
def shipping(state_store: Store, root: Path, mail: Container) -> Iterator[Driven]:
    made = Driven(state_store, docker=str(root))
    made.turn()
    yield made
    made.die()


def test_a_line_has_its_container_image_stream_and_time(shipping: Driven, state_store: Store, mail: Container) -> None:
    mail.says("sent\n", second=9)
    mail.says("refused\r\n", "stderr", 10)
    shipping.turn()
    out, err = arrived(state_store)
    own = {"server": SERVER, "source": "docker", "container": "mail-worker", "image": "app:1.2"}
    assert (out.text, out.at, out.labels) == (b"sent", MINUTE + 9 * 10**9 + 1, {**own, "stream": "stdout"})
    assert (err.text, err.at, err.labels) == (b"refused", MINUTE + 10 * 10**9 + 1, {**own, "stream": "stderr"})


def test_a_line_that_came_in_parts_is_one_line_also_across_a_restart(
    shipping: Driven, state_store: Store, root: Path, mail: Container
) -> None:
    mail.says("a" * 16384)
    mail.says("of the other stream\n", "stderr")
    shipping.turn()
    assert texts(state_store) == ["of the other stream"]
    shipping.die()
    again = Driven(state_store, docker=str(root))
    again.turn()
    mail.says("b" * 10)
    mail.says("the end\n")
    mail.says("next\n")
    again.turn()
    again.die()
    assert sorted(texts(state_store)) == sorted(["of the other stream", "a" * 16384 + "b" * 10 + "the end", "next"])


def test_a_line_of_a_megabyte_in_parts_is_cut(shipping: Driven, state_store: Store, mail: Container) -> None:
    for _ in range(64):
        mail.says("x" * 16384)
    mail.says("end\n")
    shipping.turn()
    (line,) = arrived(state_store)
    assert len(line.text) + line.left_out == (1 << 20) + 3
    assert len(line.text) < 64 * 1024


def test_a_new_container_without_details_is_named_by_its_id(shipping: Driven, state_store: Store, root: Path) -> None:
    Container(root, "ab" * 32).says("hello\n")
    shipping.turn()
    (line,) = arrived(state_store)
    assert line.labels["container"] == "ab" * 6
    assert "image" not in line.labels


def test_docker_s_rotation_and_what_is_not_its_json_lose_nothing(
    shipping: Driven, state_store: Store, mail: Container
) -> None:
    mail.says("one\n")
    mail.log.rename(f"{mail.log}.1")
    mail.says("two\n")
    append(mail.log, "not json", '{"log": 7}', '["log"]')
    shipping.turn()
    assert sorted(texts(state_store)) == sorted(["one", "two", "not json", '{"log": 7}', '["log"]'])


def test_a_container_that_was_removed_is_read_to_its_end(shipping: Driven, state_store: Store, mail: Container) -> None:
    mail.says("last words\n")
    for path in mail.folder.iterdir():
        path.unlink()
    mail.folder.rmdir()
    shipping.turn()
    assert texts(state_store) == ["last words"]
