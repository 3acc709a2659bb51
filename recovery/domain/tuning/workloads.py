"""Contents of the deployment files: containers that may run workers, their autoscalers and stores, and the place of
each value in the text.

Values that may be secret never come here: of a variable that no rule reads only the name is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class WorkloadKind(StrEnum):
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"
    ENVIRONMENT = "environment"  # variables alone: how the process is started and stopped is unknown


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Span of a text, lines from 1 and columns from 0, the end exclusive. `wrap`: how a value is written there.

    `first` and `last`: the lines that hold nothing but this setting, so that it can be taken out; 0: there are none.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    wrap: str = "{}"
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class WorkloadSetting:
    """A setting. `value` "" with `is_hidden`: its value is not in the files. `place` None: it cannot be edited.

    `renames`: where its name stands.
    """

    name: str
    value: str = ""
    place: TextSpan | None = None
    renames: TextSpan | None = None
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class InsertPoint:
    """Point where lines can be added. `line` "{0}…{1}": how a name and its value are written. `head`: lines before
    them.

    `is_flow`: in brackets, behind what stands there; `after` and `indent` are the line and column of the closing one.
    """

    file: str
    after: int
    indent: int
    line: str
    head: tuple[str, ...] = ()
    is_flow: bool = False


@dataclass(frozen=True, slots=True)
class SpotNodes:
    """Nodes that a cloud may take back; a pod then has `notice` seconds. `is_certain` False: it only may run there."""

    cloud: str
    notice: float
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Workload:
    """A container. `grace` None: not configured, and `default_grace` holds; None too: the grace period is unknown.

    `pre_stop` None: a hook of unknown length runs. `is_probed` None: unknown.
    """

    name: str
    kind: WorkloadKind
    file: str
    line: int
    image: str = ""
    words: tuple[str, ...] = ()  # of its command
    settings: Mapping[str, WorkloadSetting] = field(default_factory=dict)
    grace: WorkloadSetting | None = None
    default_grace: float | None = None
    pre_stop: float | None = 0.0
    pre_stop_place: TextSpan | None = None
    is_probed: bool | None = None
    replicas: int | None = None
    variables: InsertPoint | None = None
    grace_room: InsertPoint | None = None
    pre_stop_room: InsertPoint | None = None
    missing: tuple[str, ...] = ()  # files and objects that it names and that were not given
    space: str = ""  # Kubernetes' namespace
    spot: SpotNodes | None = None

    @property
    def where(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True)
class ScaleDownPolicy:
    """One of `scaleDown.policies`: how many pods go within a period. "" and None: not configured."""

    kind: str = ""  # Pods or Percent
    value: float | None = None
    period: float | None = None
    kind_place: TextSpan | None = None
    value_place: TextSpan | None = None
    period_place: TextSpan | None = None


@dataclass(frozen=True, slots=True)
class ScalerListKey:
    """A list in Redis by whose length KEDA scales."""

    name: str
    place: TextSpan | None = None


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """An autoscaler. `window`: seconds of stabilization before it scales down; `policies`: how fast, as `select` says.

    Of KEDA: `cooldown`, seconds of quiet before the last pod goes; `keys`, the lists that it watches.
    """

    name: str
    target: str
    file: str
    line: int
    least: int | None = None
    most: int | None = None
    window: float | None = None
    window_place: TextSpan | None = None
    policies: tuple[ScaleDownPolicy, ...] = ()
    select: str = "Max"
    room: InsertPoint | None = None
    space: str = ""
    is_keda: bool = False
    cooldown: float | None = None
    least_place: TextSpan | None = None
    least_room: InsertPoint | None = None
    keys: tuple[ScalerListKey, ...] = ()

    def scales(self, workload: Workload) -> bool:
        return (self.target, self.space) == (workload.name.partition("/")[0], workload.space)


@dataclass(frozen=True, slots=True)
class EvictionSetting:
    """A Redis or Valkey whose eviction policy is configured in the files."""

    name: str
    setting: WorkloadSetting
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class DeploymentFiles:
    """All files that were given. `texts`: each file by its name; `remarks`: what could not be read, and why."""

    texts: Mapping[str, str] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = ()
    scalers: tuple[Autoscaler, ...] = ()
    policies: tuple[EvictionSetting, ...] = ()
    remarks: tuple[str, ...] = ()
