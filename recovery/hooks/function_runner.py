"""Calls functions of the application, `module:name`, each in its own thread: one that hangs delays only itself."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from django.db import connections

from recovery.domain.hooks.types import HookPayload
from recovery.domain.redaction import redact

log = logging.getLogger(__name__)

_SAID = 200  # characters of its own words
CALL_TIMEOUT = 10.0  # seconds for one call


class HookFailed(Exception):
    """The hook could not be carried out, or its function raised; the text says what happened."""


class _Call(threading.Thread):
    """Daemon thread of one call, so that a function that never returns keeps no process alive."""

    def __init__(self, function: Callable[[HookPayload], Any], told: HookPayload, name: str) -> None:
        super().__init__(name=f"hook {name}", daemon=True)
        self._function = function
        self._told = told
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._function(self._told)
        except BaseException as error:  # noqa: BLE001 -- foreign code: whatever it raises is its caller's to tell
            self.error = error
        finally:
            connections.close_all()  # of this thread


class HookFunctionRunner:
    """Calls functions by their configured path, at most one call of each at any time."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._busy: dict[str, _Call] = {}

    def is_busy(self, written: str) -> bool:
        """Returns True while an earlier call of this function has not returned."""
        busy = self._busy.get(written)
        return busy is not None and busy.is_alive()

    def enter(self, written: str, told: HookPayload) -> bool:
        """Calls the function and waits for it; returns False while an earlier call is running. Raises Failed."""
        if self.is_busy(written):
            return False
        call = _Call(_found(written), told, written)
        self._busy[written] = call
        call.start()
        call.join(self._patience)
        if call.is_alive():
            raise HookFailed(f"{written} has not returned within {self._patience:g} s.")
        if call.error is not None:
            log.debug("%s failed", written, exc_info=call.error)
            said = redact.text(str(call.error))[:_SAID]
            raise HookFailed(f"{written} raised {type(call.error).__name__}: {said}".rstrip(": "))
        return True


def _found(written: str) -> Callable[[HookPayload], Any]:
    module, _, name = written.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise HookFailed(f"{written} cannot be imported: {type(error).__name__}.") from error
    if not callable(found):
        raise HookFailed(f"{written} is not a function.")
    return found  # type: ignore[no-any-return] # whatever the application has there
