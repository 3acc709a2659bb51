"""Writes the families of the idempotency keys, as the Lua script counts them; every web process reports the same."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.metrics.exposition import Lines, MetricFamily
from dashboard.metrics.labels import format_labels
from dashboard.metrics.scrape_input import ScrapeInput

OUTCOMES = ("won", "refused", "renewed", "completed", "released", "late", "full", "forgotten")

_DIGITS = 19  # of the largest count

CALLS = MetricFamily(
    "unstall_idempotency_steps",
    "Idempotency key operations by outcome; refused, late and full changed nothing.",
    "counter",
)
REPLACED = MetricFamily("unstall_idempotency_replaced", "Expired claims that another client has taken over.", "counter")
KEYS = MetricFamily("unstall_idempotency_keys", "Idempotency keys stored.")
MOST = MetricFamily("unstall_idempotency_keys_limit", "Limit of idempotency keys; at the limit claims are refused.")
BYTES = MetricFamily("unstall_idempotency_results_bytes", "Stored results of idempotency keys.", unit="bytes")


def families(picture: ScrapeInput) -> Iterator[Lines]:
    """Yields the families; none if no key was ever claimed."""
    packed = picture.image.packed
    if not packed.idempotency:
        return
    written = ((name.decode("ascii", "replace"), value) for name, value in packed.idempotency.items())
    told = {name: value for name, value in written if value.isdigit() and len(value) <= _DIGITS}
    yield CALLS, [CALLS.of(format_labels(outcome=name), int(told.get(name, 0))) for name in OUTCOMES]
    yield REPLACED, (REPLACED.of("", int(told.get("replaced", 0))),)
    if not picture.health.error:
        yield KEYS, (KEYS.of("", packed.idempotency_keys),)
        yield MOST, (MOST.of("", picture.config.idempotency.keys),)
        yield BYTES, (BYTES.of("", int(told.get("bytes", 0))),)
