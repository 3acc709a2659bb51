"""`manage.py up`: one command brings everything, one Ctrl-C ends it, and nothing is left behind."""

from __future__ import annotations

import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import httpx
import psutil
import pytest

from tests.integration.running import Up
from tests.support.stores.stores import Store
from tests.support.waiting import until

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


# -- one life, from the first link to Ctrl-C, that several tests ask about


@dataclass(frozen=True, slots=True)
class Life:
    """What was seen of it. `first`, `last`: where a visitor came to, before and after the link."""

    up: Up
    first: str
    link_status: int
    last: str
    mode: int
    files: dict[str, int]  # and their modes, while it ran
    names: frozenset[str]
    used: frozenset[str]  # commands that the Redis that it watches was asked
    writes: frozenset[str]
    keys: int
    rival: Up  # a second one in the same directory
    beside: CompletedProcess[str]  # a command in a terminal that knows of no Redis
    elsewhere: CompletedProcess[str]  # and in one that knows of another database
    by_file: CompletedProcess[str]  # or of a file with its URL
    status: int
    others: int


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    with Store() as store, ExitStack() as stack:
        store.client.rpush("bull:mail:wait", "1")
        store.client.set("bull:mail:id", 1)
        store.client.hset("bull:mail:1", mapping={"name": "send", "data": "{}", "opts": "{}", "timestamp": "1"})
        store.client.config_resetstat()
        environ = {"UNSTALL_REDIS_URL": store.url}
        up = Up(Path(tempfile.mkdtemp(prefix="up-")), environ)
        stack.callback(up.close)
        first, status, last = _come_in(up, up.ready())
        rival = Up(up.directory, environ)
        stack.callback(rival.close)
        rival.wait()
        before = _calls(store)
        until(lambda: _calls(store) > before + 20, 40, "some more looks at it")
        seen = Life(
            up=up,
            first=first,
            link_status=status,
            last=last,
            mode=stat.S_IMODE(up.directory.stat().st_mode),
            files=_files(up.directory),
            names=frozenset(_names(up)),
            used=frozenset(name.removeprefix("cmdstat_") for name in store.client.info("commandstats")),
            writes=frozenset(_writing(store)),
            keys=store.client.dbsize(),
            rival=rival,
            beside=up.shell("queues", environ={}),
            elsewhere=up.shell("queues", environ={"DATABASE_URL": f"sqlite:///{up.directory}/other.sqlite3"}),
            by_file=up.shell("queues", environ={"DATABASE_URL_FILE": str(_file_with_another(up.directory))}),
            status=up.end(),
            others=len(up.others()),
        )
        yield seen


def _files(directory: Path) -> dict[str, int]:
    """What the product made there, and not this test."""
    found = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in directory.rglob("*") if path.is_file()}
    return {name: mode for name, mode in found.items() if name not in ("unstall.toml", "database-url")}


def _file_with_another(directory: Path) -> Path:
    file = directory / "database-url"
    file.write_text(f"sqlite:///{directory}/other.sqlite3")
    return file


def _come_in(up: Up, link: str) -> tuple[str, int, str]:
    with up.visit() as visitor:
        first = visitor.get("/queues").url.path
        page = visitor.get(link)
        form = {"username": "ada", "password": PASSWORD, "csrfmiddlewaretoken": visitor.cookies["unstall-csrf"]}
        visitor.post(link, data=form, headers={"Referer": link})
        return first, page.status_code, visitor.get("/queues").url.path


def test_it_serves_and_its_one_link_makes_the_first_admin(life: Life) -> None:
    assert life.first.startswith("/login")
    assert (life.link_status, life.last) == (200, "/queues")
    assert life.up.said.count("http://") == 1


def test_all_is_quiet_when_all_is_well(life: Life) -> None:
    assert not [line for line in life.up.lines if " | " in line], life.up.said


def test_the_data_directory_is_for_its_owner_alone(life: Life) -> None:
    assert life.mode == 0o700


