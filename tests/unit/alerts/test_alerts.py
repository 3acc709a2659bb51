"""Which alerts stand after a look, and what of them is news; what is unknown is neither new nor over."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from recovery.domain.alerts.types import (
    WORDS_LIMIT,
    AlertCheck,
    AlertDelivery,
    AlertEvent,
    AlertFinding,
    AlertKind,
    AlertRecord,
    AlertSettings,
    alerts_after_check,
    is_free,
    next_event,
    redact_words,
    storage_key,
)
from recovery.domain.time_units import DAY, MINUTE, SECOND

AT = 1_760_000_000_000
TERMS = AlertSettings(after=30 * SECOND, calm=60 * SECOND, again=60 * MINUTE)
OPS = "ops"


def finding(
    size: int = 3, kind: AlertKind = AlertKind.ABANDONED, key: str = "shop/bull:mail", since: int | None = None
) -> AlertFinding:
    return AlertFinding(kind, key, f"{size} jobs are abandoned.", "/stuck", size, since)


def look(
    standing: list[AlertRecord], at: int, *found: AlertFinding, terms: AlertSettings = TERMS, **told: object
) -> list[AlertRecord]:
    return list(alerts_after_check(standing, AlertCheck(at, found, **told), terms, AT))  # type: ignore[arg-type]


def one(standing: list[AlertRecord]) -> AlertRecord:
    (alert,) = standing
    return alert


def seen(alert: AlertRecord, after: int) -> AlertRecord:
    return replace(alert, seen_at=AT + after)


def test_a_trouble_is_news_once_it_has_lasted() -> None:
    alert = one(look([], AT, finding()))
    assert next_event(seen(alert, 29_000), OPS, TERMS, AT + 29_000) is None
    assert next_event(alert, OPS, TERMS, AT + 30_000) is None, "it was not seen since"
    alert = seen(alert, 30_000)
    assert next_event(alert, OPS, TERMS, AT + 30_000) is AlertEvent.FIRING
    told = alert.told(OPS, AlertEvent.FIRING, AT + 30_000)
    assert next_event(told, OPS, TERMS, AT + 59 * MINUTE) is None
    assert next_event(told, "night", TERMS, AT + 59 * MINUTE) is AlertEvent.FIRING


def test_what_its_source_knows_to_be_old_is_news_at_once() -> None:
    alert = one(look([], AT, finding(since=AT - HOUR)))
    assert next_event(alert, OPS, TERMS, AT) is AlertEvent.FIRING


def test_it_is_over_when_it_was_not_seen_for_a_while() -> None:
    alert = replace(one(look([], AT, finding())), number=7).told(OPS, AlertEvent.FIRING, AT)
    still = one(look([alert], AT + 59_000))
    assert still.resolved_at is None
    back = one(look([still], AT + 59_500, finding(4)))
    assert (back.seen_at, back.size, back.number) == (AT + 59_500, 4, 7)
    over = one(look([back], AT + 120_000))
    assert over.resolved_at == AT + 120_000
    assert next_event(over, OPS, TERMS, AT + 120_000) is AlertEvent.RESOLVED
    assert next_event(over, "night", TERMS, AT + 120_000) is None, "it has never heard of it"
    assert next_event(over, OPS, TERMS, AT + 2 * DAY) is None
    assert next_event(over.told(OPS, AlertEvent.RESOLVED, AT), OPS, TERMS, AT + 120_000) is None


def test_what_cannot_be_looked_at_is_not_over() -> None:
    alert = one(look([], AT, finding()))
    later = AT + HOUR
    assert one(look([alert], later, known=frozenset({AlertKind.GATE}))).resolved_at is None
    assert one(look([alert], later, silent=frozenset({"shop"}))).resolved_at is None
    assert one(look([alert], later, silent=frozenset({"other"}))).resolved_at == later
    silence = one(look([], AT, finding(kind=AlertKind.UNREADABLE, key="shop")))
    assert one(look([silence], later, silent=frozenset({"shop"}))).resolved_at == later, "that is what it is about"


def test_whoever_has_just_begun_to_look_knows_of_no_end() -> None:
    alert = replace(one(look([], AT, finding())), seen_at=AT - HOUR)
    assert one(look([alert], AT + 30_000)).resolved_at is None
    assert one(look([alert], AT + 60_000)).resolved_at == AT + 60_000


def test_one_that_comes_back_is_a_new_one() -> None:
    over = replace(one(look([], AT, finding())), resolved_at=AT + MINUTE, number=7)
    old, new = look([over], AT + 2 * MINUTE, finding())
    assert (old.number, new.number, new.since) == (7, None, AT + 2 * MINUTE)


def test_twice_as_many_is_worse_and_time_alone_a_reminder() -> None:
    told = one(look([], AT, finding(10))).told(OPS, AlertEvent.FIRING, AT)
    later = AT + MINUTE
    assert next_event(one(look([told], later, finding(19))), OPS, TERMS, later) is None
    assert next_event(one(look([told], later, finding(20))), OPS, TERMS, later) is AlertEvent.WORSE
    assert next_event(one(look([told], later - 1, finding(20))), OPS, TERMS, later - 1) is None
    assert next_event(told, OPS, TERMS, AT + HOUR) is AlertEvent.REMINDER
    assert next_event(told, OPS, replace(TERMS, again=None), AT + 10 * DAY) is None


def test_a_gate_and_a_lost_leader_take_their_own_time() -> None:
    terms = AlertSettings(after=0, gate_after=10 * MINUTE)
    gate = one(look([], AT, finding(kind=AlertKind.GATE), terms=terms))
    leader = one(look([], AT, finding(kind=AlertKind.SCHEDULER), terms=terms))
    for alert, ripe in ((gate, 10 * MINUTE), (leader, 30_000)):
        assert next_event(seen(alert, ripe - 1), OPS, terms, AT + ripe) is None
        assert next_event(seen(alert, ripe), OPS, terms, AT + ripe) is AlertEvent.FIRING


def test_a_kind_that_is_not_wanted_any_more_is_over() -> None:
    alert = one(look([], AT, finding()))
    terms = replace(TERMS, kinds=frozenset({AlertKind.GATE}))
    assert one(look([alert], AT + 1, finding(), terms=terms)).resolved_at == AT + 1


def test_an_attempt_that_did_not_end_may_have_been_heard() -> None:
    alert = one(look([], AT, finding())).with_heard(OPS, AlertDelivery(trying=AT))
    assert not is_free(alert.by(OPS), AT + 14_000)
    assert is_free(alert.by(OPS), AT + 15_000)
    assert is_free(alert.by(OPS), AT - HOUR), "a clock that was set back holds nothing up"
    over = replace(alert, resolved_at=AT + MINUTE)
    assert next_event(over, OPS, TERMS, AT + MINUTE) is AlertEvent.RESOLVED


def test_a_message_has_the_same_name_when_it_is_sent_again_and_another_when_it_is_another() -> None:
    alert = one(look([], AT, finding()))
    assert alert.name(OPS) == alert.with_heard(OPS, AlertDelivery(trying=AT)).name(OPS)
    names = {alert.name(OPS), alert.told(OPS, AlertEvent.FIRING, AT).name(OPS), replace(alert, key="x").name(OPS)}
    assert len(names) == 3


@given(some.text(max_size=3000))
def test_words_are_one_bounded_line_that_any_database_takes(words: str) -> None:
    for made in (redact_words(words), storage_key(words)):
        assert len(made) <= WORDS_LIMIT
        assert made.isprintable() or not made.strip() or all(sign >= " " for sign in made)
        made.encode()


def test_words_hold_no_secret_and_keys_stay_apart() -> None:
    assert redact_words("refused: password=hunter2\r\nBcc: x") == "refused: password=[redacted] Bcc: x"
    assert storage_key("a" * 300 + "1") != storage_key("a" * 300 + "2")


@given(some.lists(some.booleans(), min_size=1, max_size=200))
def test_however_it_flickers_each_end_is_told_after_its_beginning(seen: list[bool]) -> None:
    """Looks five seconds apart: told and resolved alternate, and at most one alert of a key is open."""
    standing: list[AlertRecord] = []
    told: list[AlertEvent] = []
    for number, is_there in enumerate(seen):
        at = AT + number * 5 * SECOND
        standing = look(standing, at, *([finding()] if is_there else []))
        for place, alert in enumerate(standing):
            if event := next_event(alert, OPS, TERMS, at):
                told.append(event)
                standing[place] = alert.told(OPS, event, at)
        assert sum(alert.resolved_at is None for alert in standing) <= 1
    expected = [(AlertEvent.FIRING, AlertEvent.RESOLVED)[place % 2] for place in range(len(told))]
    assert told == expected


HOUR = 60 * MINUTE
