from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser

from dashboard.accounts.roles import UserRole, allows, may_see_payloads, role_of
from dashboard.models import User


def test_each_role_may_what_those_before_it_may() -> None:
    assert UserRole.ADMIN.allows(UserRole.OPERATOR)
    assert UserRole.OPERATOR.allows(UserRole.OPERATOR)
    assert not UserRole.VIEWER.allows(UserRole.OPERATOR)


def test_a_stranger_has_no_role() -> None:
    assert role_of(AnonymousUser()) is None
    assert not allows(None, UserRole.VIEWER)


def test_who_is_locked_out_has_no_role_either() -> None:
    assert role_of(User(role=UserRole.ADMIN, is_active=False)) is None


def test_a_role_that_nobody_knows_allows_nothing() -> None:
    assert not allows(User(role="emperor"), UserRole.VIEWER)


@pytest.mark.parametrize(("role", "may"), [(UserRole.VIEWER, False), (UserRole.OPERATOR, True), (UserRole.ADMIN, True)])
def test_payloads_are_for_operators(role: UserRole, may: bool) -> None:
    assert may_see_payloads(User(role=role)) is may
