"""Reads the input of /tuning: texts, files, and what stands in none of them. Nothing of it is stored or shown again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.http import HttpRequest, QueryDict

from recovery.domain.counts import Library
from recovery.domain.tuning.setups import Options
from recovery.domain.tuning.timing import LOCK, STALLED_INTERVAL, Timing
from recovery.domain.tuning.versions import parse
from recovery.errors import Illegible
from recovery.reads.tuning.source import duration
from recovery.reads.tuning.texts import ALL_LIMIT, FILE_LIMIT, FILES_LIMIT, NAME_LIMIT, too_large

PASTED = "pasted"
LIBRARIES = (("", "n8n, from the files"), (Library.BULL.value, "Bull"), (Library.BULLMQ.value, "BullMQ"))
TIMES = (
    ("lock", "lockDuration", "30s"),
    ("renew", "lockRenewTime", "15s"),
    ("stalled", "stalledInterval", "30s"),
    ("shutdown", "Shutdown timeout after SIGTERM", "10s"),
)
_LONGEST = 40  # characters of a small field


class TooLarge(Illegible):
    """Raised for input beyond the limits."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Small fields of the form, as they were written."""

    library: str = ""
    version: str = ""
    worker: str = ""
    times: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, query: QueryDict) -> Asked:
        library = query.get("library", "")
        return cls(
            library if library in dict(LIBRARIES) else "",
            query.get("version", "")[:_LONGEST].strip(),
            query.get("worker", "")[:NAME_LIMIT].strip(),
            {name: query.get(name, "")[:_LONGEST].strip() for name, _, _ in TIMES},
        )

    def options(self) -> Options:
        """Parses the fields. Raises Illegible."""
        version = parse(self.version) if self.version else None
        if self.version and version is None:
            raise Illegible("n8n version", "write it as 1.123.5.")
        return Options(version, self._timing() if self.library else None, self.worker)

    def _timing(self) -> Timing:
        lock = self._time("lock") or LOCK
        interval = self._time("stalled")
        return Timing(
            library=Library(self.library),
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
        raise TooLarge("The input", too_large())
    if pasted.strip():
        yield PASTED, pasted
    for one in sent:
        yield one.name or "file", one.read()
