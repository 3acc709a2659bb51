"""Selects the queues that a scanner can read now, and reports the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.queues.types import QueueSample, Snapshot


def readable_samples(snapshot: Snapshot, only: QueueRef | None, faults: list[str]) -> Iterator[QueueSample]:
    """Yields the readable queues, or the requested one. Adds a sentence to `faults` for what cannot be read."""
    away = {one.name: one.error for one in snapshot.deployments if one.error}
    chosen = [sample for sample in snapshot.queues if only in (None, sample.ref)]
    if only is not None and not chosen:
        faults.append(f"There is no queue {printable(str(only))}.")
    faults += _away(away, chosen)
    for sample in chosen:
        if sample.ref.deployment in away:
            continue
        if sample.error:
            faults.append(f"{printable(str(sample.ref))} cannot be read: {sample.error}.")
        else:
            yield sample


def _away(errors: dict[str, str], chosen: Iterable[QueueSample]) -> list[str]:
    """Returns one sentence for each unavailable deployment, however many queues it has."""
    names = dict.fromkeys(sample.ref.deployment for sample in chosen)
    return [f"{printable(name)} cannot be read: {errors[name]}." for name in names if name in errors]
