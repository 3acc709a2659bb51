"""Wires to the tests' own stores, by URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from recovery.config import Deployment, load
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import open_wire


@contextmanager
def wired(url: str, **settings: object) -> Iterator[StoreClient]:
    """A wire to this URL with settings of a [[deployments]] table, closed afterwards."""
    wire = open_wire(deployment(url, **settings))
    try:
        yield wire
    finally:
        wire.close()


def deployment(url: str, **settings: object) -> Deployment:
    """As the configuration reads it from a file."""
    lines = [f"{key} = {_toml(value)}" for key, value in {"name": "main", "url": url, **settings}.items()]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "unstall.toml"
        path.write_text("[[deployments]]\n" + "\n".join(lines) + "\n")
        return load({}, directory=Path(folder)).deployments[0]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else f"'{value}'"
