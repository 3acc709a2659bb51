"""Turns names into label values: different names stay different, whatever bytes they hold, and each is bounded."""

from __future__ import annotations

from hashlib import sha256

from recovery.domain.identifiers import QueueRef, encode_name, printable, slug

LONGEST = 200  # characters: Prometheus keeps each of them for as long as it keeps anything
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def label(name: str) -> str:
    """Returns the name if all its characters are printable, else its slug, as page URLs have it.

    A name with a ~ becomes a slug too, so that no name can imitate the slug of another.
    """
    told = name if "~" not in name and name.isprintable() and printable(name) == name else slug(name)
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 17]}~{sha256(encode_name(name)).hexdigest()[:16]}"


def format_labels(**labels: str) -> str:
    """Returns the labels as `a="x",b="y"`, escaped."""
    return ",".join(f'{name}="{label(value).translate(_ESCAPES)}"' for name, value in labels.items())


def queue_labels(ref: QueueRef) -> str:
    return format_labels(deployment=ref.deployment, queue=ref.base)


def library_queue_labels(ref: QueueRef) -> str:
    """Returns the queue's name as BullMQ's own exporter reports it, with deployment and prefix to make it unique."""
    prefix, _, name = ref.base.rpartition(":")
    return format_labels(deployment=ref.deployment, prefix=prefix, queue=name)
