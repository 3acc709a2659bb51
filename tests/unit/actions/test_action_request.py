"""Options as a form says them: what the dialog offers, and nothing else."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dashboard.actions import action_request
from dashboard.actions.option_fields import FLAGS
from recovery.domain.actions.types import Action, ActionOptions

ALL = {field.name for field in fields(ActionOptions) if isinstance(field.default, bool)}


@pytest.mark.parametrize("act", list(Action))
def test_a_form_cannot_say_what_only_the_engine_or_a_worker_may_say(act: Action) -> None:
    posted = dict.fromkeys(ALL, "on") | {f"has_{name}": "1" for name in ALL}
    chosen = action_request.options(act, posted, shown=True)
    assert (chosen.at_start, chosen.is_late) == (False, False)
    assert all(getattr(chosen, name) for name in FLAGS)


def test_every_other_option_can_be_ticked() -> None:
    assert ALL - {"at_start", "is_late"} == FLAGS
