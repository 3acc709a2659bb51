"""/idempotency: what is claimed, expired and done, as far as each role may read it; and the release of a claim."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.idempotency import views as view
from recovery.domain.actions.types import Actor
from recovery.domain.idempotency import ClaimStep, IdempotencyState
from recovery.domain.identifiers import slug
from recovery.errors import BadOrder, Forbidden, NotRecorded
from recovery.idempotency import ledger_commands as acts
from recovery.idempotency import queries as reads
from recovery.idempotency.queries import IdempotencyCursor, IdempotencyFilter
from recovery.models import AuditEntry
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.support.idempotency import Desk as Ledger
from tests.support.people import browser, person
from tests.support.stores.stores import Store
from tests.support.waiting import until
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
NASTY = '"><img src=x onerror=alert(1)>'
SECRET = "hunter2"
REASON = "worker-3 was reclaimed"
ADMIN = Actor("person", "ann", "admin", may_act=True, may_bulk=True)


@pytest.fixture
def ledger(desk: Desk) -> Ledger:
    acts.guard.forget()
    return Ledger(desk.state.client)


@pytest.fixture
def admin() -> Client:
    return browser(person(UserRole.ADMIN))


def page(client: Client, query: str = "", status: int = 200) -> str:
    """As it is now, whatever was read a moment ago."""
    view._shown.forget()
    answer = client.get(f"/idempotency{query}")
    assert answer.status_code == status, answer.content.decode()
    return html.unescape(re.sub(r"\s+", " ", answer.content.decode()))


def address(act: str, key: str, token: int) -> str:
    return f"/idempotency/keys/{slug(key)}/{act}?token={token}"


def test_it_tells_what_is_claimed_by_whom_and_what_came_of_it(ledger: Ledger, admin: Client) -> None:
    assert "No keys yet." in page(admin)
    ledger.claim("order:1", owner="worker-3", by="billing")
    ledger.done("order:2", b'{"id":"ch_1"}')
    ledger.expired("order:3")
    shown = page(admin)
    for words in (">order:1</a>", "worker-3", "token billing", "9 min left", ">expired</span>"):
        assert words in shown
    assert '{"id":"<text of 4 characters>"}' in html.unescape(shown)
    assert [int(count) for count in re.findall(r"<small>(\d+)</small>", shown)] == [3, 1, 1, 1]
    only = page(admin, "?state=expired")
    assert "order:3" in only
    assert "order:1" not in only


def test_a_result_is_revealed_and_the_audit_has_it(ledger: Ledger, operator: Client, viewer: Client) -> None:
    ledger.done("done", json.dumps({"password": SECRET}).encode())
    assert viewer.post("/idempotency/keys/done/reveal").status_code == 403
    assert operator.post("/idempotency/keys/never/reveal").status_code == 404
    assert AuditEntry.objects.count() == 0
    assert SECRET in operator.post("/idempotency/keys/done/reveal").content.decode()
    (entry,) = AuditEntry.objects.all()
    assert (entry.act, json.loads(entry.body)) == ("reveal", {"options": {"key": "done", "parts": "result"}})


def test_a_viewer_reads_no_secret_of_a_result_and_gets_no_button(ledger: Ledger, admin: Client, viewer: Client) -> None:
    ledger.done("done", json.dumps({"password": SECRET}).encode())
    ledger.claim("claimed")
    for path in ("/idempotency", "/idempotency/rows", "/idempotency/keys/done"):
        view._shown.forget()
        assert SECRET not in admin.get(path).content.decode()
        told = viewer.get(path).content.decode()
        assert SECRET not in told
        assert "Release" not in told
        assert "Forget" not in told
        assert "Reveal" not in told


def test_names_that_mean_harm_are_only_text(ledger: Ledger, admin: Client) -> None:
    ledger.claim(NASTY, owner=NASTY, by=NASTY)
    ledger.done(f"done {NASTY}", json.dumps(NASTY).encode())
    for path in ("/idempotency", f"/idempotency/keys/{slug(NASTY)}", f"/idempotency/keys/{slug(f'done {NASTY}')}"):
        assert "<img" not in admin.get(path).content.decode()
    assert "<img" not in admin.get("/idempotency", {"q": NASTY}).content.decode()


def test_an_operator_releases_the_claim_that_was_shown(ledger: Ledger, operator: Client) -> None:
    token = ledger.token("order:1", owner="worker-3")
    assert address("release", "order:1", token) in page(operator)
    asked = operator.get(address("release", "order:1", token)).content.decode()
    assert "then the work is done twice" in asked
    assert "worker-3" in asked
    assert operator.post(address("release", "order:1", token), {"reason": " "}).status_code == 200
    assert ledger.show("order:1").state is IdempotencyState.CLAIMED
    assert operator.post(address("release", "order:1", token), {"reason": REASON}).status_code == 302
    assert ledger.show("order:1").state is IdempotencyState.FREE
    entry = AuditEntry.objects.get()
    assert (entry.phase, entry.act, entry.reason) == ("note", "release claim", REASON)
    assert json.loads(entry.body) == {
        "key": "order:1",
        "token": token,
        "owner": "worker-3",
        "by": "ci",
        "since": json.loads(entry.body)["since"],
        "state": "claimed",
    }


def test_a_claim_that_moved_since_it_was_shown_is_left_alone(ledger: Ledger, operator: Client) -> None:
    shown = ledger.expired("order:1")
    heir = ledger.token("order:1", owner="heir")
    for answer in (
        operator.get(address("release", "order:1", shown)),
        operator.post(address("release", "order:1", shown), {"reason": REASON}),
    ):
        assert answer.status_code == 404
        assert "claimed again" in answer.content.decode()
    ledger.complete("order:1", heir)
    assert operator.post(address("release", "order:1", heir), {"reason": REASON}).status_code == 404
    assert not AuditEntry.objects.exists()


def test_one_that_moves_at_the_last_moment_is_refused_by_its_token_and_that_is_noted(ledger: Ledger) -> None:
    ledger.expired("order:1")
    shown = ledger.show("order:1").claim
    assert shown
    heir = ledger.token("order:1", owner="heir")
    with pytest.raises(BadOrder, match=r"It was claimed meanwhile.*Nothing was done"):
        acts.release(ADMIN, shown, REASON)
    assert ledger.show("order:1").claim
    assert ledger.show("order:1").claim.token == heir  # type: ignore[union-attr]
    assert [entry.act for entry in AuditEntry.objects.order_by("number")] == ["release claim", "claim not changed"]


def test_without_the_audit_nothing_is_released(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    token = ledger.token("order:1")
    shown = ledger.show("order:1").claim
    assert shown

    def fails(*_: Any, **__: Any) -> int:
        raise NotRecorded("The audit cannot be written.")

    monkeypatch.setattr(acts.audit_log, "note", fails)
    with pytest.raises(NotRecorded):
        acts.release(ADMIN, shown, REASON)
    assert ledger.step(ClaimStep.RENEW, "order:1", token).word == "renewed"


def test_an_admin_forgets_what_was_done_so_that_it_can_be_done_again(
    ledger: Ledger, admin: Client, operator: Client
) -> None:
    token = ledger.done("order:2", b"1")
    assert operator.post(address("forget", "order:2", token), {"reason": REASON}).status_code == 403
    assert ledger.show("order:2").state is IdempotencyState.COMPLETED
    assert "does the work again" in admin.get(address("forget", "order:2", token)).content.decode()
    assert admin.post(address("forget", "order:2", token), {"reason": REASON}).status_code == 302
    assert ledger.show("order:2").state is IdempotencyState.FREE
    assert AuditEntry.objects.get().act == "forget completed"
    claimed = ledger.token("order:2")
    assert admin.post(address("forget", "order:2", claimed), {"reason": REASON}).status_code == 404


def test_the_right_is_asked_for_below_the_pages_too(ledger: Ledger) -> None:
    ledger.token("order:1")
    ledger.done("order:2")
    may_not = Actor("person", "vic", "viewer")
    may_act = Actor("person", "op", "operator", may_act=True)
    for act, key, actor in ((acts.release, "order:1", may_not), (acts.forget, "order:2", may_act)):
        shown = ledger.show(key).claim
        assert shown
        with pytest.raises(Forbidden):
            act(actor, shown, REASON)


@pytest.mark.parametrize("key", ["a/b c", "..", "ключ", "x" * 512, "a\tb\nc"], ids=range(5))
def test_a_key_of_any_text_has_a_page(ledger: Ledger, admin: Client, key: str) -> None:
    token = ledger.done(key, b'"what came of it"')
    assert f"/idempotency/keys/{slug(key)}" in page(admin)
    shown = admin.get(f"/idempotency/keys/{slug(key)}")
    assert shown.status_code == 200
    assert "&lt;text of 15 characters&gt;" in shown.content.decode()
    assert str(token) in shown.content.decode()
    assert admin.get("/idempotency/keys/none").status_code == 404


def test_pages_go_through_all_keys_once_newest_first(ledger: Ledger, admin: Client) -> None:
    keys = [f"k{number:03}" for number in range(123)]
    for key in keys:
        ledger.claim(key)
    seen: list[str] = []
    query = ""
    for _ in range(3):
        shown = page(admin, query)
        seen += re.findall(r">(k\d{3})</a>", shown)
        found = re.search(r'id="older" rel="next" href="/idempotency([^"]+)"', shown)
        query = found[1] if found else ""
    assert query == ""
    assert sorted(seen) == keys
    assert seen[0] == keys[-1]


@pytest.mark.parametrize("after", ["x", ".x", f"{'9' * 400}.x", f"{'9' * 5000}.x", "1.~~", "inf.x"])
def test_a_place_that_nobody_gave_out_begins_with_the_newest(ledger: Ledger, admin: Client, after: str) -> None:
    ledger.claim("some-key")
    assert "some-key" in page(admin, f"?after={after}")


def test_keys_of_the_same_moment_are_not_lost_between_windows(
    ledger: Ledger, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "WINDOW", 4)
    monkeypatch.setattr(reads, "SIZE", 5)
    for number in range(33):
        ledger.claim(f"k{number:02}")
        desk.state.client.zadd(state_keys.IDEMPOTENCY_NEWEST, {f"k{number:02}": 1_000 + number // 11})
    seen, after = list[str](), None
    while True:
        found = reads.listing(desk.state.client, IdempotencyFilter(after=after))
        seen += [row.claim.key for row in found.rows]
        if found.next is None:
            break
        after = IdempotencyCursor.parse(str(found.next))
    assert seen == sorted((f"k{number:02}" for number in range(33)), reverse=True)


def test_a_search_is_literal_bounded_and_finds_the_exact_key_however_old(
    ledger: Ledger, desk: Desk, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "LOOKED", 20)
    ledger.claim("old.*")
    desk.state.client.zadd(state_keys.IDEMPOTENCY_NEWEST, {"old.*": 1_000})  # not in the same millisecond as the next
    for number in range(40):
        ledger.claim(f"new-{number}")
    assert ">old.*</a>" in page(admin, "?q=old.*")
    bounded = page(admin, "?q=old")
    assert "None of the 20 newest keys contains “old”." in bounded
    found = re.search(r'id="older" rel="next" href="/idempotency([^"]+)"', bounded)
    assert found
    further = re.search(r'id="older" rel="next" href="/idempotency([^"]+)"', page(admin, found[1]))
    assert further
    assert ">old.*</a>" in page(admin, further[1])
    assert ">new-37</a>" in page(admin, "?q=NEW-37")
    assert "None of the 20 newest keys contains “.+”." in page(admin, "?q=.%2B")


def test_what_the_store_may_lose_is_said_while_something_is_claimed(
    ledger: Ledger, admin: Client, serve: Callable[..., Store], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "append-only file" not in page(admin)
    ledger.claim("k")
    assert "has no append-only file" in page(admin)
    sound = serve(options={"appendonly": "yes", "maxmemory-policy": "allkeys-lru"})
    monkeypatch.setenv("UNSTALL_STATE_URL", sound.url)
    registry.reset()
    acts.guard.forget()
    Ledger(sound.client).claim("k")
    told = page(admin)
    assert "append-only" not in told
    assert "allkeys-lru: when it is full it evicts any key, also idempotency keys" in told


def test_a_store_that_is_away_is_said_and_nothing_is_shown_as_none(ledger: Ledger, admin: Client, desk: Desk) -> None:
    ledger.claim("k")
    desk.state.stop()
    told = page(admin)
    assert "The state store does not answer" in told
    assert "No keys yet" not in told
    assert admin.get("/idempotency/keys/k").status_code == 503
    desk.state.start()
    until(lambda: "No keys yet" in page(admin))


@pytest.mark.parametrize(
    "record",
    [
        f"completed\t5\t1\t{'9' * 400}\t{'9' * 400}\t0\tci\tw",
        f"claimed\t{'9' * 5000}\t1\t1\t{2**62}\t0\tci\tw",
        "claimed\t1",
    ],
)
def test_a_record_that_is_none_is_said(ledger: Ledger, admin: Client, desk: Desk, record: str) -> None:
    """Another program may have written it."""
    desk.state.client.hset(state_keys.IDEMPOTENCY_RECORDS, "k", record)
    desk.state.client.zadd(state_keys.IDEMPOTENCY_NEWEST, {"k": 1e15})
    assert "The state store does not answer" in page(admin)
    assert admin.get("/idempotency/keys/k").status_code == 503


def test_a_counter_that_is_no_number_is_said(ledger: Ledger, admin: Client, desk: Desk) -> None:
    desk.state.client.hset(state_keys.IDEMPOTENCY_COUNTS, "bytes", "x")
    assert "The state store does not answer" in page(admin)


def test_a_full_ledger_is_said(ledger: Ledger, admin: Client, tmp_path: Any) -> None:
    toml = tmp_path / "unstall.toml"
    toml.write_text(f"{toml.read_text()}\n[idempotency]\nkeys = 100\n")
    registry.reset()
    for number in range(100):
        ledger.claim(f"k{number}")
    assert "its limit of 100 keys" in page(admin)
