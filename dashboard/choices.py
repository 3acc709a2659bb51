"""The options of each act as a person chooses them in the dialog, with what they mean in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.domain.acting import Act, Options
from recovery.domain.ages import DAY, HOUR
from recovery.domain.jobs import State


@dataclass(frozen=True, slots=True)
class Choice:
    """One control. `kind`: flag, text, number, or pick with `values`; `name` is that of the option."""

    name: str
    label: str
    help: str = ""
    kind: str = "flag"
    tone: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice with what is chosen now."""

    choice: Choice
    value: str
    is_on: bool = False


_RESET_STALLS = Choice(
    "reset_stalls",
    "Forget its stalls",
    "Its stall counter and a failure written ahead are cleared, so that the next stall does not fail it at once.",
)
_FORCE = Choice("force", "Do it in spite of that", "What stands against it is said above.", tone="bad")
_FORCE_HOLDER = Choice(
    "force",
    "Even if its holder is still connected",
    "If the holder is only slow, it goes on working while another worker starts: this job will run twice.",
    tone="bad",
)
CONSENTS = {  # by the option that a refusal says it needs
    "force": _FORCE,
    "consent": Choice(
        "consent",
        "The workflow may run twice",
        "n8n runs it again from its start: whatever it did already, it does a second time.",
        tone="bad",
    ),
    "rerun_completed": Choice(
        "rerun_completed",
        "Run it again although it has completed",
        "What it did already, it does a second time.",
        tone="bad",
    ),
}
_AGES = (
    ("0", "of any age"),
    (str(HOUR), "1 hour"),
    (str(DAY), "1 day"),
    (str(7 * DAY), "7 days"),
    (str(30 * DAY), "30 days"),
)
_CLEANED = tuple(
    (state.value, state.value)
    for state in (State.COMPLETED, State.FAILED, State.DELAYED, State.WAITING, State.PRIORITIZED, State.PAUSED)
)
_CHOICES: Mapping[Act, tuple[Choice, ...]] = {
    Act.REQUEUE: (
        Choice(
            "counts_as_stall",
            "Count it as a stall",
            "As the library's own recovery does: a job over its limit of stalls fails when it stalls again.",
        ),
        _RESET_STALLS,
    ),
    Act.FAIL: (
        Choice(
            "message", "What is written into the job", "Empty: the sentence the library itself would write.", "text"
        ),
        Choice(
            "directly",
            "Do not leave it to a live worker",
            "Where the version would let a worker fail it, fail it here and now.",
        ),
    ),
    Act.RELEASE: (
        Choice("requeue", "And put it back in line", "In the same step, so that it need not wait for the watchdog."),
    ),
    Act.RETRY: (
        Choice("reset_attempts", "Give it all its attempts again"),
        _RESET_STALLS,
    ),
    Act.REMOVE: (Choice("children", "With its own children", "As the library does; off: the children stay."),),
    Act.RELAUNCH: (
        Choice(
            "latest",
            "With the workflow as it is saved now",
            "Off: as it was when this execution ran. n8n refuses it when a node is gone that has to run.",
        ),
    ),
    Act.DRAIN: (Choice("delayed", "Delayed jobs too"),),
    Act.CLEAN: (
        Choice("state", "Which jobs", kind="pick", values=_CLEANED),
        Choice("older_than", "Older than", kind="pick", values=_AGES),
        Choice("limit", "At most so many", "0: all of them.", "number"),
    ),
}


# A row of a table has no stalls, no parents and no lock.
_OF_ROWS: Mapping[Act, tuple[Choice, ...]] = {
    Act.REQUEUE: (
        Choice(
            "counts_as_stall", "Count it as an attempt", "As a sweep does: when its attempts are used up, it fails."
        ),
    ),
    Act.FAIL: (Choice("message", "What is written as its last error", kind="text"),),
    Act.RETRY: (Choice("reset_attempts", "Give it all its attempts again"),),
}


def choices(act: Act, options: Options, needs: frozenset[str], *, of_rows: bool = False) -> tuple[Chosen, ...]:
    """`needs`: the consents that are asked for; the others are not even shown."""
    own = (_OF_ROWS if of_rows else _CHOICES).get(act, ())
    consents = [CONSENTS[name] for name in sorted(needs)]
    if "force" in needs and act is Act.RELEASE:
        consents = [_FORCE_HOLDER if choice is _FORCE else choice for choice in consents]
    return tuple(_chosen(choice, options) for choice in (*own, *consents))


def _chosen(choice: Choice, options: Options) -> Chosen:
    value = getattr(options, choice.name)
    return Chosen(choice, "" if value is None else str(value), value is True)
