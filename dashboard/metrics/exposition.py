"""Writes families of metrics in the text format of Prometheus or as OpenMetrics.

prometheus_client writes a thousand queues in 170 ms, because each line is an object and a dictionary before it is text.
Here a line is text from the beginning. Content negotiation and the metrics of the process are the library's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.exposition import choose_encoder

_TOTAL = "_total"


class MetricsFormat(StrEnum):
    TEXT = "text"
    OPEN = "openmetrics"

    @classmethod
    def of(cls, accept: str) -> tuple[MetricsFormat, str]:
        """Returns the format that the scraper prefers, and its Content-Type."""
        try:
            _, content_type = choose_encoder(accept)
        except TypeError:  # it compares a version that is no number
            _, content_type = choose_encoder("")
        return (cls.OPEN if "openmetrics" in content_type else cls.TEXT), content_type


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Metric family.

    `kind`: gauge, counter, histogram, unknown. The unit ends the name; the lines of a counter end in _total.
    """

    name: str
    help: str
    kind: str = "gauge"
    unit: str = ""

    @property
    def line(self) -> str:
        """Name with which the lines of the family begin."""
        return self.name + (_TOTAL if self.kind == "counter" else "")

    def of(self, labels: str, value: float) -> str:
        """Returns one line; `labels` is already formatted and escaped."""
        return f"{self.line}{{{labels}}} {value}\n" if labels else f"{self.line} {value}\n"

    def head(self, dialect: MetricsFormat) -> str:
        if dialect is MetricsFormat.TEXT:
            kind = "untyped" if self.kind == "unknown" else self.kind
            return f"# HELP {self.line} {self.help}\n# TYPE {self.line} {kind}\n"
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n{unit}"


Lines = tuple[MetricFamily, Iterable[str]]


def render_families(families: Iterable[Lines], dialect: MetricsFormat) -> Iterator[str]:
    """Yields each family as one text, so that not all are held in memory at once.

    A value that is not known has no line, and a family without lines is left out.
    """
    for family, lines in families:
        if told := "".join(lines):
            yield family.head(dialect) + told
