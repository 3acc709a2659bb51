"""How often a password may be wrong, by address, name and browser; and what the log and the audit say of it."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.hashers import make_password
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from dashboard import logging_config
from dashboard.accounts import failed_logins as failures
from dashboard.accounts import login_limits
from dashboard.accounts.failed_logins import FailedLogins
from dashboard.accounts.login_limits import MOST, LoginFailureKind
from dashboard.accounts.roles import UserRole
from dashboard.models import LoginFailures, User
from recovery.actions.audit import audit_log
from recovery.errors import NotRecorded
from recovery.reads.audit import queries as book
from tests.support.people import PASSWORD, browser

pytestmark = pytest.mark.django_db
ACCOUNTS = Path(__file__).parents[3] / "docs" / "accounts.md"


@pytest.fixture(autouse=True)
def _quick(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def sums(monkeypatch: pytest.MonkeyPatch) -> FailedLogins:
    """Sums of this test alone."""
    own = FailedLogins()
    monkeypatch.setattr("dashboard.accounts.forms.failed_logins", own)
    monkeypatch.setattr("dashboard.accounts.login_views.failed_logins", own)
    return own


@pytest.fixture
def anna() -> User:
    return User.objects.create(username="anna", role=UserRole.OPERATOR, password=make_password(PASSWORD))


def attempt(name: str, address: str, password: str = "wrong", client: Client | None = None) -> HttpResponse:
    sent = {"username": name, "password": password}
    return (client or browser()).post("/login", sent, REMOTE_ADDR=address)


def test_a_spray_of_names_from_one_address_is_slowed(anna: User) -> None:
    answers = [attempt(f"name{number}", "10.0.0.1").status_code for number in range(30)]
    assert answers == [200] * MOST[LoginFailureKind.ADDRESS] + [429] * (30 - MOST[LoginFailureKind.ADDRESS])
    assert attempt("anna", "10.0.0.1", PASSWORD).status_code == 429
    assert attempt("anna", "10.0.0.2", PASSWORD).status_code == 302


def test_addresses_of_one_network_of_ipv6_count_as_one(anna: User) -> None:
    for number in range(MOST[LoginFailureKind.ADDRESS]):
        attempt(f"name{number}", f"2001:db8:1:2:{number}::1")
    assert attempt("anna", "2001:db8:1:2:ffff::1", PASSWORD).status_code == 429
    assert attempt("anna", "2001:db8:1:3::1", PASSWORD).status_code == 302


def test_a_guess_of_one_name_from_many_addresses_is_slowed(anna: User) -> None:
    answers = [attempt("anna", f"10.0.{number}.1").status_code for number in range(MOST[LoginFailureKind.NAME] + 5)]
    assert answers == [200] * MOST[LoginFailureKind.NAME] + [429] * 5


def test_a_stranger_locks_nobody_out_of_a_browser_they_have_used(anna: User) -> None:
    known = browser()
    assert attempt("anna", "10.9.9.9", PASSWORD, known).status_code == 302
    known.post("/logout")
    for number in range(MOST[LoginFailureKind.NAME]):
        attempt("anna", f"10.0.{number}.1")
    assert attempt("anna", "10.0.99.1", PASSWORD).status_code == 429
    assert attempt("anna", "10.9.9.9", PASSWORD, known).status_code == 302


def test_a_known_browser_is_no_way_around_the_limit(anna: User) -> None:
    known = browser()
    attempt("anna", "10.9.9.9", PASSWORD, known)
    known.post("/logout")
    answers = [attempt("anna", f"10.0.{number}.1", "wrong", known).status_code for number in range(8)]
    assert answers == [200] * MOST[LoginFailureKind.BROWSER] + [429] * 2
    assert attempt("anna", "10.0.0.1", PASSWORD).status_code == 302, "it was counted by itself"


def test_a_browser_is_known_for_the_person_who_logged_in_with_it(anna: User) -> None:
    known = browser()
    attempt("anna", "10.9.9.9", PASSWORD, known)
    known.post("/logout")
    for _ in range(MOST[LoginFailureKind.PAIR]):
        attempt("boris", "10.9.9.9", "wrong", known)
    assert attempt("boris", "10.9.9.9", "wrong", known).status_code == 429
    assert LoginFailures.objects.filter(bucket__startswith="address:").get().failures == MOST[LoginFailureKind.PAIR]


def test_a_pause_ends_and_old_counts_go(anna: User) -> None:
    for _ in range(MOST[LoginFailureKind.PAIR]):
        attempt("anna", "10.0.0.1")
    assert attempt("anna", "10.0.0.1", PASSWORD).status_code == 429
    ago = timezone.now() - timedelta(hours=1)
    LoginFailures.objects.update(since=ago, paused_until=ago + login_limits.PAUSE)
    assert attempt("anna", "10.0.0.1", PASSWORD).status_code == 302
    attempt("boris", "10.0.0.9")
    assert LoginFailures.objects.filter(since__lt=ago + timedelta(minutes=1)).count() == 0


def test_the_right_password_forgets_the_slips_before_it(anna: User) -> None:
    for _ in range(3):
        for _ in range(MOST[LoginFailureKind.PAIR] - 1):
            attempt("anna", "10.0.0.1")
        assert attempt("anna", "10.0.0.1", PASSWORD).status_code == 302


def test_a_failure_is_one_line_of_the_log_that_names_address_and_name(caplog: pytest.LogCaptureFixture) -> None:
    attempt("anna", "192.0.2.7")
    (record,) = [one for one in caplog.records if one.name == "dashboard.accounts.failed_logins"]
    line = logging_config.OneLineFormatter().format(record)
    assert line.endswith(
        ' warn  dashboard.accounts.failed_logins  log-in failed from 192.0.2.7 for "anna": wrong password'
    )


@pytest.mark.parametrize("before", ["", "web-1 python[4711]: "], ids=["file", "journal"])
def test_the_filter_of_the_document_finds_the_address_and_no_other(
    before: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What somebody types as a name cannot make another address look guilty.

    `before`: of a line of the journal fail2ban puts host and process in front, as its filtersystemd.py has it.
    """
    (failregex,) = re.findall(r"^failregex = (.+)$", ACCOUNTS.read_text("utf-8"), re.MULTILINE)
    pattern = re.compile(failregex.replace("<HOST>", r"(?P<host>[\w.:-]+)"))
    names = (
        "anna",
        'x": wrong password',
        "log-in failed from 10.6.6.6 for",
        "a\nlog-in failed from 10.6.6.6 for",
        "ü\u2028",
    )
    for number, name in enumerate(names):
        attempt(name, f"2001:db8:{number}::1")
    lines = [
        logging_config.OneLineFormatter().format(one)
        for one in caplog.records
        if one.name == "dashboard.accounts.failed_logins"
    ]
    assert [pattern.search(before + line)["host"] for line in lines] == [f"2001:db8:{number}::1" for number in range(5)]  # type: ignore[index]
    forged = ('log-in failed from 10.6.6.6 for "x": wrong password', f"web-1 python[4711]: {lines[0]}")
    others = [logging.LogRecord("dashboard", logging.WARNING, "", 0, text, (), None) for text in forged]
    assert [pattern.search(before + logging_config.OneLineFormatter().format(other)) for other in others] == [
        None,
        None,
    ]


