"""A web process with two sources of lines: what monitors ship, and a Loki that answers when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Page

from tests.support.logs.log_writer import LogWriter
from tests.support.logs.loki_double import LokiDouble
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store

_SETTINGS = '[[logs]]\nname = "loki"\nlabel = "Loki"\nkind = "loki"\nurl = "{url}"\n'
_TEXTS = "(rows) => [...rows.querySelectorAll('.said')].map((one) => one.textContent)"


@dataclass(frozen=True, slots=True)
class LogSite:
    """No scheduler runs: the pages say so, and lines come all the same."""

    web: WebProcess
    state: Store
    loki: LokiDouble
    by_way_of: int = 0  # the port of a proxy in between

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.by_way_of or self.web.port}"

    def cookie(self, person: str) -> str:
        return self.web.cookies[person]

    def writer(self, server: str) -> LogWriter:
        """A test takes servers of its own, and looks at `/logs?label=server=…`."""
        return LogWriter(self.state, server)


@contextmanager
def log_site() -> Iterator[LogSite]:
    with Store() as state, LokiDouble() as loki:
        queues = state.url.removesuffix("/0") + "/1"  # nobody looks at them
        web = WebProcess({"UNSTALL_REDIS_URL": queues, "UNSTALL_STATE_URL": state.url})
        (web.directory / "unstall.toml").write_text(_SETTINGS.format(url=loki.url))
        with web:
            yield LogSite(web, state, loki)


def texts(page: Page) -> list[str]:
    """Of the lines on the page, as they stand."""
    found: list[str] = page.locator("[data-rows]").evaluate(_TEXTS)
    return found
