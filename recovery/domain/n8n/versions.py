"""Versions of n8n, as a person or an image tag writes them."""

from __future__ import annotations

import re

Version = tuple[int, int, int]

NEWEST: Version = (2, 41, 1)  # the newest whose sources the table of variables was read from
_OPEN = 10**6  # `2` and `1.111` name the newest of their line
_WRITTEN = re.compile(r"v?(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?(?:[-+].{0,40})?")


def parse(written: str) -> Version | None:
    """Parses `1.123.5`, `2`, `v1.111`, `2.0.0-rc.1`; None for `latest` and whatever else names no version."""
    found = _WRITTEN.fullmatch(written.strip())
    if found is None:
        return None
    major, minor, patch = (int(part) if part else _OPEN for part in found.groups())
    return major, minor, patch


def version_of_image(image: str) -> Version | None:
    """Returns the version in an image's tag: `docker.n8n.io/n8nio/n8n:1.123.5@sha256:…`."""
    name = image.partition("@")[0].rpartition("/")[2]
    return parse(name.partition(":")[2])


def text(version: Version) -> str:
    return ".".join("x" if part == _OPEN else str(part) for part in version)
