"""A kind of worker as it would run: its timing, and the configured settings that each part of it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recovery.domain.n8n.stalled_grace import error_after
from recovery.domain.n8n.versions import NEWEST, Version, text, version_of_image
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.time_units import SECOND
from recovery.domain.tuning import n8n_variables
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.workloads import Workload, WorkloadSetting

_MS = 1000.0
_BEYOND = 10**12  # larger than any setting of a queue


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """Statements of a person beside the files. `timing`: of workers whose options are set in their code."""

    version: Version | None = None
    timing: WorkerTiming | None = None
    workload: str = ""  # name of the service or container that runs the workers


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """A kind of worker. `version` None: not n8n. `is_assumed`: neither the image nor the person gave a version.
    `given`: the configured setting behind each part of the timing. `odd`: settings whose value is no number.
    """

    name: str
    application: str
    timing: WorkerTiming
    workload: Workload | None = None
    version: Version | None = None
    is_assumed: bool = False
    given: Mapping[str, WorkloadSetting] = field(default_factory=dict)
    odd: tuple[WorkloadSetting, ...] = ()

    @property
    def where(self) -> str:
        return self.workload.where if self.workload else self.name


def setups(workloads: tuple[Workload, ...], options: TuningOptions) -> tuple[WorkerSetup, ...]:
    """Returns a setup for each worker among the containers; if there is none, the one that the person described."""
    found = [setup for workload in workloads if (setup := _of(workload, options))]
    if not found and options.timing and not any(map(is_n8n, workloads)):
        alone = [workload for workload in workloads if not is_store(workload)]
        if len(alone) == 1:
            return (_plain(alone[0], options.timing),)
        return (
            WorkerSetup(f"{_label(options.timing.library)} worker", _label(options.timing.library), options.timing),
        )
    return tuple(found)


def is_n8n(workload: Workload) -> bool:
    name = workload.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    ours = any(key in n8n_variables.VARIABLES or key in n8n_variables.PHANTOMS for key in workload.settings)
    return name == "n8n" or "n8n" in workload.words[:1] or ours


def runs_jobs(workload: Workload) -> bool:
    """Returns True for a worker of n8n; variables alone count as one."""
    return "worker" in workload.words or (not workload.words and not workload.image)


def is_store(workload: Workload) -> bool:
    name = workload.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return name.startswith(("redis", "valkey", "postgres", "keydb", "dragonfly", "mysql", "mariadb", "traefik"))


def _of(workload: Workload, options: TuningOptions) -> WorkerSetup | None:
    if options.workload and workload.name != options.workload:
        return None
    if is_n8n(workload):
        return _n8n(workload, options) if runs_jobs(workload) or options.workload else None
    if options.timing and (options.workload or "worker" in workload.name.lower()) and not is_store(workload):
        return _plain(workload, options.timing)
    return None


def _label(library: QueueLibrary) -> str:
    return {QueueLibrary.BULL: "Bull", QueueLibrary.BULLMQ: "BullMQ"}.get(library, str(library))


def _plain(workload: Workload, timing: WorkerTiming) -> WorkerSetup:
    """Returns the setup of a worker that sets its options in code; how it is stopped comes from the files."""
    grace = seconds(workload.grace, workload.default_grace)
    stopped = replace(timing, pre_stop=_pause(workload), grace=timing.grace if grace is None else grace)
    given = {"grace": workload.grace} if workload.grace else {}
    return WorkerSetup(workload.name, _label(timing.library), stopped, workload, given=given)


def _n8n(workload: Workload, options: TuningOptions) -> WorkerSetup:
    tagged = version_of_image(workload.image)
    version = options.version or tagged or NEWEST
    is_assumed = not (options.version or tagged)
    usual, reading = n8n_variables.defaults(version), _Reading(workload.settings, version)
    lock = reading.of("lock", n8n_variables.LOCK, usual.lock, _MS)
    timing = WorkerTiming(
        library=QueueLibrary.BULL,
        lock=lock,
        renew=reading.of("renew", n8n_variables.RENEW, usual.renew, _MS) or lock / 2,  # Bull takes 0 as not set
        stalled_interval=reading.of("stalled_interval", n8n_variables.STALLED_INTERVAL, usual.stalled_interval, _MS),
        max_stalled=int(reading.of("max_stalled", n8n_variables.MAX_STALLED, float(usual.max_stalled))),
        shutdown=reading.shutdown(usual.shutdown),
        pre_stop=_pause(workload),
        grace=seconds(workload.grace, workload.default_grace),
        error_after=(error_after(version) or 0) / SECOND,
    )
    given = reading.given | ({"grace": workload.grace} if workload.grace else {})
    name = f"n8n {text(version)}" + (", assumed" if is_assumed else "")
    return WorkerSetup(workload.name, name, timing, workload, version, is_assumed, given, tuple(reading.odd))


def _pause(workload: Workload) -> float:
    """Returns the seconds of the preStop hook; 0 if its length is unknown."""
    return workload.pre_stop or 0.0


def seconds(setting: WorkloadSetting | None, otherwise: float | None) -> float | None:
    if setting is None:
        return otherwise
    return number(setting.value)


def number(written: str) -> float | None:
    """Parses a decimal as JavaScript's Number() does; None if it is none, or absurdly large."""
    try:
        value = float(written.strip() or "x")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < _BEYOND and "_" not in written else None


class _Reading:
    """Reads the variables of one container as one version of n8n does."""

    def __init__(self, settings: Mapping[str, WorkloadSetting], version: Version) -> None:
        self._settings = settings
        self._version = version
        self.given: dict[str, WorkloadSetting] = {}
        self.odd: list[WorkloadSetting] = []

    def of(self, part: str, name: str, usual: float, unit: float = 1.0) -> float:
        setting = self._settings.get(name)
        if setting is None or setting.is_hidden or not setting.value or not self._is_read(name):
            return usual
        value = number(setting.value)
        if value is None:
            self.odd.append(setting)
            return usual
        self.given[part] = setting
        return value / unit

    def shutdown(self, usual: float) -> float:
        """Returns the shutdown timeout; the old name counts where both are set."""
        old = self.of("shutdown", n8n_variables.OLD_SHUTDOWN, usual)
        if "shutdown" in self.given:
            return float(int(old))
        return self.of("shutdown", n8n_variables.SHUTDOWN, usual)

    def _is_read(self, name: str) -> bool:
        return n8n_variables.VARIABLES[name].covers(self._version)
