"""The one exception tree. Raised in the engine, caught at three places: backend, scanner run, web edge.

UnstallError
├── ConfigError            the configuration cannot be used; holds every problem at once
├── StoreError             a store did not answer as it should; `target` never holds a password
│   ├── Unreachable        refused, reset, no such host, hung up
│   ├── TimedOut           accepted, and then silence
│   ├── AccessDenied       wrong password, or an ACL that is too small (`command` says for what)
│   ├── TlsMismatch        TLS on one side only, or a certificate that does not fit
│   ├── NotReady           LOADING, MASTERDOWN, CLUSTERDOWN: it will answer later
│   ├── ReadOnlyStore      a write met a replica
│   ├── StatementRefused   a database took a statement for wrong: no such table, a constraint; nothing was done
│   ├── WrongType          under a queue's key is kept what no library keeps there
│   ├── OversizedAnswer    a key of a queue holds more than is ever read
│   └── Garbled            an answer of the wrong shape
├── Missing                what was asked for is not there (any more)
│   ├── DeploymentMissing
│   ├── QueueMissing
│   ├── JobMissing
│   └── ServerMissing
├── Unsupported            this flavour or version cannot do it; the text says why
├── BadOrder               an order that says too little or too much to be carried out: no reason, no job
├── Illegible              a text that somebody gave cannot be read; `line` says where
├── Forbidden              whoever asks has not the right
├── Fenced                 another scheduler leads, or another installation acts, so nothing was done
├── NotApart               what must not stand beside queues would, so nothing was done
├── NotRecorded            the audit could not be written, so nothing was done
└── NotDelivered           a message did not arrive, or may not have; the text says why
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class UnstallError(Exception):
    """Anything we raise on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the configuration: where, what, and what would be right."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem} {self.remedy}"


class ConfigError(UnstallError):
    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class StoreError(UnstallError):
    """`target` is the address as a person may see it; `advice`, else the kind's own, says what to look at first."""

    advice = "Check the store's own log."

    def __init__(self, target: str, reason: str, *, command: str = "", advice: str = "") -> None:
        self.target = target
        self.reason = reason
        self.command = command
        if advice:
            self.advice = advice
        super().__init__(f"{target}: {reason}")


class Unreachable(StoreError):
    advice = "Is it running, and are host and port right? A firewall or a wrong network causes the same error."


class TimedOut(StoreError):
    advice = "It accepts connections but does not answer: a long script, swapping, or a stopped process."


class AccessDenied(StoreError):
    advice = "Check user and password, and what the ACL grants (docs/redis-acl.md lists the minimum)."


class TlsMismatch(StoreError):
    advice = "Use rediss:// where the server speaks TLS, redis:// where it does not; check the certificate's name."


class NotReady(StoreError):
    advice = "It is loading its data, or lost its master. It usually recovers by itself."


class WritesRefused(StoreError):
    """It answers, and what is read is true; but it takes nothing."""

    advice = "Is it full (maxmemory), or can it not write to its disk? Free space, or raise the limit."


class ReadOnlyStore(WritesRefused):
    advice = "This is a replica. Point the URL at the master, or use Sentinel."


class StatementRefused(StoreError):
    advice = "Do the columns and values in [[tables]] fit the table, its constraints and its triggers?"


class WrongType(StoreError):
    advice = "Another program uses the same names: give the queue, or that program, another prefix."


class OversizedAnswer(StoreError):
    advice = (
        "The named key holds more than any library writes there. Find the program that wrote it, and delete the key."
    )


class Garbled(StoreError):
    advice = "Is this really a Redis or a Valkey? A proxy in between may not support the command."


class Missing(UnstallError):
    """What was asked for is not there (any more)."""


class DeploymentMissing(Missing):
    pass


class QueueMissing(Missing):
    pass


class JobMissing(Missing):
    pass


class ServerMissing(Missing):
    pass


class Unsupported(UnstallError):
    """This flavour or version cannot do it; the text says why."""


class BadOrder(UnstallError):
    """An order that cannot be carried out as it is written; the text says what is wrong with it."""


class Illegible(UnstallError):
    """A text that was pasted or uploaded cannot be taken in; `line` from 1, 0 where it is about the whole."""

    def __init__(self, name: str, reason: str, *, line: int = 0) -> None:
        self.name = name
        self.line = line
        self.reason = reason
        where = f"{name}, line {line}" if line else name
        super().__init__(f"{where}: {reason}")


class Forbidden(UnstallError):
    """Whoever asks has not the right; the text says which right it takes."""


class Fenced(UnstallError):
    """A script met a later epoch than its own, or another installation that holds the queue, and wrote nothing.

    `met`: that epoch, or the name of that installation.
    `results`: what came of each job of the order, one each, when scripts before that one had done their part; empty
    when nothing was done at all.
    """

    def __init__(self, met: int | str, results: tuple[Any, ...] = ()) -> None:
        self.met = met
        self.results = results
        if isinstance(met, int):
            super().__init__(f"Another scheduler is the leader (epoch {met}).")
        else:
            super().__init__(f"Another console acts on this queue (installation {met[:8]}).")


class NotApart(UnstallError):
    """The state store is the database of some queues, so nothing was done; the text says of which."""


class NotRecorded(UnstallError):
    """The audit could not be written, so nothing was done."""


class NotDelivered(UnstallError):
    """A message did not reach its channel. `may_have`: nobody can tell. `retry`: seconds the other side asks for."""

    def __init__(self, reason: str, *, may_have: bool = False, retry: float = 0.0) -> None:
        self.may_have = may_have
        self.retry = retry
        super().__init__(reason)
