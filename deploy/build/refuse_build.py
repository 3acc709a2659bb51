"""The build backend of pyproject.toml: Unstall runs from its directory, and `pip install .` is told so."""

from __future__ import annotations

import sys

HOW = (
    "Unstall is not installed as a package: it runs from its directory. `make setup` makes .venv there; see README.md."
)


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    sys.exit(HOW)


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel
build_wheel = build_sdist = build_editable = get_requires_for_build_wheel
