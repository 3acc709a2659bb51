"""Options as a form says them: what the dialog offers, and nothing else."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dashboard import wishes
from dashboard.choices import FLAGS
from recovery.domain.acting import Act, Options

ALL = {field.name for field in fields(Options) if isinstance(field.default, bool)}


@pytest.mark.parametrize("act", list(Act))
def test_a_form_cannot_say_what_only_the_engine_or_a_worker_may_say(act: Act) -> None:
    posted = dict.fromkeys(ALL, "on") | {f"has_{name}": "1" for name in ALL}
    chosen = wishes.options(act, posted, shown=True)
    assert (chosen.at_start, chosen.is_late) == (False, False)
    assert all(getattr(chosen, name) for name in FLAGS)


def test_every_other_option_can_be_ticked() -> None:
    assert ALL - {"at_start", "is_late"} == FLAGS
