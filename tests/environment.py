"""The environment every test runs in: nothing of the developer's own, loaded before Django's settings are read.

It is a plugin (`-p tests.environment`) because pytest-django imports the settings before any conftest.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import certifi
import pytest

from tests.support.stores.keys import SECRET_KEY

_FOREIGN = ("UNSTALL_", "DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PYTHON")
_OWN = "UNSTALL_DATA_DIR"
_END = "-----END CERTIFICATE-----\n"


def _clean() -> Path:
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        del os.environ[name]
    directory = Path(tempfile.mkdtemp(prefix="unstall-tests-"))
    os.environ[_OWN] = str(directory)
    os.environ["UNSTALL_SECRET_KEY"] = SECRET_KEY
    # Static files from their sources, whatever `collectstatic` once made here.
    os.environ["UNSTALL_STATIC_DIR"] = str(directory / "static")
    # Otherwise an unstall.toml in the working directory would be read.
    configuration = directory / "unstall.toml"
    configuration.touch()
    os.environ["UNSTALL_CONFIG"] = str(configuration)
    # Nobody speaks to another machine here, and to read all authorities takes 20 ms for each client of HTTP.
    authorities = Path(certifi.where()).read_text(encoding="utf-8")
    authority = directory / "authority.pem"
    authority.write_text(authorities[: authorities.index(_END) + len(_END)], encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(authority)
    return directory


_directory = _clean()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(_directory, ignore_errors=True)
