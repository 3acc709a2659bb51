"""An application whose functions recovery hooks call; what they were told is kept here."""

from __future__ import annotations

import threading

from recovery.domain.hooks.types import HookPayload

heard: list[HookPayload] = []
released = threading.Event()


def hear(told: HookPayload) -> None:
    heard.append(told)


def refuse(told: HookPayload) -> None:
    heard.append(told)
    raise ValueError("no such import, password=hunter2")


def hang(told: HookPayload) -> None:
    heard.append(told)
    released.wait(60)


def leave(told: HookPayload) -> None:
    heard.append(told)
    raise SystemExit(3)


nothing = "not a function"
