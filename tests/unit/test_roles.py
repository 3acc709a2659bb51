from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser

from dashboard.access import Role, allows, may_see_payloads, role_of
from dashboard.models import User


def test_each_role_may_what_those_before_it_may() -> None:
    assert Role.ADMIN.allows(Role.OPERATOR)
    assert Role.OPERATOR.allows(Role.OPERATOR)
    assert not Role.VIEWER.allows(Role.OPERATOR)


def test_a_stranger_has_no_role() -> None:
    assert role_of(AnonymousUser()) is None
    assert not allows(None, Role.VIEWER)


def test_who_is_locked_out_has_no_role_either() -> None:
    assert role_of(User(role=Role.ADMIN, is_active=False)) is None


def test_a_role_that_nobody_knows_allows_nothing() -> None:
    assert not allows(User(role="emperor"), Role.VIEWER)


@pytest.mark.parametrize(("role", "may"), [(Role.VIEWER, False), (Role.OPERATOR, True), (Role.ADMIN, True)])
def test_payloads_are_for_operators(role: Role, may: bool) -> None:
    assert may_see_payloads(User(role=role)) is may
