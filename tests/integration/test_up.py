"""`manage.py up`: one command brings everything, one Ctrl-C ends it, and nothing is left behind."""

from __future__ import annotations

import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.running import Up
from tests.stores import Store
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
PASSWORD = "a long enough sentence"

Start = Callable[..., Up]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start an `up` in a new directory, or in one of an earlier `up`."""
    started: list[Up] = []

    def up(environ: Mapping[str, str] | None = None, *, directory: Path | None = None) -> Up:
        started.append(Up(directory or Path(tempfile.mkdtemp(prefix="up-")), environ))
        return started[-1]

    yield up
    for one in started:
        one.close()


@pytest.fixture
def watched(valkey: Store) -> Mapping[str, str]:
    """The environment of somebody who has a Redis; starts quicker than the demo, too."""
    return {"UNSTALL_REDIS_URL": valkey.url}


def test_it_serves_and_its_one_link_makes_the_first_admin(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    link = up.ready()
    with up.visit() as visitor:
        assert visitor.get("/queues").url.path.startswith("/login")
        page = visitor.get(link)
        assert page.status_code == 200
        form = {"username": "ada", "password": PASSWORD}
        form["csrfmiddlewaretoken"] = visitor.cookies["unstall-csrf"]
        visitor.post(link, data=form, headers={"Referer": link})
        assert visitor.get("/queues").url.path == "/queues"
    assert up.said.count("http://") == 1


def test_all_is_quiet_when_all_is_well(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    up.ready()
    up.end()
    assert not [line for line in up.lines if " | " in line], up.said


def test_the_data_directory_is_for_its_owner_alone(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    up.ready()
    assert stat.S_IMODE(up.directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_ends_all_in_order(start: Start, watched: Mapping[str, str], number: signal.Signals) -> None:
    up = start(watched)
    up.ready()
    assert _names(up) >= {"web", "scheduler", "monitor", "valkey"}
    assert up.end(number) == 0
    assert up.others() == []
    assert "killed" not in up.said, up.said
    assert not (up.directory / "valkey.sock").exists()


def test_a_second_signal_ends_all_at_once(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    up.ready()
    for process in _found(up, "web"):  # it would not listen to the first one for a while
        process.suspend()
    up.process.send_signal(signal.SIGINT)
    until(lambda: "Ending" in up.said)
    up.process.send_signal(signal.SIGINT)
    assert up.wait(8) == 1  # sooner than the ten seconds that a process may take
    until(lambda: up.others() == [], 8)


def test_nothing_outlives_an_up_that_was_killed(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    up.ready()
    up.process.kill()
    until(lambda: up.others() == [], 30)


def test_it_starts_again_at_once_after_it_was_killed(start: Start, watched: Mapping[str, str]) -> None:
    first = start(watched)
    first.ready()
    first.process.kill()
    second = start(watched, directory=first.directory)
    assert second.ready()


def test_a_process_that_dies_comes_back(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    up.ready()
    (web,) = _found(up, "web")
    web.kill()
    until(lambda: [found.pid for found in _found(up, "web")] not in ([], [web.pid]), 30)
    until(lambda: _serves(up), 30)
    assert "web       | was killed by signal 9; starting it again in 1 s" in up.lines


def test_the_state_survives_a_restart(start: Start, watched: Mapping[str, str]) -> None:
    first = start(watched)
    first.ready()
    first.end()
    assert (first.directory / "valkey.rdb").stat().st_size > 0
    second = start(watched, directory=first.directory)
    assert second.ready()


def test_a_taken_port_is_said_with_what_to_set(start: Start, watched: Mapping[str, str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        up = start({**watched, "UNSTALL_BIND": f"127.0.0.1:{port}"})
        assert up.wait() == 2
    assert f"UNSTALL_BIND=127.0.0.1:{port + 1}" in up.said
    assert "Traceback" not in up.said
    assert up.others() == []


def test_a_second_up_in_one_directory_is_told_who_is_there(start: Start, watched: Mapping[str, str]) -> None:
    first = start(watched)
    first.ready()
    second = start(watched, directory=first.directory)
    assert second.wait() == 2
    assert f"is in use by process {first.process.pid}" in second.said


def test_every_problem_of_the_configuration_is_told_at_once(start: Start) -> None:
    up = start({"UNSTALL_REDIS_URL": "http://nonsense", "UNSTALL_DEBUG": "perhaps"})
    assert up.wait() != 0
    assert "UNSTALL_REDIS_URL" in up.said
    assert "UNSTALL_DEBUG" in up.said
    assert up.others() == []


def test_a_socket_path_that_is_too_long_for_the_kernel_is_no_problem(
    start: Start, watched: Mapping[str, str], tmp_path: Path
) -> None:
    long = tmp_path / ("d" * 120)
    long.mkdir()
    up = start(watched, directory=long)
    assert up.ready()
    assert up.end() == 0


def test_a_redis_that_is_watched_gets_no_write(start: Start, valkey: Store) -> None:
    valkey.client.rpush("bull:mail:wait", "1")
    valkey.client.set("bull:mail:id", 1)
    valkey.client.hset("bull:mail:1", mapping={"name": "send", "data": "{}", "opts": "{}", "timestamp": "1"})
    valkey.client.config_resetstat()
    up = start({"UNSTALL_REDIS_URL": valkey.url})
    up.ready()
    before = valkey.client.info("commandstats")
    until(lambda: _calls(valkey) > _total(before) + 20, 40, "some more looks at it")
    assert valkey.client.dbsize() == 3
    used = {name.removeprefix("cmdstat_") for name in valkey.client.info("commandstats")}
    assert used.isdisjoint(_writing(valkey)), used


def test_a_command_beside_it_sees_what_the_pages_see(start: Start) -> None:
    up = start()
    up.ready()
    until(lambda: "demo:emails" in up.shell("queues").stdout, 20, "the demo's queues are there")
    up.end()
    assert not (up.directory / "up.json").exists()
    alone = up.shell("queues")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "No deployment is configured" in alone.stderr


def _writing(store: Store) -> set[str]:
    """The commands that the server itself counts as writes."""
    return set(store.client.acl_cat("write"))


def _calls(store: Store) -> int:
    return _total(store.client.info("commandstats"))


def _total(statistics: Mapping[str, Mapping[str, int]]) -> int:
    return sum(entry["calls"] for entry in statistics.values())


def _serves(up: Up) -> bool:
    with up.visit() as visitor:
        try:
            return visitor.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False


def _names(up: Up) -> set[str]:
    return {name for name in ("web", "scheduler", "monitor", "valkey") if _found(up, name)}


def _found(up: Up, name: str) -> list[psutil.Process]:
    return [process for process in up.others() if _is(process, name)]


def _is(process: psutil.Process, name: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return words[-1:] == [name] or (name == "valkey" and "valkey-server" in " ".join(words[:1]))
