"""Children: none outlives its parent, each ends in order, a dead one comes back, one directory has one owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recovery.processes.child import Child, ChildCommand
from recovery.processes.directory_lock import DirectoryLocked, lock_directory
from recovery.processes.listen_address import ListenAddress
from recovery.processes.supervisor import LONGEST_PAUSE, STEADY_AFTER, ChildMisconfigured, Supervisor
from tests.support.processes.processes import end, free_port, spawn
from tests.support.waiting import until

# Children that do nothing until somebody ends them, which is what is tested; an alarm ends them if nobody does.
SLEEPER = [sys.executable, "-c", "import signal; signal.alarm(600); signal.pause()"]
DEAF = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.alarm(600)
print('deaf', file=sys.stderr, flush=True)
signal.pause()
"""
STARTS_ANOTHER = f"""
import subprocess, sys
another = subprocess.Popen({SLEEPER!r})
print(another.pid, file=sys.stderr, flush=True)
another.wait()
"""


class Heard:
    """What children said, in order."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def supervisor(heard: Heard) -> Iterator[tuple[Supervisor, list[float]]]:
    """With a clock that stands still until the test moves it."""
    now = [1000.0]
    made = Supervisor(heard, clock=lambda: now[0])
    yield made, now
    made.stop(tuple(made.pids))


PARENT = f"""
    import signal
    from recovery.processes.child import Child, ChildCommand
    signal.alarm(600)
    child = Child(ChildCommand("child", {SLEEPER!r}), print)
    print(child.pid, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("leash", ["kernel", "pipe"])
def test_a_child_does_not_outlive_a_parent_that_was_killed(leash: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT)],
        stdout=subprocess.PIPE,
        env={**os.environ, "LEASH": leash},
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    until(lambda: "signal.pause" in " ".join(psutil.Process(child).cmdline()[:3]), what="the leash became the command")
    group = [found.pid for found in psutil.process_iter() if _group(found.pid) == child]
    parent.kill()
    parent.wait()
    until(lambda: not any(_runs(pid) for pid in group), what=f"the end of {group}")


def test_what_a_child_says_on_stderr_comes_out_under_its_name(heard: Heard) -> None:
    child = Child(ChildCommand("web", [sys.executable, "-c", "import sys; sys.stderr.write('one\\ntwo')"]), heard)
    until(lambda: child.ended() is not None)
    child.stop(1)
    assert heard.lines == [("web", "one"), ("web", "two")]


def test_a_child_that_does_not_listen_is_killed(heard: Heard) -> None:
    child = Child(ChildCommand("web", [sys.executable, "-c", DEAF]), heard)
    until(lambda: heard.lines)
    assert child.stop(0.2) is False
    assert not _runs(child.pid)


def test_what_a_child_started_itself_ends_with_it(heard: Heard) -> None:
    child = Child(ChildCommand("demo", [sys.executable, "-c", STARTS_ANOTHER]), heard)
    until(lambda: heard.lines)
    child.stop(5)
    until(lambda: not _runs(int(heard.lines[0][1])))


def test_a_command_that_is_not_there_says_so(heard: Heard) -> None:
    child = Child(ChildCommand("web", ["/nonexistent/program"]), heard)
    until(lambda: child.ended() == 1)
    child.stop(1)
    assert heard.lines == [("web", "/nonexistent/program: No such file or directory")]


def test_a_dead_child_comes_back_after_a_pause_that_grows(supervisor: tuple[Supervisor, list[float]]) -> None:
    keeper, now = supervisor
    keeper.start(ChildCommand("web", SLEEPER))
    pauses = []
    for _ in range(7):
        _kill_and_see_it(keeper)
        pause = 0
        while not keeper.pids:
            now[0] += 0.5
            pause += 0.5
            keeper.tend()
        pauses.append(pause)
    assert pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_child_that_was_steady_comes_back_at_once(supervisor: tuple[Supervisor, list[float]]) -> None:
    keeper, now = supervisor
    keeper.start(ChildCommand("web", SLEEPER))
    for _ in range(3):
        _kill_and_see_it(keeper)
        now[0] += LONGEST_PAUSE
        keeper.tend()
    now[0] += 10 * STEADY_AFTER
    _kill_and_see_it(keeper)
    now[0] += 1
    keeper.tend()
    assert list(keeper.pids) == ["web"]


def test_a_child_that_was_called_wrongly_is_not_tried_again(supervisor: tuple[Supervisor, list[float]]) -> None:
    keeper, _ = supervisor
    child = keeper.start(ChildCommand("web", [sys.executable, "-c", "raise SystemExit(2)"]))
    until(lambda: child.ended() is not None)
    with pytest.raises(ChildMisconfigured, match="web"):
        keeper.tend()


def test_a_directory_has_one_owner_and_says_who(tmp_path: Path) -> None:
    first = lock_directory(tmp_path / "lock", patience=0, given_up=_never)
    with pytest.raises(DirectoryLocked, match=str(os.getpid())):
        lock_directory(tmp_path / "lock", patience=0, given_up=_never)
    os.close(first)
    os.close(lock_directory(tmp_path / "lock", patience=0, given_up=_never))


def test_a_claim_lasts_as_long_as_the_child_that_inherited_it(tmp_path: Path, heard: Heard) -> None:
    mine = lock_directory(tmp_path / "lock", patience=0, given_up=_never)
    child = Child(ChildCommand("valkey", SLEEPER, inherits=(mine,)), heard)
    os.close(mine)
    with pytest.raises(DirectoryLocked):
        lock_directory(tmp_path / "lock", patience=0, given_up=_never)
    child.stop(5)
    os.close(lock_directory(tmp_path / "lock", patience=5, given_up=_never))


def test_a_taken_port_is_seen_before_anything_starts() -> None:
    address = ListenAddress("127.0.0.1", free_port())
    assert address.taken() == ""
    server = spawn([sys.executable, "-m", "http.server", "-b", address.host, str(address.port)])
    until(lambda: address.answers("/"))
    assert "in use" in address.taken()
    end(server)


@pytest.mark.parametrize("bind", ["8000", "host", "host:", "host:0", "host:99999", "host:http"])
def test_an_address_that_cannot_be_is_refused_with_a_sentence(bind: str) -> None:
    with pytest.raises(ValueError, match="Write host:port"):
        ListenAddress.parse(bind)


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        (":9000", "http://127.0.0.1:9000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("unix:/run/web.sock", "http://localhost"),
    ],
)
def test_an_address_is_shown_as_this_machine_reaches_it(bind: str, url: str) -> None:
    assert ListenAddress.parse(bind).url == url


def _kill_and_see_it(keeper: Supervisor) -> None:
    os.killpg(keeper.pids["web"], signal.SIGKILL)
    until(lambda: (keeper.tend(), not keeper.pids)[1])


def _never(_seconds: float) -> bool:
    return False


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None
