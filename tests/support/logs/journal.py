"""A journal for tests: systemd's own where its tools are installed, else a stand-in for them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

_TOOLS = "/usr/lib/systemd:/lib/systemd:/usr/bin:/bin"
_STAND_IN = Path(__file__).with_name("journalctl.py")


def remote() -> str | None:
    """What makes a journal of entries."""
    return shutil.which("systemd-journal-remote") or shutil.which("systemd-journal-remote", path=_TOOLS)


class Journal:
    """`write` appends an entry. `bin` is the directory whose `journalctl` reads them."""

    def __init__(self, folder: Path, *, is_real: bool) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self._is_real = is_real
        self._written = 0
        self._entries = folder / ("journal" if is_real else "entries")
        if is_real:
            self._entries.mkdir()
            self._command(f'exec {shutil.which("journalctl")} --directory={self._entries} "$@"')
        else:
            self._entries.touch()
            self._command(f'JOURNAL={self._entries} exec {sys.executable} {_STAND_IN} "$@"')

    def write(
        self, message: str | bytes, unit: str = "worker.service", *, at: int | None = None, **fields: str
    ) -> None:
        """`at` in microseconds."""
        self._written += 1
        head = {
            "__REALTIME_TIMESTAMP": str(time.time_ns() // 1000 if at is None else at),
            "__MONOTONIC_TIMESTAMP": str(1_000_000 + self._written),
            "_BOOT_ID": "0123456789abcdef0123456789abcdef",
            "_SYSTEMD_UNIT": unit,
            "PRIORITY": "6",
            **fields,
        }
        (self._export if self._is_real else self._append)(head, message)

    def _export(self, head: dict[str, str], message: str | bytes) -> None:
        body = message.encode() if isinstance(message, str) else message
        text = "".join(f"{name}={value}\n" for name, value in head.items()).encode()
        entry = text + b"MESSAGE\n" + len(body).to_bytes(8, "little") + body + b"\n\n"
        program = remote()
        assert program is not None
        command = [program, f"--output={self._entries}/made.journal", "-"]
        subprocess.run(command, input=entry, check=True, capture_output=True)

    def _append(self, head: dict[str, str], message: str | bytes) -> None:
        told = message if isinstance(message, str) and message.isprintable() else list(_bytes(message))
        with self._entries.open("ab") as file:
            file.write(json.dumps({**head, "MESSAGE": told}).encode() + b"\n")

    def _command(self, line: str) -> None:
        path = self.bin / "journalctl"
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)


def _bytes(message: str | bytes) -> bytes:
    return message.encode() if isinstance(message, str) else message
