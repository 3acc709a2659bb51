"""Defines the form that starts a fire drill: the times of a worker's configuration, as people write times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from django import forms

from recovery.domain.drills.plan import AT_MOST, DrillLibrary, DrillPlan, StopSignal, problems
from recovery.domain.duration_parser import format_duration, parse_duration

_PLAN = DrillPlan()
_MEANS = {StopSignal.KILL: "SIGKILL, as a crash", StopSignal.TERM: "SIGTERM, then SIGKILL, as a deploy"}


class DurationField(forms.CharField):
    """Duration such as `30s`, `500ms` or `2min`; its cleaned value is in milliseconds."""

    def __init__(self, label: str, default: int, help_text: str = "") -> None:
        attributes = {"autocomplete": "off", "spellcheck": "false", "size": "8"}
        super().__init__(
            label=label,
            initial=format_duration(default),
            max_length=20,
            help_text=help_text,
            widget=forms.TextInput(attrs=attributes),
        )

    def clean(self, value: Any) -> int:
        said = super().clean(value)
        try:
            return parse_duration(said)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


def _number(label: str, default: int, most: int, least: int = 1, help_text: str = "") -> forms.IntegerField:
    return forms.IntegerField(label=label, initial=default, min_value=least, max_value=most, help_text=help_text)


class DrillForm(forms.Form):
    library = forms.ChoiceField(label="Library")
    lock = DurationField("Lock", _PLAN.lock, "lockDuration")
    renew = DurationField("Renew interval", _PLAN.renew, "lockRenewTime")
    stalled_interval = DurationField("Stalled interval", _PLAN.stalled_interval, "stalledInterval")
    max_stalled = _number("Max stalled", _PLAN.max_stalled, 1000, 0, "maxStalledCount")
    workers = _number("Workers", _PLAN.workers, 16)
    concurrency = _number("Concurrency", _PLAN.concurrency, 100, help_text="jobs per worker")
    rounds = _number("Rounds", _PLAN.rounds, AT_MOST)
    means = forms.ChoiceField(label="Stop signal", choices=[(one.value, words) for one, words in _MEANS.items()])
    shutdown = DurationField("Shutdown timeout", _PLAN.shutdown, "how long the worker waits for its job")
    grace = DurationField("Grace period", _PLAN.grace, "when SIGKILL follows SIGTERM")
    job = DurationField("Job duration", _PLAN.job)

    def __init__(self, data: Any = None, *, libraries: Iterable[DrillLibrary]) -> None:
        """Offers `libraries`: those with which the leading scheduler could start a drill."""
        super().__init__(data)
        library = cast("forms.ChoiceField", self.fields["library"])
        library.choices = [(one.value, one.label) for one in libraries]

    def clean(self) -> dict[str, Any]:
        told = super().clean() or {}
        if not self.errors:
            for name, words in problems(self.plan).items():
                self.add_error(name if name in self.fields else None, words)
        return told

    @property
    def plan(self) -> DrillPlan:
        """Plan of a drill, once the fields are clean."""
        values = dict(self.cleaned_data)
        return DrillPlan(library=DrillLibrary(values.pop("library")), means=StopSignal(values.pop("means")), **values)
