"""Names as labels: two that differ never look the same, whatever bytes they hold, and none is endless."""

from __future__ import annotations

from hashlib import sha256

from recovery.domain.refs import QueueRef, raw, shown, slug

LONGEST = 200  # characters: Prometheus keeps each of them for as long as it keeps anything
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def label(name: str) -> str:
    """The name itself when every character of it can be seen; else as it stands in addresses of pages.

    A name with a ~ is written that way too, so that none can be made to look like another one's.
    """
    told = name if "~" not in name and name.isprintable() and shown(name) == name else slug(name)
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 17]}~{sha256(raw(name)).hexdigest()[:16]}"


def labelled(**labels: str) -> str:
    """`a="x",b="y"`, as it is written."""
    return ",".join(f'{name}="{label(value).translate(_ESCAPES)}"' for name, value in labels.items())


def of_queue(ref: QueueRef) -> str:
    return labelled(deployment=ref.deployment, queue=ref.base)


def of_library(ref: QueueRef) -> str:
    """As the library's own exporter names a queue, and what else tells two of that name apart."""
    prefix, _, name = ref.base.rpartition(":")
    return labelled(deployment=ref.deployment, prefix=prefix, queue=name)