def test_what_failed_within_a_minute_is_one_entry_of_the_audit_for_each_address(sums: FailedLogins) -> None:
    for number in range(7):
        sums.add("192.0.2.7", f"name{number}", "password", now=60.0 + number)
    sums.add("192.0.2.8", "anna", "password", (LoginFailureKind.PAIR,), now=61.0)
    sums.add("192.0.2.7", "late", "password", now=125.0)
    assert sums.write(now=120.0) == 2
    second, first = book.entries().lines
    assert {first.address, second.address} == {"192.0.2.7", "192.0.2.8"}
    assert {first.act, second.act} == {failures.ACT}
    by_address = {line.address: book.load_entry(line.number).body for line in (first, second)}
    assert by_address["192.0.2.7"] == {"failures": 7, "names": [f"name{number}" for number in range(5)]}
    assert by_address["192.0.2.8"] == {"failures": 1, "names": ["anna"], "paused": ["pair"]}
    assert sums.write(now=120.0) == 0
    assert sums.write(is_last=True, now=121.0) == 1


def test_many_addresses_do_not_fill_the_audit(sums: FailedLogins) -> None:
    for number in range(500):
        sums.add(f"10.0.{number % 250}.{number}", "anna", "password", now=60.0)
    assert sums.write(now=120.0) == failures.ADDRESSES + 1
    others = next(line for line in book.entries().lines if line.address == failures.ELSEWHERE)
    assert book.load_entry(others.number).body["failures"] == 500 - failures.ADDRESSES


def test_what_the_audit_cannot_take_waits(sums: FailedLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    sums.add("192.0.2.7", "anna", "password", now=60.0)
    with monkeypatch.context() as broken:
        broken.setattr(audit_log, "note", lambda *_, **__: (_ for _ in ()).throw(NotRecorded("full")))
        with pytest.raises(NotRecorded):
            sums.write(now=120.0)
    assert sums.write(now=120.0) == 1


def test_a_failed_log_in_is_summed_up(anna: User, sums: FailedLogins) -> None:
    for _ in range(MOST[LoginFailureKind.PAIR] + 3):
        attempt("anna", "192.0.2.7")
    assert sums.write(is_last=True) in (1, 2)  # a minute may have ended in between
    bodies = [book.load_entry(line.number).body for line in book.entries().lines]
    assert sum(body["failures"] for body in bodies) == MOST[LoginFailureKind.PAIR], "what is refused is not tried"
    assert ["pair"] in [body.get("paused") for body in bodies]
