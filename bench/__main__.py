"""`python -m bench [--quick] [--minutes N] [NAME…]`: runs, prints the table, writes JSON to bench/results/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from bench import (
    actions,
    bulk,
    distance,
    end_to_end,
    failed_page,
    faults,
    gate,
    idempotency,
    log_streams,
    log_way,
    logs_search,
    measure,
    metrics,
    monitor,
    n8n_truth,
    overview,
    passes,
    recovery,
    shipping,
    size,
    snapshot,
    soak,
    stage,
    streams,
    viewers,
)
from bench.measure import Result

MISSED = 1
NO_PEER = 3


def main() -> int:
    asked = _parser().parse_args()
    benches: dict[str, Callable[[], Result]] = {
        "snapshot": lambda: snapshot.run(quick=asked.quick),
        "viewers": lambda: viewers.run(quick=asked.quick),
        "overview": lambda: overview.run(quick=asked.quick),
        "failed_page": lambda: failed_page.run(quick=asked.quick),
        "orphans": lambda: actions.run_orphans(quick=asked.quick),
        "failed_retried": lambda: actions.run_failed(quick=asked.quick),
        "bulk": lambda: bulk.run(quick=asked.quick),
        "bulk-many": lambda: bulk.run_many(quick=asked.quick),
        "passes": lambda: passes.run(quick=asked.quick),
        "size": lambda: size.run(quick=asked.quick),
        "recovery": lambda: recovery.run(quick=asked.quick),
        "distance": lambda: distance.run(quick=asked.quick),
        "end_to_end": lambda: end_to_end.run(quick=asked.quick, minutes=asked.minutes),
        "faults": lambda: faults.run(quick=asked.quick, only=asked.only),
        "soak": lambda: soak.run(quick=asked.quick, minutes=asked.minutes),
        "monitor": lambda: monitor.run(quick=asked.quick),
        "shipping": lambda: shipping.run(quick=asked.quick),
        "gate": lambda: gate.run(quick=asked.quick),
        "idempotency": lambda: idempotency.run(quick=asked.quick),
        "metrics": lambda: metrics.run(quick=asked.quick),
        "log_streams": lambda: log_streams.run(quick=asked.quick),
        "log_way": lambda: log_way.run(quick=asked.quick),
        "logs-search": lambda: logs_search.run(quick=asked.quick),
        "n8n_truth": lambda: n8n_truth.run(quick=asked.quick),
        "streams": lambda: streams.run(quick=asked.quick, minutes=asked.minutes),
    }
    unknown = set(asked.names) - set(benches)
    if unknown:
        _parser().error(f"unknown: {', '.join(sorted(unknown))}. There are: {', '.join(benches)}")
    stage.raise_file_limit()
    results = []
    for name in asked.names or benches:
        print(f"… {name}", file=sys.stderr, flush=True)
        results.append(benches[name]())
    path = measure.write(results, quick=asked.quick)
    print(measure.table(results))
    print(f"\nWritten to {path}", file=sys.stderr)
    return 0 if all(result.held for result in results) else MISSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run; all without")
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it works, not to publish")
    parser.add_argument("--only", default="", metavar="WORDS", help="of the faults, those whose name has these words")
    parser.add_argument(
        "--minutes",
        type=float,
        help="how long the live tabs stay open (default 10, quick 0.5), or workers are killed (30, quick 2)",
    )
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except stage.NoPeer as missing:
        print(missing, file=sys.stderr)
        sys.exit(NO_PEER)
