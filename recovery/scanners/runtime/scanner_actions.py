"""Performs a scanner's actions on queues, always through the action runner: chunk by chunk, within its policy.

Before each chunk it checks again: 1. does this scheduler still lead; 2. does another console act there, or is the
deployment paused by a safety limit; 3. does the queue's policy let this scanner act; 4. is there anything left of
what one run may do. What is not done is reported all the same, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from recovery.actions import precheck, runner
from recovery.actions.audit.audit_log import REASON_LIMIT
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, Actor, ExpectedJob, JobResult, Outcome
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.policies.policy_layers import ResolvedPolicy
from recovery.domain.policies.types import PolicyScanner, ScannerPolicy
from recovery.domain.scanners.types import ScannerFinding, ScannerKind
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.errors import BadOrder, ConfigError, Fenced, Missing, NotRecorded, StoreError, Unsupported
from recovery.reads.scanners import rights_refusals
from recovery.reads.scanners.rights_refusals import RightsRefusal, RightsRefusals
from recovery.stores.registry import registry

CHUNK = 100  # jobs in one call: no library's script takes fewer, so a call that stops half way has done nothing
NO_MANDATE = "Nothing is changed: the leader is unknown."
LED = "Stopped: this scheduler is no longer the leader."
ONLY_LOOKS = "This was a dry run."
_COUNTED = (Outcome.DONE, Outcome.UNKNOWN)  # outcomes that count against the maximum of a run; refused jobs do not

BlockingReasons = Callable[[QueueRef], tuple[str, ...]]  # sentences why a queue may not be changed; empty: it may


class PolicyLookup(Protocol):
    """Lookup of a queue's policy."""

    def of(self, queue: QueueRef) -> ResolvedPolicy: ...


@dataclass(frozen=True, slots=True)
class ScannerActionRequest:
    """Job that an action is requested for. `policy`: what allows it, in one sentence, for the audit."""

    seen: ExpectedJob
    what: str  # what was found, in words
    policy: str


