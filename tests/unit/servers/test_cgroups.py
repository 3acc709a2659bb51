"""How much of the machine the kernel lets us use, from trees of cgroups as both versions show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recovery.monitor.cgroups import Cgroups, Quota

OTHER = 1  # a process that is not ours


class Tree:
    """A /proc/self and what is mounted as /sys/fs/cgroup."""

    def __init__(self, top: Path) -> None:
        self.own, self.root = top / "self", top / "cgroup"
        self.own.mkdir()
        self.root.mkdir()

    def mounted(self, *rows: tuple[str, str, str]) -> None:
        """Of each: directory, root, and controllers; no controllers is version 2."""
        self.own.joinpath("mountinfo").write_text(
            "25 30 0:23 / /proc rw - proc proc rw\n"
            + "".join(
                f"30 25 0:26 {root} {self.root / place} rw - {f'cgroup x rw,{names}' if names else 'cgroup2 x rw'}\n"
                for place, root, names in rows
            )
        )

    def belongs(self, text: str) -> None:
        self.own.joinpath("cgroup").write_text(text)

    def level(self, path: str, pids: tuple[int, ...] = (), **files: str) -> Path:
        level = self.root / path
        level.mkdir(parents=True, exist_ok=True)
        level.joinpath("cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        for name, text in files.items():
            level.joinpath(name.replace("__", ".")).write_text(f"{text}\n")
        return level

    def quota(self) -> Quota | None:
        return Cgroups.find(self.own).quota()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.mounted(("", "/", ""))
    return made


def test_the_smallest_of_our_own_and_those_above_counts(tree: Tree) -> None:
    tree.belongs("0::/a/b/c\n")
    used = "usage_usec 2500000\nuser_usec 1"
    tree.level("a", cpu__max="150000 100000", cpu__stat=used)
    tree.level("a/b", cpu__max="max 100000", cpu__stat="usage_usec 1")
    tree.level("a/b/c", (os.getpid(), OTHER), cpu__max="800000 100000", cpu__stat="usage_usec 2")
    assert tree.quota() == Quota(str(tree.root / "a"), 1.5, 2.5)


def test_no_limit_is_none(tree: Tree) -> None:
    tree.belongs("0::/a\n")
    tree.level("a", (os.getpid(), OTHER), cpu__max="max 100000", cpu__stat="usage_usec 2")
    assert tree.quota() is None


def test_a_limit_on_the_monitor_alone_is_not_the_workers(tree: Tree) -> None:
    tree.belongs("0::/system.slice/unstall-monitor.service\n")
    own = "system.slice/unstall-monitor.service"
    tree.level(own, (os.getpid(),), cpu__max="10000 100000", cpu__stat="usage_usec 1")
    tree.level("system.slice", cpu__max="200000 100000", cpu__stat="usage_usec 7000000")
    tree.level("system.slice/workers.service", (OTHER,), cpu__max="50000 100000")
    assert tree.quota() == Quota(str(tree.root / "system.slice"), 2.0, 7.0)


@pytest.mark.parametrize("told", ["/../../elsewhere", "/kubepods/pod7/x"])
def test_a_container_that_sees_only_itself_is_read_where_it_is_mounted(tree: Tree, told: str) -> None:
    tree.belongs(f"0::{told}\n")
    tree.level("", (os.getpid(), OTHER), cpu__max="50000 100000", cpu__stat="usage_usec 1000000")
    assert tree.quota() == Quota(str(tree.root), 0.5, 1.0)
    tree.level("", (os.getpid(),))
    assert tree.quota() is None  # nobody else lives in it


def test_version_1_keeps_limit_and_use_apart(tree: Tree) -> None:
    tree.mounted(("cpu", "/docker/x", "cpu"), ("cpuacct", "/docker/x", "cpuacct"), ("unified", "/", ""))
    tree.belongs("4:cpu:/docker/x/inner\n3:cpuacct:/docker/x/inner\n0::/\n")
    tree.level("cpu", cpu__cfs_quota_us="250000", cpu__cfs_period_us="100000")
    tree.level("cpu/inner", (os.getpid(), OTHER), cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    account = tree.level("cpuacct", cpuacct__usage="3000000000")
    tree.level("cpuacct/inner", cpuacct__usage="1")
    assert tree.quota() == Quota(str(account), 2.5, 3.0)


def test_what_cannot_be_read_is_no_limit(tree: Tree) -> None:
    tree.belongs("0::/a\n")
    assert tree.quota() is None
    tree.level("", (os.getpid(), OTHER), cpu__max="100000 100000", cpu__stat="nonsense")
    assert tree.quota() is None
    assert Cgroups.find(tree.own / "missing").quota() is None
