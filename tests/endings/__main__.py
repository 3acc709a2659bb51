"""`python -m tests.endings [LIBRARY]… [--only ENDING]`: records them anew, about five minutes a library."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from tests.endings.libraries import BASE, Recorded, libraries
from tests.endings.recorder import Recorder
from tests.endings.scenarios import ENDINGS, LOCK, LOCKS, Stage
from tests.support.processes.fleet import Fleet
from tests.support.processes.processes import end, spawn
from tests.support.stores.stores import Store

FOLDER = Path(__file__).parents[1] / "golden" / "endings"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.endings")
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY")
    parser.add_argument("--only", choices=list(ENDINGS))
    asked = parser.parse_args(arguments)
    fleet = Fleet()
    try:
        known = libraries(fleet)
        for name in asked.libraries or known:
            for ending in [asked.only] if asked.only else ENDINGS:
                _write(known[name], ending, _record(known[name], ending))
                fleet.reset()
    finally:
        fleet.stop()


def _record(library: Recorded, ending: str) -> dict[str, Any]:
    with ExitStack() as stack:
        store = stack.enter_context(Store(options={"appendonly": "yes"}))
        state = stack.enter_context(Store())
        stack.enter_context(_monitor(state))
        stage = stack.enter_context(
            closing(Stage(library, LOCKS.get(ending, LOCK), store, Recorder(store, state), stack))
        )
        with stage.recorder as recorder:
            lost = ENDINGS[ending](stage)
            stage.settle(lost)
    return {"base": BASE, "flavour": list(library.flavour[:3]), "lost": lost, "looks": recorder.looks}


@contextmanager
def _monitor(state: Store) -> Iterator[None]:
    told = {
        "UNSTALL_STATE_URL": state.url,
        "UNSTALL_SERVER_ID": "eu-1",
        "UNSTALL_WORKER_PATTERNS": "driver.mjs,python_worker",
    }
    process = spawn([sys.executable, "-m", "recovery.monitor"], environ={**os.environ, **told})
    try:
        yield
    finally:
        end(process)


def _write(library: Recorded, ending: str, recorded: dict[str, Any]) -> None:
    """One line a look, so that a recording can be read."""
    FOLDER.mkdir(exist_ok=True)
    looks = ",\n".join(json.dumps(look, separators=(",", ":")) for look in recorded.pop("looks"))
    head = json.dumps(recorded)[:-1]
    path = FOLDER / f"{library.name}, {ending}.json"
    path.write_text(f'{head}, "looks": [\n{looks}\n]}}\n')
    sys.stdout.write(f"{path.name}: {path.stat().st_size:,} bytes\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
