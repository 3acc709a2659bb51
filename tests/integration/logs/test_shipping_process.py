"""The real monitor with logs to ship: killed and restarted, stopped, cheap, and refusing what it cannot use."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from recovery.errors import ConfigError
from recovery.monitor.shipping import settings, shipping_thread
from tests.support.logs.shipping import Driven, append, monitor, offsets, started, texts
from tests.support.stores.stores import Store
from tests.support.waiting import until

MIB = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.touch()
    return path


def test_a_monitor_that_is_killed_and_restarted_loses_and_doubles_nothing(state_store: Store, log: Path) -> None:
    pattern = log.with_name("app.log*")  # also what is renamed while nobody is there
    with monitor(state_store, pattern):
        until(lambda: offsets(state_store), 30)
    chance, written = random.Random(7), 0
    for life in range(3):
        process = started(state_store, pattern)
        for part in range(20):
            append(log, *map(str, range(written, written + 50)))
            written += 50
            if chance.random() < 0.3:
                log.rename(log.with_name(f"app.log.{life}.{part}"))
                log.touch()
            if part == 15:
                before = len(texts(state_store))
                until(lambda: len(texts(state_store)) > before, 30)  # noqa: B023 -- called before it changes
        _kill(process)
    with monitor(state_store, pattern):
        until(lambda: len(texts(state_store)) >= written, 30)
    assert sorted(map(int, texts(state_store))) == list(range(written))


def test_it_ends_at_once_says_nothing_and_has_one_thread_more(state_store: Store, log: Path) -> None:
    with monitor(state_store, log) as process:
        until(lambda: offsets(state_store), 30)
        append(log, "one")
        until(lambda: texts(state_store) == ["one"], 30)
        seen = psutil.Process(process.pid)
        assert (seen.num_threads(), seen.memory_info().rss < 40 * MIB) == (2, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_shipping_that_fails_as_nobody_foresaw_begins_anew(
    state_store: Store, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping_thread, "AGAIN", 0.01)
    said: list[str] = []
    made = iter([_broken(), Driven(state_store, log).shipper])
    shipping = shipping_thread.ShippingThread(lambda: next(made), said.append)
    until(lambda: offsets(state_store), 30)
    append(log, "one")
    until(lambda: texts(state_store) == ["one"], 30)
    shipping.end()
    assert len(said) == 1
    assert "ZeroDivisionError in test_shipping_process.py" in said[0]


def test_all_that_is_wrong_with_the_settings_is_said_at_once() -> None:
    environ = {
        settings.FILES: "relative/*.log,/fine.log",
        settings.DOCKER: "containers",
        settings.JOURNAL: "--vacuum-size=1",
        settings.KEEP_MB: "0",
        settings.KEEP_HOURS: "many",
    }
    with pytest.raises(ConfigError) as raised:
        settings.read(environ)
    assert [problem.key for problem in raised.value.problems] == list(environ)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (settings.FILES, "/"),
        (settings.FILES, ",".join(["/a.log"] * 51)),
        (settings.DOCKER, "./containers"),
        (settings.JOURNAL, "a b"),
        (settings.KEEP_MB, "4097"),
        (settings.KEEP_MB, "1" * 5000),
        (settings.KEEP_MB, "١"),
        (settings.KEEP_HOURS, "-1"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings.read({name: value})
    assert [problem.key for problem in raised.value.problems] == [name]


def test_without_any_setting_nothing_is_shipped() -> None:
    assert not settings.read({}).is_wanted
    assert settings.read({settings.DOCKER: "/var/lib/docker/containers/"}).docker == "/var/lib/docker/containers"


def test_the_monitor_refuses_all_at_once(state_store: Store) -> None:
    process = started(state_store, "relative.log", keep_mb="x")
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 2
    assert b"UNSTALL_LOG_FILES: has a pattern that is not an absolute path." in said
    assert b"UNSTALL_LOG_KEEP_MB: is not such a number." in said


class _Broken:
    """Stands for what nobody foresees."""

    def turn(self, now: float) -> float:
        return now / 0

    def close(self) -> None:
        """It holds nothing."""


def _broken() -> Any:
    return _Broken()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()
