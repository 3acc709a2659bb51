"""Defines the options of each action as form fields of its dialog, with what they mean in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.domain.actions.types import Action, ActionOptions
from recovery.domain.jobs import JobState
from recovery.domain.time_units import DAY, HOUR


@dataclass(frozen=True, slots=True)
class ActionOptionField:
    """Form field of one option. `kind`: flag, text, number, or pick with `values`; `name` is that of the option."""

    name: str
    label: str
    help: str = ""
    kind: str = "flag"
    tone: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ActionOptionValue:
    """Form field with its current value."""

    choice: ActionOptionField
    value: str
    is_on: bool = False


_RESET_STALLS = ActionOptionField(
    "reset_stalls",
    "Reset stalled counter",
    "Clears the stalled counter and a deferred failure marker, so that the next stall does not fail the job at once.",
)
_OTHER_QUEUES = ActionOptionField(
    "other_queues",
    "Also jobs of other queues",
    "Children in other queues that change with it, and a parent in another queue that waits for it or fails with it.",
    tone="bad",
)
_OTHER_PARENTS = ActionOptionField(
    "other_queues",
    "Also jobs that a parent in another queue waits for",
    "That parent no longer waits for them and may run. If off, those jobs stay.",
)
_FORCE = ActionOptionField("force", "Do it anyway (force)", "The reasons against it are listed above.", tone="bad")
_FORCE_HOLDER = ActionOptionField(
    "force",
    "Even if its worker is still connected",
    "If that worker is only slow, it continues while another worker starts the job: the job will run twice.",
    tone="bad",
)
_MARK_FIRST = ActionOptionField(
    "mark",
    "Mark it as crashed first",
    "For an unfinished execution without a job: n8n retries a new one only then, and the row does not stay running.",
)
CONSENTS = {  # by the option that a refusal says it needs
    "force": _FORCE,
    "other_queues": _OTHER_QUEUES,
    "mark": _MARK_FIRST,
    "consent": ActionOptionField(
        "consent",
        "The workflow may run twice",
        "n8n runs the workflow again from its start: steps that already ran will run a second time.",
        tone="bad",
    ),
    "rerun_completed": ActionOptionField(
        "rerun_completed",
        "Run again although it completed",
        "Everything the job already did will happen a second time.",
        tone="bad",
    ),
}
_LATEST = ActionOptionField(
    "latest",
    "Use the currently saved workflow",
    "If off, n8n uses the workflow of this execution. It refuses if a node that has to run was deleted.",
)
_AGES = (
    ("0", "of any age"),
    (str(HOUR), "1 hour"),
    (str(DAY), "1 day"),
    (str(7 * DAY), "7 days"),
    (str(30 * DAY), "30 days"),
)
_CLEANED = tuple(
    (state.value, state.value)
    for state in (
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.DELAYED,
        JobState.WAITING,
        JobState.PRIORITIZED,
        JobState.PAUSED,
    )
)
_CHOICES: Mapping[Action, tuple[ActionOptionField, ...]] = {
    Action.REQUEUE: (
        ActionOptionField(
            "counts_as_stall",
            "Increment stalled counter",
            "As the library's stalled check does: a job over maxStalledCount fails when it stalls again.",
        ),
        _RESET_STALLS,
    ),
    Action.FAIL: (
        ActionOptionField("message", "Error message", "If empty, the text that the library would write.", "text"),
        ActionOptionField(
            "directly",
            "Fail it without a worker",
            "If this version would let a worker fail the job, Unstall fails it now instead.",
        ),
    ),
    Action.RELEASE: (
        ActionOptionField(
            "requeue", "Also requeue", "In the same step, so that the job does not wait for the stalled check."
        ),
    ),
    Action.RETRY: (
        ActionOptionField("reset_attempts", "Reset attempts"),
        _RESET_STALLS,
    ),
    Action.REMOVE: (
        ActionOptionField(
            "children",
            "Also remove its children",
            "All jobs below it in the flow. They cannot be restored. If off, they stay.",
        ),
        _OTHER_QUEUES,
    ),
    Action.RETRY_EXECUTION: (_MARK_FIRST, _LATEST),
    Action.RESCUE: (_LATEST,),
    Action.DRAIN: (ActionOptionField("delayed", "Also delayed jobs"), _OTHER_PARENTS),
    Action.CLEAN: (
        ActionOptionField("state", "Which jobs", kind="pick", values=_CLEANED),
        ActionOptionField("older_than", "Older than", kind="pick", values=_AGES),
        ActionOptionField("limit", "Limit (0 = none)", kind="number"),
        _OTHER_PARENTS,
    ),
}


# A row of a table has no stalls, no parents and no lock.
_OF_ROWS: Mapping[Action, tuple[ActionOptionField, ...]] = {
    Action.REQUEUE: (
        ActionOptionField(
            "counts_as_stall", "Count as an attempt", "As a sweep does: the row fails when its attempts are used up."
        ),
    ),
    Action.FAIL: (ActionOptionField("message", "Last error", kind="text"),),
    Action.RETRY: (ActionOptionField("reset_attempts", "Reset attempts"),),
}


# All check boxes. What else an option can say, only the engine or a worker may say.
FLAGS = frozenset(
    choice.name
    for offered in (*_CHOICES.values(), *_OF_ROWS.values(), CONSENTS.values())
    for choice in offered
    if choice.kind == "flag"
)


def choices(
    act: Action, options: ActionOptions, needs: frozenset[str], *, of_rows: bool = False
) -> tuple[ActionOptionValue, ...]:
    """Returns the fields of an action. `needs`: the consents to ask for; the other ones are not even shown."""
    own = (_OF_ROWS if of_rows else _CHOICES).get(act, ())
    shown = {choice.name for choice in own}
    consents = [CONSENTS[name] for name in sorted(needs - shown)]
    if "force" in needs and act is Action.RELEASE:
        consents = [_FORCE_HOLDER if choice is _FORCE else choice for choice in consents]
    return tuple(_chosen(choice, options) for choice in (*own, *consents))


def _chosen(choice: ActionOptionField, options: ActionOptions) -> ActionOptionValue:
    value = getattr(options, choice.name)
    return ActionOptionValue(choice, "" if value is None else str(value), value is True)
