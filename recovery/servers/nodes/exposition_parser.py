"""Parses the page of a node_exporter: only the few metric families that are needed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from recovery.domain.servers.node_exporter import CORES, FAMILIES, NodeReading, Sample, read_samples

_NEEDED = re.compile(
    rb"^(?:" + b"|".join(sorted(name.encode() for name in FAMILIES)) + rb")[ {][^\n]{1,2000}$", re.MULTILINE
)
# More lines than the largest machines have were made up to keep us busy.
_LINES = 20_000


class NotNodeExporter(ValueError):
    """The page is not one of a node_exporter; the text says what is wrong with it."""


def parse_exposition(page: bytes, disk: str) -> NodeReading:
    """Returns the values of one page. Raises NoNode."""
    lines = [found.group() for found, _ in zip(_NEEDED.finditer(page), range(_LINES + 1), strict=False)]
    if len(lines) > _LINES:
        raise NotNodeExporter(f"it has more than {_LINES:,} lines of cores and disks")
    try:
        found = read_samples(_samples(b"\n".join(lines).decode("utf-8", "replace") + "\n"), disk)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise NotNodeExporter("it cannot be read: a line is not in the format of node_exporter") from error
    if not found.cores:
        raise NotNodeExporter(f"it does not report {CORES}: this is not a node_exporter, or its cpu collector is off")
    return found


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
