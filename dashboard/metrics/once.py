"""The families of the ledger, as its script counts them in the state store: the same from every web process."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.metrics.labels import labelled
from dashboard.metrics.picture import Picture
from dashboard.metrics.text import Family, Lines

OUTCOMES = ("won", "refused", "renewed", "completed", "released", "late", "full", "forgotten")

CALLS = Family(
    "unstall_once_steps", "Steps of the ledger by what came of them; refused, late and full changed nothing.", "counter"
)
REPLACED = Family("unstall_once_replaced", "Claims that lapsed, and were won by the next claimer.", "counter")
KEYS = Family("unstall_once_keys", "Keys in the ledger.")
MOST = Family("unstall_once_keys_limit", "Keys that it may have; with as many, claims are refused.")
BYTES = Family("unstall_once_results_bytes", "Results that are kept.", unit="bytes")


def families(picture: Picture) -> Iterator[Lines]:
    """Nothing where nobody has ever claimed anything."""
    packed = picture.image.packed
    if not packed.once:
        return
    told = {name.decode("ascii", "replace"): value for name, value in packed.once.items() if value.isdigit()}
    yield CALLS, [CALLS.of(labelled(outcome=name), int(told.get(name, 0))) for name in OUTCOMES]
    yield REPLACED, (REPLACED.of("", int(told.get("replaced", 0))),)
    if not picture.health.error:
        yield KEYS, (KEYS.of("", packed.once_keys),)
        yield MOST, (MOST.of("", picture.config.once.keys),)
        yield BYTES, (BYTES.of("", int(told.get("bytes", 0))),)
