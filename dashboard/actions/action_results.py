"""Carries out an action and says the result in words: done, skipped and why, and whether it can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dashboard.actions.action_preview import ActionPreview, ActionRefusal, allowed_orders, refusals
from recovery.actions import runner
from recovery.actions.bulk import bulk_runs
from recovery.actions.bulk.job_selection import BulkSelection
from recovery.actions.catalog import ENTRIES
from recovery.domain.actions.types import Action, ActionCommand, JobResult, Outcome
from recovery.domain.identifiers import printable
from recovery.errors import Missing, NotRecorded, StoreError, Unsupported
from recovery.models import BulkRun
from recovery.stores.state.shared_read import windows

_REFUSALS = (Missing, Unsupported, StoreError, NotRecorded)  # each with nothing done


@dataclass(frozen=True, slots=True)
class ActionResultMessage:
    """Result of an action for its user. `entry` is an audit entry to look at, `restore` one that can be undone."""

    title: str
    words: str
    tone: str = "good"
    skipped: tuple[ActionRefusal, ...] = ()
    skipped_words: str = ""
    runs: tuple[BulkRun, ...] = ()
    entry: int | None = None
    restore: int | None = None

    @property
    def is_plain(self) -> bool:
        """True if all is done and nothing has to be read."""
        return not (self.skipped or self.runs or self.restore)

    @property
    def toast(self) -> dict[str, str]:
        return {"text": self.words, "tone": self.tone}


def carry_out(proposal: ActionPreview, until: int) -> ActionResultMessage:
    """Carries out an action. `until`: jobs that came later than this are left out. Raises what the engine raises."""
    every = proposal.asked.every
    if every is not None:
        selection = BulkSelection.all(every.value, until)
        return _ordered(proposal, tuple(bulk_runs.order(order, selection) for order in proposal.orders))
    orders = proposal.orders if proposal.is_on_queue else allowed_orders(proposal)
    if proposal.is_long:
        return _in_bulk(proposal, orders)
    is_alone = len(orders) == 1
    results = [(order, result) for order in orders for result in _performed(order, is_alone=is_alone)]
    windows.forget()  # the next page shows what was done
    return result_message(proposal.asked.act, results, is_on_queue=proposal.is_on_queue)


def _performed(order: ActionCommand, *, is_alone: bool) -> tuple[JobResult, ...]:
    """Performs one order. Among several, a refusal becomes a result, so that the results of the others are shown."""
    try:
        return runner.perform(order)
    except _REFUSALS as error:
        if is_alone:
            raise
        return tuple(JobResult(seen.id, Outcome.REFUSED, str(error)) for seen in order.jobs)


def _in_bulk(proposal: ActionPreview, orders: Sequence[ActionCommand]) -> ActionResultMessage:
    runs, skipped = list[BulkRun](), list[ActionRefusal]()
    for order in orders:
        try:
            runs.append(bulk_runs.order(order))
        except _REFUSALS as error:
            if len(orders) == 1:
                raise
            skipped.append(ActionRefusal(order.queue.label, str(error)))
    found = _ordered(proposal, tuple(runs))
    if not skipped:
        return found
    words = found.words if runs else "No run was started."
    return replace(found, words=words, tone="warn", skipped=tuple(skipped), skipped_words="Skipped:")


def result_message(
    act: Action, results: Sequence[tuple[ActionCommand, JobResult]], *, is_on_queue: bool = False
) -> ActionResultMessage:
    entry = ENTRIES[act]
    done = [result for _, result in results if result.outcome is Outcome.DONE]
    skipped = [result for _, result in results if result.outcome is not Outcome.DONE]
    unknown = any(result.outcome is Outcome.UNKNOWN for _, result in results)
    numbers = [result.audit for _, result in results if result.audit is not None]
    restorable = next((result.audit for result in done if result.can_restore), None)
    queues = {order.queue.label for order, _ in results}
    where = f" in {next(iter(queues))}" if len(queues) == 1 else ""
    if is_on_queue:
        words = _on_queue(entry.done, [result for _, result in results], where)
    else:
        words = f"{entry.counted(len(done))} {entry.done}{where}.{_told_of_one(results)}"
    return ActionResultMessage(
        title=f"{entry.label}: {'done' if not skipped else 'partly done' if done else 'nothing was changed'}",
        words=words,
        tone="bad" if unknown else "warn" if skipped else "good",
        skipped=refusals((printable(result.job), result.why or result.outcome.value) for result in skipped),
        skipped_words="Outcome unknown:" if unknown else f"{len(skipped):,} skipped:",
        entry=numbers[-1] if numbers else None,
        restore=restorable,
    )


def _told_of_one(results: Sequence[tuple[ActionCommand, JobResult]]) -> str:
    """Returns the engine's remark on a single job that was done; "" for several, where nobody would read it."""
    only = results[0][1] if len(results) == 1 else None
    return f" {printable(only.why)}" if only and only.outcome is Outcome.DONE and only.why else ""


def _on_queue(done: str, results: Sequence[JobResult], where: str) -> str:
    result = results[0]
    if result.outcome is Outcome.DONE:
        return result.why or f"The queue{where} was {done}."
    if result.outcome is Outcome.UNCHANGED:
        return result.why or f"The queue{where} is already {done}."
    return "Nothing was changed."


def _ordered(proposal: ActionPreview, runs: tuple[BulkRun, ...]) -> ActionResultMessage:
    entry = proposal.entry
    words = "The scheduler processes the jobs in chunks. The run continues when you leave this page."
    return ActionResultMessage(title=f"{entry.label} in bulk", words=words, tone="note", runs=runs)
