"""SQL databases and the job tables in them, as frozen values of [[databases]] and [[tables]]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from recovery.domain.jobs import JobState

Value = str | int  # of a state column: a text, an enum's label, or a whole number


class Engine(StrEnum):
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"  # and MariaDB
    SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Database:
    """A SQL database: a deployment whose queues are job tables. `path` is the file of a SQLite database, absolute."""

    name: str
    label: str
    engine: Engine
    url: str = field(repr=False)
    host: str = ""
    port: int = 0
    path: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    read_only: bool = False
    timeout: float = 2.0

    @property
    def is_postgresql(self) -> bool:
        return self.engine is Engine.POSTGRESQL

    @property
    def target(self) -> str:
        """Address as a person may see it: no password, no options."""
        if self.engine is Engine.SQLITE:
            return f"sqlite:///{self.path}"
        user = f"{self.username}@" if self.username else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.engine}://{user}{host}{f':{self.port}' if self.port else ''}/{self.path}"


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Names of the columns of a job table. "": there is none."""

    id: str = "id"
    state: str = "state"
    name: str = ""
    attempts: str = ""
    max_attempts: str = ""
    last_error: str = ""
    queued_at: str = ""
    started_at: str = ""
    finished_at: str = ""
    lease_until: str = ""
    heartbeat: str = ""
    owner: str = ""
    data: str = ""

    @property
    def used(self) -> tuple[str, ...]:
        """Names of all columns that there are, each once."""
        named = (getattr(self, role) for role in self.__slots__)
        return tuple(dict.fromkeys(name for name in named if name))


@dataclass(frozen=True, slots=True)
class TableStates:
    """Values of the state column. The first of each is the one that is written."""

    queued: tuple[Value, ...] = ("queued",)
    running: tuple[Value, ...] = ("running",)
    done: tuple[Value, ...] = ("done",)
    failed: tuple[Value, ...] = ("failed",)

    def of(self, state: JobState) -> tuple[Value, ...]:
        """Returns the values of a state; () for a state that rows do not have."""
        return _VALUES[state](self) if state in _VALUES else ()

    def named(self, value: object) -> JobState:
        """Returns the state of a value; UNKNOWN for one that is not configured: such rows are never touched."""
        said = _text(value)
        found = (state for state in _VALUES if any(_text(known) == said for known in self.of(state)))
        return next(found, JobState.UNKNOWN)


def _text(value: object) -> str:
    """Returns a value as text, without blanks at its end: columns of a fixed width have them, some as bytes."""
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).rstrip(" ")


_VALUES = {
    JobState.WAITING: lambda states: states.queued,
    JobState.ACTIVE: lambda states: states.running,
    JobState.COMPLETED: lambda states: states.done,
    JobState.FAILED: lambda states: states.failed,
}


@dataclass(frozen=True, slots=True)
class JobTable:
    """A job table, as a queue: `name` is its base. Limits are in ms; `age_limit` None: a row may run for any time."""

    database: str
    name: str
    table: str  # as the database knows it, perhaps with its schema before a dot
    columns: TableColumns = TableColumns()
    states: TableStates = TableStates()
    attempts_limit: int = 3  # where no column says it
    lease_grace: int = 5_000
    heartbeat_limit: int = 60_000
    age_limit: int | None = None
    timezone: str = "UTC"  # of times that are kept without one

    @property
    def has_proof(self) -> bool:
        """True if its workers show, row by row, that they are alive."""
        return bool(self.columns.lease_until or self.columns.heartbeat)