class ScannerActions:
    """Actions of one run: changed jobs count against `most` of each queue, and what stops one action stops the rest.

    `leader_token` None: the leader is unknown. `dry_run`: nothing is changed, whatever the policies say.
    """

    def __init__(
        self,
        leader_token: LeaderToken | None,
        scanner: ScannerKind,
        book: PolicyLookup,
        holding: BlockingReasons,
        *,
        dry_run: bool = False,
    ) -> None:
        self.holds: list[str] = []  # sentences about what blocked an action
        self.faults: list[str] = []  # what could not be done
        self.is_refused = False  # True if the store's user lacks a permission for some of it
        self._leader_token = leader_token
        self._scanner = scanner
        self._book = book
        self._holding = holding
        self._dry_run = dry_run
        self._actor = Actor("scanner", scanner.value, may_act=True, may_bulk=True)
        self._done: Counter[QueueRef] = Counter()
        self._stopped = ""  # why this run changes nothing more anywhere
        self._away: dict[str, str] = {}  # deployment → why this run changes nothing more there

    @property
    def is_stopped(self) -> bool:
        """True if this run makes no more changes anywhere."""
        return bool(self._stopped) or (self._leader_token is not None and not self._leader_token.holds())

    def why_not(self, queue: QueueRef) -> str:
        """Returns why this queue may not be changed now; "": it may. A safety limit in effect is added to `holds`."""
        if self._dry_run:
            return ONLY_LOOKS
        if not self._book.of(queue).policy.may_act(PolicyScanner(self._scanner.value)):
            return self._book.of(queue).sentence(PolicyScanner(self._scanner.value), precheck.now())
        if why := self._lost() or self._away.get(queue.deployment):
            return why
        rival = self._leader_token.rival(queue.deployment) if self._leader_token else ""
        held = rival or " ".join(self._holding(queue)) or self._refusal(queue)
        return self._held(held) if held else ""

    def policy(self, queue: QueueRef) -> ResolvedPolicy:
        return self._book.of(queue)

    def room(self, queue: QueueRef) -> int:
        """Returns how many more jobs of this queue this run may change."""
        return max(0, self._duty(queue).most - self._done[queue])

    def do(
        self,
        act: Action,
        queue: QueueRef,
        requests: Sequence[ScannerActionRequest],
        options: ActionOptions = ActionOptions(),  # noqa: B008 -- frozen
    ) -> tuple[ScannerFinding, ...]:
        """Performs an action; returns a find per request, in order. Raises no error of a store, audit or lease."""
        finds: dict[str, ScannerFinding] = {}
        for reason, mine in _by_policy(requests):
            order = ActionCommand(
                act,
                queue,
                self._actor,
                reason[:REASON_LIMIT],
                options=options,
                epoch=self._leader_token.epoch if self._leader_token else None,
                installation=self._leader_token.installation if self._leader_token else "",
            )
            finds |= self._in_chunks(order, mine)
        return tuple(finds[request.seen.id] for request in requests)

    def _in_chunks(self, order: ActionCommand, requests: Sequence[ScannerActionRequest]) -> dict[str, ScannerFinding]:
        finds: dict[str, ScannerFinding] = {}
        while rest := requests[len(finds) :]:
            if why := self.why_not(order.queue) or self._full(order.queue):
                return finds | {request.seen.id: _left(order.queue, request, why) for request in rest}
            part = rest[: min(CHUNK, self.room(order.queue))]
            finds |= self._carry_out(replace(order, jobs=tuple(request.seen for request in part)), part)
        return finds

    def _carry_out(self, order: ActionCommand, requests: Sequence[ScannerActionRequest]) -> dict[str, ScannerFinding]:
        """Makes the one call that changes jobs. If it raises, nothing was done, or the error has the results."""
        queue, results = order.queue, tuple[JobResult, ...]()
        try:
            results = runner.perform(order)
        except Fenced as error:
            why = self._held(str(error))
            if isinstance(error.met, int):
                self._stop(why)
            else:  # another console acts here; other deployments are not affected
                self._away[queue.deployment] = why
            results = error.results or self._all(requests, str(error))
        except NotRecorded as error:
            results = self._failed(queue, requests, self._stop(str(error)))
        except StoreError as error:
            self._away[queue.deployment] = str(error)
            results = self._failed(queue, requests, str(error))
        except (Unsupported, Missing, BadOrder) as error:
            results = self._failed(queue, requests, str(error))
        else:
            self._learn(queue, results)
        self._try_rights(queue, results)
        self._done[queue] += sum(one.outcome in _COUNTED for one in results)
        return {request.seen.id: _done(order, request, one) for request, one in zip(requests, results, strict=True)}

    def _learn(self, queue: QueueRef, results: Iterable[JobResult]) -> None:
        """Ends the actions on a deployment whose store became unavailable in the middle of a call."""
        lost = next((one for one in results if one.outcome is Outcome.UNKNOWN), None)
        if lost is not None:
            self._away[queue.deployment] = lost.why
            self._fault(f"{printable(str(queue))}: {lost.why}")

    def _refusal(self, queue: QueueRef) -> str:
        """Returns why the store's user would be refused, by a recent note; "" if there is none."""
        found = rights_refusals.refusal_of_queue(queue, _refusals())
        if found is None or not 0 <= precheck.now() - found.at < rights_refusals.RETRY:
            return ""
        return self._deny(queue, found)

    def _try_rights(self, queue: QueueRef, results: Sequence[JobResult]) -> None:
        """Handles the note on missing permissions after an attempt: a success removes it, a refusal is reported."""
        found = rights_refusals.refusal_of_queue(queue, _refusals())
        if found is None:
            return
        if any(one.outcome is Outcome.DONE for one in results):
            with suppress(ConfigError, StoreError):
                rights_refusals.forget(registry().state(), queue)
        elif any(one.outcome in (Outcome.REFUSED, Outcome.UNKNOWN) for one in results):
            self._deny(queue, found)

    def _deny(self, queue: QueueRef, found: RightsRefusal) -> str:
        self.is_refused = True
        said = rights_refusals.words(queue, found)
        self._fault(said)
        return said

    def _failed(self, queue: QueueRef, requests: Sequence[ScannerActionRequest], why: str) -> tuple[JobResult, ...]:
        self._fault(f"{printable(str(queue))}: {why}")
        return self._all(requests, why)

    @staticmethod
    def _all(requests: Sequence[ScannerActionRequest], why: str) -> tuple[JobResult, ...]:
        """Returns a refused result for every job: none was changed."""
        return tuple(JobResult(request.seen.id, Outcome.REFUSED, why) for request in requests)

    def _lost(self) -> str:
        """Returns why this run may change nothing any more; "" while the scheduler leads."""
        if self._leader_token is None:
            return self._stop(NO_MANDATE)
        return self._stopped if self._leader_token.holds() else self._stop(LED)

    def _full(self, queue: QueueRef) -> str:
        if self.room(queue):
            return ""
        most = self._duty(queue).most
        return self._held(f"At most {most:,} jobs of {queue.label} per run: the rest waits for the next run.")

    def _duty(self, queue: QueueRef) -> ScannerPolicy:
        return self._book.of(queue).policy.duty(PolicyScanner(self._scanner.value))

    def _stop(self, why: str) -> str:
        self._stopped = self._stopped or why
        return self._stopped

    def _held(self, why: str) -> str:
        if why not in self.holds:
            self.holds.append(why)
        return why

    def _fault(self, why: str) -> None:
        if why not in self.faults:
            self.faults.append(why)


def _refusals() -> RightsRefusals:
    """Fetches the notes on missing permissions; empty without a state store, or if it does not answer."""
    try:
        return rights_refusals.fetch(registry().state())
    except (ConfigError, StoreError):
        return {}


def _by_policy(requests: Sequence[ScannerActionRequest]) -> Iterator[tuple[str, list[ScannerActionRequest]]]:
    """Groups requests by policy sentence, as one call has one reason; a job requested twice is kept once."""
    once = {request.seen.id: request for request in reversed(requests)}.values()
    groups: dict[str, list[ScannerActionRequest]] = {}
    for request in reversed(once):
        groups.setdefault(request.policy, []).append(request)
    yield from groups.items()


def _left(queue: QueueRef, request: ScannerActionRequest, why: str) -> ScannerFinding:
    return ScannerFinding(queue.job(request.seen.id), request.what, why)


def _done(order: ActionCommand, request: ScannerActionRequest, one: JobResult) -> ScannerFinding:
    return ScannerFinding(
        order.queue.job(one.job), request.what, request.policy, order.act, one.outcome, one.why, one.audit
    )
