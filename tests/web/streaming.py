"""A web process for streams alone, over a state store: nobody reads the queues."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store


def web_over(state: Store, limits: Mapping[str, object] | None = None) -> WebProcess:
    """Use as a context. `limits`: see WebProcess."""
    queues = state.url.removesuffix("/0") + "/1"
    return WebProcess({"UNSTALL_STATE_URL": state.url, "UNSTALL_REDIS_URL": queues}, limits)
