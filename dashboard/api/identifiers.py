"""Converts names of Redis for the API: any bytes, as a slug that leads back to them and a label that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ninja import Path, Schema
from pydantic import Field, WithJsonSchema

from dashboard.live import state_cache
from recovery.domain.identifiers import JobRef, QueueRef, printable, unslug
from recovery.errors import JobMissing, QueueMissing
from recovery.reads.queues import job_lists
from recovery.reads.queues.job_lists import Queue

NAME_LIMIT = 6_000  # characters of a slug: a name of 2 KB, each byte escaped
_DEPLOYMENT = "[a-z0-9][a-z0-9_-]{0,39}"
_SLUG = "(~|([A-Za-z0-9_.:{}-]|~[0-9A-F]{2})+)"
SLUG = f"^{_SLUG}$"
OPTIONAL_SLUG = f"^{_SLUG}?$"
QUEUE = f"^{_DEPLOYMENT}/{_SLUG}$"
OPTIONAL_QUEUE = f"^({_DEPLOYMENT}/{_SLUG})?$"


# The document says what a name in an address looks like; a name that looks otherwise is missing (404), not invalid.
_Slug = Annotated[str, WithJsonSchema({"type": "string", "pattern": SLUG, "maxLength": NAME_LIMIT})]
Deployment = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": f"^{_DEPLOYMENT}$"}),
    Path(description="Name in the configuration."),
]
Base = Annotated[_Slug, Path(description="The id of the queue, as returned by the API.")]
JobId = Annotated[_Slug, Path(description="The id of the job, as returned by the API.")]
ServerId = Annotated[_Slug, Path(description="The id of the server, as returned by the API.")]


class QueueName(Schema):
    """A queue by its name."""

    deployment: str
    id: str = Field(
        description="The base as used in URLs: all bytes except letters, digits and _-.:{} are written as ~HH."
    )
    label: str = Field(description="The base in readable form.")

    @classmethod
    def of(cls, ref: QueueRef) -> QueueName:
        return cls(deployment=printable(ref.deployment), id=ref.slug, label=ref.label)


class JobName(Schema):
    """A job by its name."""

    queue: QueueName
    id: str
    label: str

    @classmethod
    def of(cls, ref: JobRef) -> JobName:
        return cls(queue=QueueName.of(ref.queue), id=ref.slug, label=ref.label)


def queue_ref(deployment: str, base: str) -> QueueRef:
    """Parses the name of a queue. Raises QueueMissing for what no name can be written as."""
    try:
        return QueueRef(deployment, unslug(base))
    except ValueError:
        raise QueueMissing(f"Queue {base} not found in the deployment {deployment}.") from None


def queue(deployment: str, base: str) -> Queue:
    return job_lists.locate(queue_ref(deployment, base), state_cache.newest_snapshot())


def job_id(written: str) -> str:
    """Parses the id of a job. Raises JobMissing for what no id can be written as."""
    try:
        return unslug(written)
    except ValueError:
        raise JobMissing(f"Job {written} not found.") from None


def readable(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what was stored as JSON, with every text in it fit to be read."""
    return {printable(name): _readable(part) for name, part in value.items()}


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_readable(part) for part in value]
    return readable(value) if isinstance(value, dict) else value
