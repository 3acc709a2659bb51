"""Links to log files: who may write to a folder of logs cannot have the monitor ship other files of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recovery.monitor.shipping.file_tail import LINKS, open_trusted

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
AS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="only root may give a link to somebody else")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secrets" / "shadow"
    path.parent.mkdir()
    path.write_text("root:hash")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path


def link(path: Path, to: Path | str, owner: int = NOBODY) -> Path:
    path.symlink_to(to)
    if IS_ROOT:
        os.lchown(path, owner, owner)
    return path


def read(path: Path) -> str:
    file = open_trusted(str(path))
    try:
        return os.read(file, 100).decode()
    finally:
        os.close(file)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_plain_file_is_opened(secret: Path) -> None:
    assert read(secret) == "root:hash"


@AS_ROOT
def test_a_link_of_somebody_else_is_refused(folder: Path, secret: Path) -> None:
    for made in (link(folder / "app.log", secret), link(folder / "b.log", "../secrets/shadow")):
        with pytest.raises(PermissionError, match="belongs to another user"):
            read(made)


@AS_ROOT
def test_a_folder_that_is_a_link_of_somebody_else_is_refused(folder: Path, secret: Path) -> None:
    link(folder / "deep", secret.parent)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read(folder / "deep" / "shadow")


@AS_ROOT
def test_a_trusted_link_lends_its_trust_to_no_other(folder: Path, secret: Path) -> None:
    link(folder / "own", secret)
    link(folder / "app.log", folder / "own", owner=0)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read(folder / "app.log")


@AS_ROOT
def test_a_link_to_a_file_of_its_own_owner_is_followed(folder: Path, secret: Path) -> None:
    os.chown(secret, NOBODY, NOBODY)
    assert read(link(folder / "app.log", secret)) == "root:hash"


def test_a_link_of_root_or_of_our_own_is_followed(folder: Path, secret: Path) -> None:
    """As Kubernetes makes them: from /var/log/containers to the pod, and on to the runtime."""
    link(folder / "pod", "../secrets", owner=os.geteuid())
    link(folder / "app.log", "pod/./../secrets/shadow", owner=os.geteuid())
    assert read(folder / "app.log") == "root:hash"


def test_links_in_a_circle_and_folders_are_refused(folder: Path) -> None:
    link(folder / "a", folder / "b", owner=os.geteuid())
    link(folder / "b", folder / "a", owner=os.geteuid())
    before = open_files()
    for _ in range(LINKS):
        with pytest.raises(OSError, match="symbolic links"):
            read(folder / "a")
    with pytest.raises(FileNotFoundError):
        read(folder / "none")
    assert open_files() == before
