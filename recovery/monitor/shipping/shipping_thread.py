"""Runs log shipping in its own thread, so that a store that does not answer delays no sample."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath

from recovery import config
from recovery.monitor.shipping import formats
from recovery.monitor.shipping.file_patterns import FilePattern
from recovery.monitor.shipping.file_watcher import FileWatcher, Say
from recovery.monitor.shipping.journal import Journal
from recovery.monitor.shipping.settings import ShippingSettings
from recovery.monitor.shipping.shipper import Shipper
from recovery.monitor.shipping.stream_writer import LogStreamWriter
from recovery.monitor.store_clock import StoreClock
from recovery.shared_clock import steady
from recovery.stores.state import sync_client

AGAIN = 60.0  # seconds after which shipping restarts after an unexpected error
_ENDING = 3.0  # seconds that a turn has to end


class ShippingThread:
    """Thread that ships logs, started at once. Whatever fails in it, the monitor goes on sampling."""

    def __init__(self, make: Callable[[], Shipper], say: Say) -> None:
        self._make, self._say = make, say
        self._shipper: Shipper | None = make()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipping", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join(_ENDING)

    def _run(self) -> None:
        wait = 0.0
        while not self._ending.wait(wait):
            wait = self._turn()
        self._close()

    def _turn(self) -> float:
        try:
            self._shipper = self._shipper or self._make()
            return self._shipper.turn(steady())
        except Exception as error:  # noqa: BLE001 -- see above
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__} in {PurePath(where.filename).name}, line {where.lineno}"
            self._say(f"log shipping failed and restarts in {AGAIN:g} s: {said}")
            self._close()
            return AGAIN

    def _close(self) -> None:
        if self._shipper:
            self._shipper.close()
            self._shipper = None


def make_shipper(
    chosen: ShippingSettings, server: str, environ: Mapping[str, str], times: StoreClock, say: Say
) -> Shipper:
    """Returns a shipper for the configured state store; raises ConfigError when there is none."""
    store = sync_client.open_client(sync_client.state_deployment(config.load(environ)))
    depot = LogStreamWriter(store, server, chosen.keep_bytes, chosen.keep_ms)
    journal = Journal(chosen.units, server, say) if chosen.units else None
    return Shipper(FileWatcher(list(_patterns(chosen)), server, say), journal, depot, times, say)


def _patterns(chosen: ShippingSettings) -> Iterator[FilePattern]:
    yield from (FilePattern(formats.FILE, glob) for glob in chosen.files)
    if chosen.docker:
        yield FilePattern(formats.DOCKER, f"{chosen.docker}/*/*-json.log")
