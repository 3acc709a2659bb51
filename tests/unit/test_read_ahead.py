"""The next window of a bulk run, read while the last one is recorded: used once, where it fits, and only fresh."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from recovery.actions import read_ahead
from recovery.actions.read_ahead import ReadAhead
from recovery.domain.jobs import Page
from recovery.errors import Unreachable

PAGE = Page((), 3, "next")


@pytest.fixture
def ahead() -> Iterator[ReadAhead]:
    made = ReadAhead()
    yield made
    made.close()


def test_a_window_that_was_read_ahead_is_given_once(ahead: ReadAhead) -> None:
    ahead.begin("o,500,x", lambda: PAGE)
    assert ahead.take("o,500,x") is PAGE
    assert ahead.take("o,500,x") is None


def test_a_window_of_another_place_is_read_anew(ahead: ReadAhead) -> None:
    ahead.begin("o,500,x", lambda: PAGE)
    assert ahead.take("") is None
    assert ahead.take("o,500,x") is None


def test_a_window_that_is_no_longer_fresh_is_read_anew(ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "LIFE", 0.0)
    ahead.begin("", lambda: PAGE)
    assert ahead.take("") is None


def test_what_went_wrong_is_raised_where_the_window_is_used(ahead: ReadAhead) -> None:
    def fails() -> Page:
        raise Unreachable("main", "it hung up")

    ahead.begin("", fails)
    with pytest.raises(Unreachable):
        ahead.take("")


def test_the_end_does_not_wait_for_a_store_that_is_silent(ahead: ReadAhead) -> None:
    reading, answer, answered = threading.Event(), threading.Event(), threading.Event()

    def waits() -> Page:
        reading.set()
        answer.wait(5)
        answered.set()
        return PAGE

    ahead.begin("", waits)
    assert reading.wait(60)
    ahead.close()
    assert not answered.is_set()
    answer.set()
