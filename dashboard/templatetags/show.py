"""Template filters that format values; built into every template, so no `load` is needed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from recovery import shared_clock
from recovery.domain import identifiers

register = template.Library()

UNKNOWN = "unknown"
_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_UNITS = ("B", "KB", "MB", "GB", "TB")
_TENTHS_BELOW_MS = 10_000  # "1.2 s" tells something, "41.2 s" does not


@register.filter
def shown(name: object) -> str:
    """Shows a name from Redis with every byte visible, so that no name can imitate another."""
    return identifiers.printable(str(name))


@register.filter
def slug(name: object) -> str:
    return identifiers.slug(str(name))


@register.filter
def grouped(number: float | str | None) -> str:
    """Groups digits: 1234567 → 1,234,567. A value that is not known is not shown as 0."""
    if number is None or isinstance(number, str):
        return UNKNOWN
    return f"{number:,}"


@register.filter
def duration(milliseconds: float | str | None) -> str:
    """Formats a duration in at most two units: 850 ms, 1.2 s, 41 s, 1 min 52 s, 3 h 5 min."""
    if milliseconds is None or isinstance(milliseconds, str):
        return UNKNOWN
    left = max(0, int(milliseconds))
    if left < 1000:
        return f"{left} ms"
    if left < _TENTHS_BELOW_MS:
        return f"{left / 1000:.1f} s".replace(".0 s", " s")
    return _two_units(left)


def _two_units(left: int) -> str:
    for position, (step, unit) in enumerate(_STEPS):
        if left >= step:
            rest = left % step
            text = f"{left // step} {unit}"
            if position + 1 < len(_STEPS):
                smaller, name = _STEPS[position + 1]
                text += f" {rest // smaller} {name}" if rest >= smaller else ""
            return text
    return f"{left} ms"


@register.filter
def bytes(size: float | str | None) -> str:  # noqa: A001 - the filter's name in every template
    if size is None or isinstance(size, str):
        return UNKNOWN
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


@register.filter
def percent(share: float | str | None) -> str:
    """Formats a percentage: 47.26 → 47.3 %."""
    return UNKNOWN if share is None or isinstance(share, str) else f"{share:.1f} %"


@register.filter
def ago(moment: datetime | int | float | None) -> str:
    """Formats ms since 1970, or a datetime, as an age that the page keeps fresh; the exact time on hover."""
    milliseconds = _milliseconds(moment)
    if milliseconds is None:
        return UNKNOWN
    exact = _utc(milliseconds)
    if exact is None:
        return f"at {milliseconds}"
    age = _age(shared_clock.now() - milliseconds)
    return format_html(
        '<time datetime="{}" title="{}" data-ago data-ts="{}">{}</time>',
        exact.isoformat(timespec="milliseconds"),
        f"{exact:%Y-%m-%d %H:%M:%S} UTC",
        milliseconds,
        age,
    )


@register.filter
def exactly(moment: datetime | int | float | None) -> str:
    """Formats the exact time in UTC; the script of the page changes it to the time zone of the browser."""
    milliseconds = _milliseconds(moment)
    if milliseconds is None:
        return UNKNOWN
    exact = _utc(milliseconds)
    if exact is None:
        return f"at {milliseconds}"
    text = f"{exact:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" data-exact data-ts="{}">{}</time>', exact.isoformat(), milliseconds, text)


def _milliseconds(moment: Any) -> int | None:
    if moment is None or moment == "":
        return None
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else int(moment)


def _utc(milliseconds: int) -> datetime | None:
    """Returns the datetime, or None if no calendar has it; the fields of a job may hold anything."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _age(milliseconds: int) -> str:
    """Formats an age in one unit, in the same words as ages.js."""
    past = abs(milliseconds)
    if past < 1000:
        return "now"
    for step, unit in _STEPS:
        if past >= step:
            text = f"{past // step} {unit}"
            return f"{text} ago" if milliseconds > 0 else f"in {text}"
    return "now"


@register.simple_tag
def current(frame: Any, entry: Any) -> SafeString | str:
    """Returns `aria-current` for the navigation entry of this page."""
    return SafeString(' aria-current="page"') if frame.route in entry.section else ""
