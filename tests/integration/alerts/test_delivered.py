"""Alerts kept in the database and told to a real receiver: once each, whoever tells it and however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from recovery.alerts import channel_health, delivery
from recovery.alerts.channel_backoff import ChannelBackoff
from recovery.alerts.notifier import AlertNotifier, AlertSender
from recovery.alerts.store import DatabaseAlertStore
from recovery.config import load
from recovery.domain.alerts.channels import Alerting, Channel, Webhook
from recovery.domain.alerts.messages import AlertMessage
from recovery.domain.alerts.types import AlertCheck, AlertDelivery, AlertFinding, AlertKind, AlertSettings
from recovery.domain.time_units import DAY, HOUR, MINUTE, SECOND
from recovery.errors import NotDelivered
from recovery.models import Alert
from recovery.stores.registry import ConnectionRegistry
from tests.support.processes.processes import free_port
from tests.support.receivers import HANG, Hooked, hooked
from tests.support.stores.stores import Store

pytestmark = pytest.mark.django_db(transaction=True)
AT = 1_760_000_000_000
KINDS = frozenset(AlertKind) - {AlertKind.SCHEDULER}
TERMS = AlertSettings(after=0, calm=60 * SECOND, again=4 * HOUR, most=10)


class Died(BaseException):
    """A process that was killed catches nothing."""


@pytest.fixture
def hook() -> Iterator[Hooked]:
    with hooked() as made:
        yield made


@pytest.fixture(autouse=True)
def _state(state_store: Store) -> None:
    """Empty for each test."""


class Office:
    """Desks over one database and one state store, each as a process of its own would have it."""

    def __init__(
        self, state: Store, *hooks: Hooked, terms: AlertSettings = TERMS, kinds: frozenset[AlertKind] = KINDS
    ) -> None:
        self.state = state
        named = [Webhook(f"ops{number or ''}", hook.url, kinds=kinds) for number, hook in enumerate(hooks)]
        self.alerting = Alerting(terms, tuple(named))

    def desk(self, deliver: object = delivery.deliver, may: object = None) -> AlertNotifier:
        sender = AlertSender(self.alerting, "test", "https://unstall.example", deliver)  # type: ignore[arg-type]
        return AlertNotifier(sender, ChannelBackoff(lambda: self.state.client), may or (lambda: True))  # type: ignore[arg-type]


def patiently(channel: Channel, told: AlertMessage) -> str:
    """With more time than a busy machine needs."""
    return delivery.deliver(channel, told, 30)


def trouble(size: int = 3, key: str = "main/bull:mail", kind: AlertKind = AlertKind.ABANDONED) -> AlertFinding:
    return AlertFinding(kind, key, f"{size} jobs are abandoned in {key}.", "/stuck", size)


def run(desk: AlertNotifier, at: int, *found: AlertFinding) -> int:
    return desk.run(DatabaseAlertStore(KINDS), AlertCheck(at, found))


def test_one_trouble_is_one_message_and_its_end_another(hook: Hooked, state_store: Store) -> None:
    desk = Office(state_store, hook).desk(patiently)
    for seconds in range(0, 60, 5):
        run(desk, AT + seconds * SECOND, trouble(3))
    for seconds in range(60, 200, 5):
        run(desk, AT + seconds * SECOND)
    assert hook.titles == [
        "[test] 3 jobs are abandoned in main/bull:mail.",
        "[test] Resolved after 1 min: 3 jobs are abandoned in main/bull:mail.",
    ]
    row = Alert.objects.get()
    assert row.is_settled
    run(desk, AT + DAY, trouble(3))
    assert Alert.objects.count() == 2
    assert len(hook.posted) == 3


def test_what_never_lasted_leaves_no_trace(hook: Hooked, state_store: Store) -> None:
    desk = Office(state_store, hook, terms=AlertSettings(after=30 * SECOND, calm=10 * SECOND)).desk(patiently)
    run(desk, AT, trouble())
    assert Alert.objects.count() == 1
    run(desk, AT + 15 * SECOND)
    assert not Alert.objects.exists()
    assert hook.posted == []


def test_each_channel_hears_its_kinds(hook: Hooked, state_store: Store) -> None:
    with hooked() as other:
        office = Office(state_store, hook, other)
        first, second = office.alerting.channels
        office.alerting = Alerting(TERMS, (first, Webhook("gates", second.url, kinds=frozenset({AlertKind.GATE}))))  # type: ignore[union-attr]
        desk = office.desk(patiently)
        run(desk, AT, trouble(), trouble(1, "eu-1", AlertKind.GATE))
        assert other.posted == []
        run(desk, AT + 11 * MINUTE, trouble(), trouble(1, "eu-1", AlertKind.GATE))
        assert [one.told["alerts"][0]["kind"] for one in other.posted] == ["gate"]
        assert [one.told["alerts"][0]["kind"] for one in hook.posted] == ["abandoned", "gate"]


def test_too_much_at_once_is_one_digest(hook: Hooked, state_store: Store) -> None:
    office = Office(state_store, hook, terms=AlertSettings(after=0, most=3))
    desk = office.desk(patiently)
    run(desk, AT, *(trouble(1, f"main/q{number}") for number in range(3)))
    assert hook.events() == ["firing"] * 3
    many = [trouble(1, f"main/q{number}") for number in range(40)]
    run(desk, AT + 5 * SECOND, *many)
    assert len(hook.posted) == 3, "three within a minute, and no more"
    run(desk, AT + 61 * SECOND, *many)
    assert hook.events()[3:] == ["digest"]
    assert hook.titles[-1] == "[test] 37 alerts: 37 firing"
    run(desk, AT + 10 * MINUTE, *many)
    assert len(hook.posted) == 4


def test_a_channel_that_fails_rests_longer_each_time_and_the_message_comes_once(
    hook: Hooked, state_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers = [500] * 6
    desk = Office(state_store, hook).desk(patiently)
    for seconds in range(0, 600, 5):
        run(desk, AT + seconds * SECOND, trouble())
    assert len(hook.posted) == 7
    names = {one.told["id"] for one in hook.posted}
    assert len(names) == 1, "a receiver can tell that it is the same"
    assert not any(one.told["repeated"] for one in hook.posted), "it has said that it had not taken it"
    outlet = channel_health.read(state_store.client)["ops"]
    assert (outlet.tries, outlet.trouble) == (0, "")
    assert caplog.text.count("alerts cannot be sent to ops") == 1


def test_one_that_fails_holds_up_no_other(hook: Hooked, state_store: Store) -> None:
    with hooked() as other:
        hook.answers = [500] * 100
        desk = Office(state_store, hook, other).desk(patiently)
        run(desk, AT, *(trouble(1, f"main/q{number}") for number in range(5)))
        assert len(hook.posted) == 1, "the other four would fare no better"
        assert len(other.posted) == 5


def test_an_answer_that_does_not_come_is_told_again_with_a_word_of_doubt(hook: Hooked, state_store: Store) -> None:
    hook.answers = [HANG]
    desk = Office(state_store, hook).desk(lambda channel, told: delivery.deliver(channel, told, 0.5))
    run(desk, AT, trouble())
    hook.released.set()
    assert channel_health.read(state_store.client)["ops"].trouble == "It has not answered within 0.5 s."
    again = Office(state_store, hook).desk(patiently)
    run(again, AT + 10 * SECOND, trouble())
    assert len(hook.posted) == 1
    run(again, AT + 30 * SECOND, trouble())
    assert [one.told["repeated"] for one in hook.posted] == [False, True]
    run(again, AT + 5 * MINUTE, trouble())
    assert len(hook.posted) == 2


def test_who_leads_next_tells_nothing_twice(hook: Hooked, state_store: Store) -> None:
    office = Office(state_store, hook)
    run(office.desk(patiently), AT, trouble())
    run(office.desk(patiently), AT + 10 * SECOND, trouble())
    assert hook.events() == ["firing"]


def test_whoever_dies_between_delivery_and_note_costs_one_repetition(hook: Hooked, state_store: Store) -> None:
    office = Office(state_store, hook)

    def dying(channel: Channel, told: AlertMessage) -> str:
        patiently(channel, told)
        raise Died

    with pytest.raises(Died):
        run(office.desk(dying), AT, trouble())
    heir = office.desk(patiently)
    for seconds in range(5, 200, 5):
        run(heir, AT + seconds * SECOND, trouble())
    assert [one.told["repeated"] for one in hook.posted] == [False, True]
    assert len({one.told["id"] for one in hook.posted}) == 1


def test_while_one_is_at_it_nobody_else_tells(hook: Hooked, state_store: Store) -> None:
    office = Office(state_store, hook)

    def meanwhile(channel: Channel, told: AlertMessage) -> str:
        assert run(office.desk(patiently), AT + SECOND, trouble()) == 0
        return patiently(channel, told)

    run(office.desk(meanwhile), AT, trouble())
    assert hook.events() == ["firing"]


def test_who_has_looked_before_another_told_cannot_claim_it(hook: Hooked, state_store: Store) -> None:
    office = Office(state_store, hook)
    run(office.desk(may=lambda: False), AT, trouble())
    slow = DatabaseAlertStore(KINDS)
    (alert,) = slow.standing()
    run(office.desk(patiently), AT, trouble())
    assert slow.hear(alert, "ops", AlertDelivery(trying=AT)) is None
    assert slow.add(replace(alert, number=None)) is None, "and cannot open it a second time"


def test_whoever_does_not_lead_any_more_tells_nothing(hook: Hooked, state_store: Store) -> None:
    run(Office(state_store, hook).desk(patiently, may=lambda: False), AT, trouble())
    assert hook.posted == []
    assert Alert.objects.count() == 1


def test_without_a_state_store_messages_go_all_the_same(hook: Hooked, state_store: Store) -> None:
    office = Office(state_store, hook)
    nowhere = ConnectionRegistry(load({"UNSTALL_STATE_URL": f"redis://127.0.0.1:{free_port()}/0"}))
    try:
        run(
            AlertNotifier(AlertSender(office.alerting, deliver=patiently), ChannelBackoff(nowhere.state)), AT, trouble()
        )
    finally:
        nowhere.close()
    assert hook.events() == ["firing"]


def test_a_deliverer_that_fails_unforeseen_is_a_channel_that_fails(hook: Hooked, state_store: Store) -> None:
    def broken(channel: Channel, told: AlertMessage) -> str:
        raise NotDelivered("It cannot be sent (KeyError).", may_have=True)

    assert run(Office(state_store, hook).desk(broken), AT, trouble()) == 0
    assert channel_health.read(state_store.client)["ops"].trouble == "It cannot be sent (KeyError)."


def test_rows_that_cannot_be_read_are_told_once_more_rather_than_never(hook: Hooked, state_store: Store) -> None:
    office = Office(state_store, hook)
    run(office.desk(patiently), AT, trouble())
    Alert.objects.update(deliveries="[broken")
    run(office.desk(patiently), AT + 5 * SECOND, trouble())
    run(office.desk(patiently), AT + 10 * SECOND, trouble())
    assert hook.events() == ["firing", "firing"]
