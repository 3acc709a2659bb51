"""Chooses the kinds that a test runs with in the gate: another choice for each seed.

Many tests run once for each generation of a library, each store, each database, each look or each time zone.
`--sample SEED` keeps one of each kind for a test, and of the libraries one Bull and one BullMQ; which one depends on
the seed and on the test, so one run meets all kinds, and a few runs meet all of them in each test. Without it
everything runs.
"""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

import pytest

_BULL = {"bull3", "bull4"}
_BULLMQ = {"bullmq3", "bullmq4", "bullmq5", "bullmq6"}
_STORES = {"valkey", "redis"}
_DATABASES = {"sqlite", "postgresql", "mariadb"}
_LOOKS = {"light-1280", "dark-360", "light-1280-plain"}
_ZONES = {"America/New_York", "Asia/Kolkata"}
_KINDS = {
    "bull": _BULL,
    "bullmq": _BULLMQ,
    "store": _STORES,
    "database": _DATABASES,
    "look": _LOOKS,
    "zone": _ZONES,
}
_FAMILIES = {kind: family for family, kinds in _KINDS.items() for kind in kinds}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, default=None, metavar="SEED", help="one kind for each test, by this seed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("sample")
    if seed is None:
        return
    kept = sample(items, seed)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seed = config.getoption("sample")
    if seed is not None:
        terminalreporter.write_line(f"Kinds were sampled: SEED={seed} repeats this choice, `make test-all` runs all.")


def sample(items: list[pytest.Item], seed: int) -> set[pytest.Item]:
    """The items to run: those without kinds, and one of each group that differs in its kinds alone."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[_group(item)].append(item)
    return {alike[(seed + crc32(name.encode())) % len(alike)] for name, alike in groups.items()}


def _group(item: pytest.Item) -> str:
    """The test's name, and of each parameter its family, or its number where it is no kind."""
    given = getattr(item, "callspec", None)
    if given is None or item.get_closest_marker("pure"):
        return item.nodeid
    name = item.nodeid.removesuffix(f"[{given.id}]")
    parts = (f"{key}={_FAMILIES.get(str(value), given.indices[key])}" for key, value in given.params.items())
    return f"{name}[{' '.join(parts)}]"
