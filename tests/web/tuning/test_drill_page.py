"""/tuning/drill: what was measured beside what was predicted, what is missing, and the order that an admin gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.tuning.drills import views as drills_views
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.drills.plan import DrillLibrary, DrillPlan, StopSignal
from recovery.domain.drills.results import DrillRound, DrillStage, RoundOutcome, measure_stages
from recovery.drills import drill_orders as orders
from recovery.drills import queries as drills_queries
from recovery.drills.queries import DrillOffer
from recovery.models import AuditEntry, DrillRun
from recovery.stores import registry
from tests.support.people import browser, person, text
from tests.support.stuck.watching import now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
NASTY = '"><img src=x onerror=alert(1)>'
FIELDS = {
    "library": "bull",
    "lock": "60s",
    "renew": "10s",
    "stalled_interval": "30s",
    "max_stalled": "0",
    "workers": "2",
    "concurrency": "10",
    "rounds": "3",
    "means": "TERM",
    "shutdown": "30s",
    "grace": "30s",
    "job": "2min",
    "reason": "before the night shift",
}
MOMENTS = {
    DrillStage.ENDED: 0.01,
    DrillStage.GONE: None,
    DrillStage.UNLOCKED: 25.0,
    DrillStage.MARKED: 12.0,
    DrillStage.BACK: 61.0,
    DrillStage.AGAIN: 61.004,
}


@pytest.fixture
def admin(desk: Desk) -> Iterator[Client]:
    desk.look()
    offer(*(DrillOffer(library, "5.1.0", "") for library in DrillLibrary))
    yield browser(person(UserRole.ADMIN))
    drills_views._shown.forget()


def offer(*offers: DrillOffer) -> None:
    drills_queries.write(registry.registry().state(), offers)
    drills_views._shown.forget()


def run(status: str = "ended", **facts: object) -> DrillRun:
    rounds = [DrillRound(1, RoundOutcome.AGAIN, 9000, measure_stages(MOMENTS, 0.0, DrillStage.AGAIN), 61_004, True)]
    told = {
        "status": status,
        "plan": canonical(DrillPlan().as_json()),
        "actor": canonical({"kind": "person", "name": "anna"}),
        "reason": "a quiet evening",
        "wanted_at": now_ms(),
        "rounds": json.dumps([one.as_json() for one in rounds]),
        "version": "5.81.5",
    }
    drills_views._shown.forget()
    return DrillRun.objects.create(**(told | facts))


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_drill_stands_beside_its_prediction(admin: Client) -> None:
    one = run()
    said = plain(text(admin, "/tuning/drill"))
    for words in ("BullMQ 5.81.5", "by anna", "lock 30s, renew 15s", "1 min 1 s", "1 of 1 rounds", "at worst 2 min"):
        assert words in said
    page = text(admin, f"/tuning/drill/{one.pk}")
    said = plain(page)
    for words in ("a quiet evening", "Measured and predicted", "after 9 s of its job", "manage.py drill"):
        assert words in said
    assert 'data-part="check"' in page
    assert "hx-get" not in page.split('id="drill-run"')[1].split(">")[0]


def test_a_stage_that_was_not_seen_is_not_zero(admin: Client) -> None:
    page = text(admin, f"/tuning/drill/{run().pk}")
    cell = page.split('data-label="connection gone"')[1].split("</td>")[0]
    assert "0 ms" not in cell
    assert "–" in cell
    assert "25 s" in page.split('data-label="lock ended"')[1].split("</td>")[0]


def test_one_that_recovered_nothing_says_so(admin: Client) -> None:
    left = DrillRound(
        1,
        RoundOutcome.LEFT,
        9000,
        measure_stages({}, 0.0, DrillStage.AGAIN),
        None,
        says="No worker had taken it over after 9 s.",
    )
    one = run(rounds=json.dumps([left.as_json()]), plan=canonical(DrillPlan(workers=1).as_json()))
    said = plain(text(admin, f"/tuning/drill/{one.pk}"))
    for words in (
        "1: not recovered",
        "No worker had taken it over after 9 s.",
        "no other worker can take over",
        "0 of 1",
    ):
        assert words in said
    assert "never" in plain(text(admin, "/tuning/drill/now"))


def test_the_one_under_way_is_live_with_its_stages(admin: Client) -> None:
    steps = json.dumps([[2, "picked up", 0], [2, "signal", 12_000], [2, "lock ended", 24_100]])
    one = run("running", under_way=steps, plan=canonical(DrillPlan(rounds=5).as_json()))
    for page in (text(admin, "/tuning/drill"), text(admin, f"/tuning/drill/{one.pk}/now")):
        said = plain(page)
        assert "round 2 of 5" in said
        assert "lock ended 24 s" in said
        assert "unstall:refresh" in page


def test_what_is_missing_is_said_with_how_to_have_it(admin: Client) -> None:
    offer(
        DrillOffer(DrillLibrary.BULLMQ, "", "No package bullmq was found."),
        DrillOffer(DrillLibrary.PYTHON, "3.4.4", ""),
    )
    said = plain(text(admin, "/tuning/drill"))
    assert "No package bullmq was found." in said
    assert "3.4.4" in said
    registry.registry().state().flushall()
    drills_views._shown.forget()
    assert "The installed libraries are unknown" in text(admin, "/tuning/drill")


# -- ordering


def test_only_a_library_that_is_installed_can_be_ordered(admin: Client) -> None:
    offer(
        DrillOffer(DrillLibrary.BULLMQ, "", "No package bullmq was found."),
        DrillOffer(DrillLibrary.PYTHON, "3.4.4", ""),
    )
    form = text(admin, "/tuning/drill/order")
    assert re.findall(r'<option value="(\w+)"', form.split('name="library"')[1].split("</select>")[0]) == ["python"]
    assert "Select a valid choice" in text_of_post(admin, FIELDS | {"library": "bullmq"})
    assert DrillRun.objects.count() == 0


def test_where_no_library_is_installed_none_is_offered(admin: Client) -> None:
    offer(*(DrillOffer(library, "", "Nothing was found.") for library in DrillLibrary))
    assert "Start a drill" not in text(admin, "/tuning/drill")
    assert "Start the drill" not in text(admin, "/tuning/drill/order")
    assert "Select a valid choice" in text_of_post(admin, FIELDS)


def test_an_admin_orders_what_is_written(admin: Client) -> None:
    assert 'name="lock" value="30s"' in text(admin, "/tuning/drill/order")
    answer = admin.post("/tuning/drill/order", FIELDS)
    one = DrillRun.objects.get()
    assert answer.headers["Location"] == f"/tuning/drill/{one.pk}"
    plan = DrillPlan(DrillLibrary.BULL, 60_000, 10_000, 30_000, 0, 10, 2, 3, StopSignal.TERM)
    assert drills_queries.run(one.pk).plan == plan
    note = AuditEntry.objects.get(act=orders.NOTE)
    assert (note.reason, note.actor, json.loads(note.body)["plan"]) == (
        FIELDS["reason"],
        "some-admin",
        plan.as_json(),
    )
    assert "it is killed with SIGKILL during shutdown" in plain(text(admin, f"/tuning/drill/{one.pk}"))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("lock", "soon", "Write a time as"),
        ("lock", "0s", "Write 0.1 s to 3600 s."),
        ("workers", "99", "less than or equal to 16"),
        ("library", "celery", "Select a valid choice"),
        ("rounds", "50", "more than four hours"),
        ("reason", " ", "Enter a reason"),
        ("job", NASTY[:20], "Write a time as"),
    ],
    ids=["time", "least", "most", "library", "hours", "reason", "hostile"],
)
def test_what_cannot_be_ordered_is_said_beside_what_was_written(
    admin: Client, field: str, value: str, words: str
) -> None:
    more = {"stalled_interval": "10min"} if words == "more than four hours" else {}
    page = text_of_post(admin, FIELDS | more | {field: value})
    assert words in page
    assert "<img" not in page
    assert DrillRun.objects.count() == 0


def text_of_post(client: Client, fields: dict[str, str]) -> str:
    answer = client.post("/tuning/drill/order", fields)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_second_one_has_to_wait(admin: Client) -> None:
    admin.post("/tuning/drill/order", FIELDS)
    assert "Another fire drill is running" in text_of_post(admin, FIELDS)
    assert DrillRun.objects.count() == 1


def test_stopping_is_asked_once(admin: Client) -> None:
    one = run("running")
    assert admin.post(f"/tuning/drill/{one.pk}/stop").headers["Location"] == f"/tuning/drill/{one.pk}"
    assert DrillRun.objects.get().wants_stop
    assert "Stopping" in text(admin, f"/tuning/drill/{one.pk}")
    assert admin.post("/tuning/drill/999/stop").status_code == 404
    assert text(admin, "/tuning/drill/999", 404)


@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.OPERATOR])
def test_others_look_and_order_nothing(admin: Client, role: UserRole) -> None:
    one, other = run("running"), browser(person(role))
    assert "Start a drill" not in text(other, "/tuning/drill")
    assert ">Stop<" not in text(other, f"/tuning/drill/{one.pk}")
    for address in ("/tuning/drill/order", f"/tuning/drill/{one.pk}/stop"):
        assert other.post(address, FIELDS).status_code == 403
    assert (DrillRun.objects.count(), DrillRun.objects.get().wants_stop) == (1, False)


def test_hostile_words_stay_words(admin: Client) -> None:
    odd = DrillRound(1, RoundOutcome.FAILED, 1, measure_stages(MOMENTS, 0.0, DrillStage.FAILED), None, says=NASTY)
    steps = json.dumps([[1, NASTY, 5]])
    nasty = {"reason": NASTY, "version": NASTY[:40], "trouble": NASTY, "under_way": steps}
    rounds = json.dumps([odd.as_json()])
    one = run("failed", **nasty, rounds=rounds, actor=canonical({"kind": "person", "name": NASTY}))
    two = run("running", **nasty, rounds=rounds)
    offer(DrillOffer(DrillLibrary.BULL, "", NASTY))
    for address in ("/tuning/drill", f"/tuning/drill/{one.pk}", f"/tuning/drill/{two.pk}", "/tuning/drill/order"):
        assert "<img" not in text(admin, address)
