"""Reads the input of /tuning: texts, files, and what stands in none of them. Nothing of it is stored or shown again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.http import HttpRequest, QueryDict

from recovery.domain.n8n.versions import parse
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.tuning.timing import LOCK, STALLED_INTERVAL, WorkerTiming
from recovery.domain.tuning.worker_setup import TuningOptions
from recovery.errors import Illegible
from recovery.tuning.parsers.uploads import ALL_LIMIT, FILE_LIMIT, FILES_LIMIT, NAME_LIMIT, too_large
from recovery.tuning.parsers.yaml_source import duration

PASTED = "pasted"
LIBRARIES = (("", "n8n, from the files"), (QueueLibrary.BULL.value, "Bull"), (QueueLibrary.BULLMQ.value, "BullMQ"))
TIMES = (
    ("lock", "lockDuration", "30s"),
    ("renew", "lockRenewTime", "15s"),
    ("stalled", "stalledInterval", "30s"),
    ("shutdown", "Shutdown timeout after SIGTERM", "10s"),
)
_LONGEST = 40  # characters of a small field


class TuningInputTooLarge(Illegible):
    """Raised for input beyond the limits."""


@dataclass(frozen=True, slots=True)
class TuningFields:
    """Small fields of the form, as they were written."""

    library: str = ""
    version: str = ""
    worker: str = ""
    times: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, query: QueryDict) -> TuningFields:
        library = query.get("library", "")
        return cls(
            library if library in dict(LIBRARIES) else "",
            query.get("version", "")[:_LONGEST].strip(),
            query.get("worker", "")[:NAME_LIMIT].strip(),
            {name: query.get(name, "")[:_LONGEST].strip() for name, _, _ in TIMES},
        )

    def options(self) -> TuningOptions:
        """Parses the fields. Raises Illegible."""
        version = parse(self.version) if self.version else None
        if self.version and version is None:
            raise Illegible("n8n version", "write it as 1.123.5.")
        return TuningOptions(version, self._timing() if self.library else None, self.worker)

    def _timing(self) -> WorkerTiming:
        lock = self._time("lock") or LOCK
        interval = self._time("stalled")
        return WorkerTiming(
            library=QueueLibrary(self.library),
            lock=lock,
            renew=self._time("renew") or lock / 2,
            stalled_interval=STALLED_INTERVAL if interval is None else interval,
            shutdown=self._time("shutdown"),
        )

    def _time(self, name: str) -> float | None:
        written = self.times[name]
        value = duration(written) if written else None
        if written and value is None:
            raise Illegible(next(title for known, title, _ in TIMES if known == name), "write it as 30s, 500ms or 1m.")
        return value


def files(request: HttpRequest) -> Iterator[tuple[str, bytes]]:
    """Yields the pasted text and the files. Sizes are checked before anything is read. Raises TooLarge."""
    sent = request.FILES.getlist("files")
    pasted = request.POST.get("text", "").replace("\r\n", "\n").encode("utf-8", "replace")
    sizes = [len(pasted), *(one.size or 0 for one in sent)]
    if max(sizes) > FILE_LIMIT or sum(sizes) > ALL_LIMIT or len(sent) > FILES_LIMIT:
        raise TuningInputTooLarge("The input", too_large())
    if pasted.strip():
        yield PASTED, pasted
    for one in sent:
        yield one.name or "file", one.read()
