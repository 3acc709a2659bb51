"""Threads that are there from the start, and memory that goes back."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from recovery.processes import malloc
from recovery.stores import thread_pool
from tests.support.processes.web_process import ROOT, environ_of

FEW = 10  # arenas of a MB: before Django is loaded

# A heap that is full of small things and then of few: every thousandth stays, so that no MB of it is empty.
_HEAP = """
import psutil
from recovery.processes import malloc
size = lambda: psutil.Process().memory_info().rss
before = size()
held = [bytes(80) for _ in range(800_000)]
full = size()
held = held[::1000]
malloc.trim()
print(full - before, size() - before)
"""


def test_all_threads_are_there_before_anything_is_asked() -> None:
    executor = thread_pool.start_pool(3, "counted")
    try:
        assert sum(thread.name.startswith("counted") for thread in threading.enumerate()) == 3
        for _ in range(30):
            executor.submit(threading.get_ident).result(10)
        assert sum(thread.name.startswith("counted") for thread in threading.enumerate()) == 3
    finally:
        executor.shutdown()


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(not malloc.trim(), reason="the C library gives nothing back")
def test_memory_goes_back_although_here_and_there_something_stays() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _HEAP],
        env=malloc.ENVIRON,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    full, left = map(int, ran.stdout.split())
    assert full > 80 * 800_000
    assert left < full / 10


_CHOSEN = (
    "import os; from recovery.processes import malloc; print(os.getpid(), end=' '); malloc.use_libc_malloc(); "
    "print('goes on')"
)


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(not malloc.trim(), reason="the C library gives nothing back")
@pytest.mark.parametrize(("chosen", "starts"), [({}, 2), ({"PYTHONMALLOC": "pymalloc"}, 1)], ids=["none", "one"])
def test_a_process_starts_anew_under_its_number_unless_somebody_chose_an_allocator(
    chosen: dict[str, str], starts: int
) -> None:
    ran = subprocess.run(
        [sys.executable, "-u", "-c", _CHOSEN], env=chosen, capture_output=True, text=True, timeout=60, check=True
    )
    *numbers, told, on = ran.stdout.split()
    assert (told, on) == ("goes", "on")
    assert len(numbers) == starts
    assert len(set(numbers)) == 1


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(not malloc.trim(), reason="the C library gives nothing back")
@pytest.mark.parametrize(("command", "is_pythons_own"), [("web", False), ("scheduler", True)])
def test_the_web_process_alone_takes_the_c_librarys(tmp_path: Path, command: str, *, is_pythons_own: bool) -> None:
    ran = subprocess.run(
        [sys.executable, "manage.py", command, "--help"],
        env=environ_of(tmp_path, {"PYTHONMALLOCSTATS": "1"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    arenas = re.findall(r"# arenas highwater mark += +(\d+)", ran.stderr)  # told at the end, and with each new one
    assert (int(arenas[-1]) > FEW) is is_pythons_own