def test_each_file_in_it_is_for_its_owner_alone(life: Life) -> None:
    files = life.files | _files(life.up.directory)
    assert set(files) >= {"unstall.sqlite3", "unstall.sqlite3-wal", "up.json", "valkey.rdb", "valkey.log"}
    violations = {name: oct(mode) for name, mode in files.items() if mode & 0o077}
    assert violations == {}


def test_a_redis_that_is_watched_gets_no_write(life: Life) -> None:
    assert life.keys == 3
    assert life.used.isdisjoint(life.writes), life.used & life.writes


def test_a_second_up_in_one_directory_is_told_who_is_there(life: Life) -> None:
    assert life.rival.process.returncode == 2
    assert f"is in use by process {life.up.process.pid}" in life.rival.said


def test_a_command_in_another_terminal_sees_what_the_pages_see(life: Life) -> None:
    assert "bull:mail" in life.beside.stdout, life.beside.stderr
    for other in (life.elsewhere, life.by_file):
        assert other.returncode == 2
        assert "DATABASE_URL: differs from" in other.stderr


def test_one_signal_ends_all_in_order(life: Life) -> None:
    assert life.names >= {"web", "scheduler", "monitor", "valkey"}
    assert (life.status, life.others) == (0, 0)
    assert "killed" not in life.up.said, life.up.said
    assert not (life.up.directory / "valkey.sock").exists()


# -- each with a life of its own


def test_the_state_survives_a_restart(start: Start, watched: Mapping[str, str]) -> None:
    first = start(watched)
    first.ready()
    assert first.end(signal.SIGHUP) == 0
    assert (first.directory / "valkey.rdb").stat().st_size > 0
    second = start(watched, directory=first.directory)
    assert second.ready()


def test_a_socket_path_that_is_too_long_for_the_kernel_is_no_problem(
    start: Start, watched: Mapping[str, str], tmp_path: Path
) -> None:
    long = tmp_path / ("d" * 120)
    long.mkdir()
    up = start(watched, directory=long)
    assert up.ready()
    assert up.end(signal.SIGTERM) == 0
    assert up.others() == []


def test_a_second_signal_ends_all_at_once(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    up.ready()
    for process in _found(up, "web"):  # it would not listen to the first one for a while
        process.suspend()
    up.process.send_signal(signal.SIGINT)
    until(lambda: "Stopping" in up.said)
    up.process.send_signal(signal.SIGINT)
    assert up.wait(8) == 1  # sooner than the ten seconds that a process may take
    until(lambda: up.others() == [], 8)


def test_one_that_was_killed_starts_again_at_once_and_nothing_outlives_it(
    start: Start, watched: Mapping[str, str]
) -> None:
    first = start(watched)
    first.ready()
    left = first.others()
    first.process.kill()
    second = start(watched, directory=first.directory)
    assert second.ready()
    until(lambda: not any(one.is_running() for one in left), 30)


def test_a_process_that_dies_comes_back(start: Start, watched: Mapping[str, str]) -> None:
    up = start(watched)
    up.ready()
    (web,) = _found(up, "web")
    web.kill()
    until(lambda: [found.pid for found in _found(up, "web")] not in ([], [web.pid]), 30)
    until(lambda: _serves(up), 30)
    assert "web       | was killed by signal 9; starting it again in 1 s" in up.lines


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


def test_every_problem_of_the_configuration_is_told_at_once(start: Start) -> None:
    up = start({"UNSTALL_REDIS_URL": "http://nonsense", "UNSTALL_DEBUG": "perhaps"})
    assert up.wait() != 0
    assert "UNSTALL_REDIS_URL" in up.said
    assert "UNSTALL_DEBUG" in up.said
    assert up.others() == []


def _writing(store: Store) -> set[str]:
    """The commands that the server itself counts as writes."""
    return set(store.client.acl_cat("write"))


def _calls(store: Store) -> int:
    return sum(entry["calls"] for entry in store.client.info("commandstats").values())


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
