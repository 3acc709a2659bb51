"""A file system of a few megabytes, to be filled. Only root may mount one."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CHUNK = bytes(1 << 16)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Skips, with the reason, where it cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    place = Path(tempfile.mkdtemp(prefix="unstall-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode:
        place.rmdir()
        pytest.skip("this machine lets nobody mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()


def fill(disk: Path) -> Path:
    """The file that takes what was left, to the last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(CHUNK)
    return filler
