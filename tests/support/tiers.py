"""Sets the tier of each test by its folder and the fixtures it uses.

A pure test uses no store, database, library, browser or process. It carries the mark `pure`, and `make test-fast` runs
these alone. The mark is kept true while the test runs: a pure test that starts a process or opens a port fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

_PURE_FOLDERS = {"unit", "property", "house"}
# There, whatever starts a server or opens a database asks for one of these; a test that starts something by itself asks
# for `processes`.
_STORES = {"_servers", "serve", "_sentinel", "_cluster", "_databases", "our_database", "certificates"}
_DATABASE = {"db", "transactional_db", "django_db_setup"}
_LIBRARIES = {"fleet"}
_PROCESSES = {"processes", "browser"}
_NOT_PURE = _STORES | _DATABASE | _LIBRARIES | _PROCESSES

_REFUSED = {"subprocess.Popen", "os.fork", "socket.bind", "socket.connect"}

_running_pure: list[str] = []


@pytest.fixture(scope="session")
def processes() -> None:
    """For tests that start processes without one of the fixtures above."""


def pytest_configure() -> None:
    sys.addaudithook(_refuse)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if names & _LIBRARIES:
            item.add_marker("node")
        if "browser" in names:
            item.add_marker("browser")
        if _is_pure(item, names):
            item.add_marker("pure")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    if item.get_closest_marker("pure") is None:
        return (yield)
    _running_pure.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running_pure.pop()


def _is_pure(item: pytest.Item, names: set[str]) -> bool:
    if item.nodeid.split("/")[1] not in _PURE_FOLDERS or names & _NOT_PURE:
        return False
    return item.get_closest_marker("django_db") is None


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _running_pure and event in _REFUSED:
        raise AssertionError(f"{_running_pure[-1]}: {event} {arguments!r}, so it must use the fixture `processes`")
