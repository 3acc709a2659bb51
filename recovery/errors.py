"""Defines the one exception tree: raised in the engine, caught at three places: backend, scanner run, web edge.

UnstallError
├── ConfigError            the configuration cannot be used; holds every problem at once
├── StoreError             a store did not answer as it should; `target` never holds a password
│   ├── Unreachable        refused, reset, no such host, hung up
│   ├── TimedOut           it accepted the connection and did not answer
│   ├── AccessDenied       wrong password, or an ACL that is too small (`command` says for what)
│   ├── TlsMismatch        TLS on one side only, or a certificate that does not fit
│   ├── NotReady           LOADING, MASTERDOWN, CLUSTERDOWN: it will answer later
│   ├── ReadOnlyStore      a write met a replica
│   ├── StatementRefused   a database refused a statement: no such table, a constraint; nothing was done
│   ├── WrongType          a queue's key has another Redis type than its library uses
│   ├── OversizedAnswer    a key of a queue holds more than we read
│   └── Garbled            an answer in an unexpected format
├── Missing                what was requested does not exist (any more)
│   ├── DeploymentMissing
│   ├── QueueMissing
│   ├── JobMissing
│   └── ServerMissing
├── Unsupported            this flavour or version cannot do it; the text says why
├── BadOrder               an order that says too little or too much to be carried out: no reason, no job
├── Illegible              a pasted or uploaded text cannot be read; `line` says where
├── Forbidden              the caller lacks the permission
├── Fenced                 another scheduler leads, or another installation acts, so nothing was done
├── NotApart               the state store is a database with queues, so nothing was done
├── NotRecorded            the audit could not be written, so nothing was done
└── NotDelivered           a message did not arrive, or may not have; the text says why
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class UnstallError(Exception):
    """Base of all exceptions that Unstall raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem of the configuration: where it is, what it is, and what would be right."""

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
    """A store did not answer as it should.

    `target` is the address without its password; `advice`, else that of the class, says what to check first.
    """

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
    """The store answers reads correctly, but refuses writes."""

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
    """The requested object does not exist (any more)."""


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
    """A pasted or uploaded text cannot be read; `line` counts from 1, 0 if it is about the whole text."""

    def __init__(self, name: str, reason: str, *, line: int = 0) -> None:
        self.name = name
        self.line = line
        self.reason = reason
        where = f"{name}, line {line}" if line else name
        super().__init__(f"{where}: {reason}")


class Forbidden(UnstallError):
    """The caller lacks the permission; the text says which one it takes."""


class Fenced(UnstallError):
    """A script found a later epoch than its own, or another installation that acts on the queue, and wrote nothing.

    `met`: that epoch, or the name of that installation.
    `results`: the result for each job of the order, if earlier scripts had already done their part; empty if nothing
    was done at all.
    """

    def __init__(self, met: int | str, results: tuple[Any, ...] = ()) -> None:
        self.met = met
        self.results = results
        if isinstance(met, int):
            super().__init__(f"Another scheduler is the leader (epoch {met}).")
        else:
            super().__init__(f"Another console acts on this queue (installation {met[:8]}).")


class NotApart(UnstallError):
    """The state store is also the database of queues, so nothing was done; the text names them."""


class NotRecorded(UnstallError):
    """The audit could not be written, so nothing was done."""


class NotDelivered(UnstallError):
    """A message did not reach its channel.

    `may_have`: it is not known whether it did. `retry`: seconds that the other side asks to wait.
    """

    def __init__(self, reason: str, *, may_have: bool = False, retry: float = 0.0) -> None:
        self.may_have = may_have
        self.retry = retry
        super().__init__(reason)
