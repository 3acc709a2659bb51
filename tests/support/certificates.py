"""A certificate authority for one test run, and a server certificate for 127.0.0.1 and localhost."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def openssl() -> str | None:
    return shutil.which("openssl")


def issue(directory: Path) -> Path:
    """Write ca.crt, ca.key, server.crt and server.key."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _run(directory, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=tests")
    _run(directory, "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (directory / "names").write_text(_NAMES)
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    _run(directory, "x509", "-req", "-in", "server.csr", "-out", "server.crt", *signed)
    return directory


def _run(directory: Path, *words: str) -> None:
    subprocess.run([openssl() or "openssl", *words], cwd=directory, check=True, capture_output=True)
