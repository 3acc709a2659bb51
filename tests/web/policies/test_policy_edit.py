"""The policies on /scanners: the table of all places, and one of them edited: looked at, then saved, with a reason."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.scanners import views as scanners_views
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.models import AuditEntry, PolicyLayer
from recovery.stores import registry
from tests.support.people import browser, person
from tests.support.stuck.watching import bullmq, now_ms
from tests.web.acting import BASE, REASON, token
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
MAIL = f"/scanners/policy?queue=main/{BASE}"
EVERYWHERE = "/scanners/policy"
NASTY = '"><img src=x onerror=alert(1)>'
NOTE = "the provider refuses a message id twice"
ARMED = {"auto_retry.mode": "enabled", "auto_retry.most": "50", "idempotency": NOTE}


@pytest.fixture
def admin(desk: Desk) -> Client:
    for base in (BASE, "bull:orders"):
        bullmq(desk.client, base)
    desk.look(BASE, "bull:orders")
    return browser(person(UserRole.ADMIN))


def look(client: Client, address: str, **fields: str) -> str:
    """What it would change is asked for; the page with the answer."""
    shown = client.get(address)
    assert shown.status_code == 200, shown.content.decode()
    answer = client.post(address, {"token": token(shown.content), "step": "look", **fields})
    assert answer.status_code == 200
    return answer.content.decode()


def save(client: Client, address: str, page: str, **fields: str) -> Any:
    return client.post(address, {"token": token(page.encode()), "step": "confirm", "reason": REASON} | fields)


def written(base: str = BASE) -> dict[str, Any] | None:
    row = PolicyLayer.objects.filter(base=base).first()
    return json.loads(row.written) if row else None


def configure(desk: Desk, tmp_path: Path, more: str) -> None:
    with (tmp_path / "unstall.toml").open("a") as file:
        file.write(f"\n{more}\n")
    registry.reset()


def row(page: str, place: str) -> str:
    found = re.search(rf"<tr data-row.*?{re.escape(place)}.*?</tr>", page[page.rindex("<caption") :], re.DOTALL)
    assert found, page
    # The expression begins at the first row: what counts stands in the last one of what it found.
    return found[0].rpartition("<tr data-row")[2]


def test_every_place_is_in_the_table_and_those_with_words_of_their_own_come_first(admin: Client) -> None:
    PolicyLayer.objects.create(deployment="main", base="bull:orders", written="{}", by="anna", at=now_ms())
    page = admin.get("/scanners").content.decode()
    assert page.index("All queues</b>") < page.index("<code>bull:orders</code>") < page.index("<code>bull:mail</code>")


def test_the_address_of_the_table_alone_leads_to_the_whole_page(admin: Client) -> None:
    answer = admin.get("/scanners/policies?q=ORD&from=25")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/scanners?q=ORD&from=25#policies")
    part = admin.get("/scanners/policies?q=ORD", headers={"HX-Request": "true"}).content.decode()
    assert part.startswith('<section id="policies"')
    assert "bull:orders" in part


def test_the_defaults_are_dry_runs_but_for_the_stale_check(admin: Client) -> None:
    cells = row(admin.get("/scanners").content.decode(), "<code>bull:mail</code>")
    assert re.findall(r'data-label="([\w-]+)">\s*<span class="badge" data-state="([\w-]+)"', cells) == [
        ("orphan-watch", "dry-run"),
        ("stale-check", "enabled"),
        ("auto-retry", "dry-run"),
    ]


def test_a_queue_is_found_by_a_part_of_its_name(admin: Client) -> None:
    page = admin.get("/scanners?q=ORD").content.decode()
    assert "bull:orders" in page
    assert "bull:mail" not in page
    assert "No queue name contains this." in admin.get("/scanners?q=nothing").content.decode()


def test_many_queues_come_in_pages(desk: Desk, admin: Client) -> None:
    bases = [f"bull:q{number:03}" for number in range(40)]
    for base in bases:
        bullmq(desk.client, base)
    desk.look(*bases)
    first = admin.get("/scanners").content.decode()
    assert 'href="/scanners?from=25#policies"' in first
    assert "bull:q024" not in first
    assert "bull:q024" in admin.get("/scanners?from=25").content.decode()


@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.OPERATOR])
def test_only_an_admin_edits(admin: Client, role: UserRole) -> None:
    page = browser(person(role)).get("/scanners").content.decode()
    assert ">enabled</span>" in page
    assert "policy-edit" not in page
    assert ">Edit</a>" not in page
    assert browser(person(role)).post(MAIL, {"step": "confirm", **ARMED}).status_code == 403


def test_looking_says_what_would_change_and_changes_nothing(admin: Client) -> None:
    page = look(admin, MAIL, **ARMED)
    assert "auto-retry: Dry run, at most 100 jobs per run. → Enabled, at most 50 jobs per run." in page
    assert ">Save</button>" in page
    assert written() is None
    assert not AuditEntry.objects.exists()


def test_what_was_shown_is_saved_with_its_reason(admin: Client) -> None:
    page = look(admin, MAIL, **ARMED)
    answer = save(admin, MAIL, page, **ARMED)
    assert answer.headers["Location"] == "/scanners#policies"
    assert written() == {"auto_retry": {"mode": "enabled", "most": 50}, "idempotency": NOTE}
    entry = AuditEntry.objects.get()
    assert (entry.actor_kind, entry.reason, entry.base) == ("person", REASON, BASE)
    assert "The policy of bull:mail in main was changed." in admin.get("/scanners").content.decode()
    assert 'class="sub origin">by ' in row(admin.get("/scanners").content.decode(), "<code>bull:mail</code>")


def test_what_was_never_shown_is_shown_first(admin: Client) -> None:
    shown = admin.get(MAIL).content.decode()
    answer = save(admin, MAIL, shown, **ARMED)
    assert "Check the changes again; nothing was changed." in answer.content.decode()
    assert written() is None


def test_what_was_changed_after_it_was_shown_is_shown_again(admin: Client) -> None:
    page = look(admin, MAIL, **ARMED)
    answer = save(admin, MAIL, page, **(ARMED | {"auto_retry.most": "5000"})).content.decode()
    assert "Check the changes again; nothing was changed." in answer
    assert "at most 5,000 jobs" in answer
    assert written() is None


def test_an_edit_of_somebody_else_meanwhile_is_not_overwritten(admin: Client) -> None:
    page = look(admin, MAIL, **ARMED)
    other = {"never": {"names": ["charge"]}}
    PolicyLayer.objects.create(deployment="main", base=BASE, written=json.dumps(other), by="ben", at=now_ms())
    answer = save(admin, MAIL, page, **ARMED).content.decode()
    assert "nothing was changed" in answer or "This policy was edited meanwhile" in answer
    assert written() == other


def test_another_person_cannot_confirm_what_one_was_shown(admin: Client) -> None:
    page = look(admin, MAIL, **ARMED)
    answer = save(browser(person(UserRole.ADMIN, name="second")), MAIL, page, **ARMED)
    assert "nothing was changed" in answer.content.decode()
    assert written() is None


def test_without_a_reason_nothing_is_saved(admin: Client) -> None:
    page = look(admin, MAIL, **ARMED)
    assert "Enter a reason." in save(admin, MAIL, page, reason="  ", **ARMED).content.decode()
    assert written() is None


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("stale_check.after", "soon", "a number from 0 to 2,592,000"),
        ("stale_check.after", "99999999999", "a number from 0 to 2,592,000"),
        ("stale_check.most", "0", "a whole number from 1 to 10,000"),
        ("stale_check.most", "1.5", "a whole number from 1 to 10,000"),
        ("stale_check.mode", "explode", "&quot;dry-run&quot; or &quot;enabled&quot;"),
        ("stale_check.release", "maybe", "true or false"),
    ],
)
def test_a_slip_of_the_pen_is_told_beside_its_field(admin: Client, field: str, value: str, says: str) -> None:
    page = look(admin, MAIL, **{field: value})
    name = f"policy-{field.replace('.', '-')}"
    assert re.search(rf'id="{name}-wrong"><li>[^<]*{re.escape(says)}', page), page
    assert "This cannot be saved. Correct the errors below." in page
    assert "Save</button>" not in page
    save(admin, MAIL, page, **{field: value})
    assert written() is None


def test_backoffs_are_lines_of_a_table_and_stay_as_they_were_written(admin: Client) -> None:
    fields = {
        "backoff.0.name": "mail*",
        "backoff.0.attempts": "3",
        "backoff.0.first": "5",
        "backoff.1.name": "oauth",
        "backoff.1.first": "60",
        "backoff.1.factor": "1.5",
    }
    page = look(admin, MAIL, **fields)
    save(admin, MAIL, page, **fields)
    assert written() == {
        "backoff": {"mail*": {"attempts": 3, "first": 5}, "oauth": {"first": 60, "factor": 1.5}},
    }
    shown = admin.get(MAIL).content.decode()
    assert 'name="backoff.0.name" type="text" value="mail*"' in shown
    assert 'name="backoff.1.factor" type="text" value="1.5"' in shown
    assert 'name="backoff.2.name" type="text" value=""' in shown, "there is always a line to write into"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"backoff.0.name": "a", "backoff.1.name": "a", "backoff.1.first": "5"}, "is listed twice"),
        ({"backoff.0.name": "", "backoff.0.attempts": "3"}, "Write 1 to 500 characters"),
        ({"backoff.0.name": "a", "backoff.0.attempts": "many"}, "a whole number from 0 to 100"),
        ({"backoff.0.name": "a", "backoff.0.first": "60", "backoff.0.longest": "5"}, "shorter than the first pause"),
        ({"never.signatures": "123"}, "which is empty when its numbers are left out"),
        ({"never.names": "x" * 501}, "Write 1 to 500 characters"),
    ],
)
def test_what_cannot_be_is_refused(admin: Client, fields: dict[str, str], says: str) -> None:
    page = look(admin, MAIL, **fields)
    assert says in html.unescape(page)
    assert "Save</button>" not in page


def test_what_was_typed_is_kept_when_it_is_refused(admin: Client) -> None:
    page = look(admin, MAIL, reason="ticket 12", **ARMED, **{"stale_check.after": "soon", "never.names": "pay\nbook"})
    for kept in ('value="soon"', 'value="50"', ">pay\nbook</textarea>", f">{NOTE}</textarea>", ">ticket 12</textarea>"):
        assert kept in page, kept


def test_one_line_is_one_entry_of_what_is_never_auto_retried(admin: Client) -> None:
    fields = {"never.names": " charge \n\nbook\ncharge", "never.signatures": "card declined"}
    page = look(admin, MAIL, **fields)
    save(admin, MAIL, page, **fields)
    assert written() == {"never": {"names": ["charge", "book"], "signatures": ["card declined"]}}


def test_emptied_it_is_as_the_file_and_the_defaults_say(admin: Client) -> None:
    PolicyLayer.objects.create(
        deployment="main", base=BASE, written=json.dumps({"stale_check": {"mode": "dry-run"}}), by="anna", at=now_ms()
    )
    shown = admin.get(MAIL)
    page = admin.post(MAIL, {"token": token(shown.content), "step": "empty"}).content.decode()
    assert "stale-check: Dry run" in page
    assert save(admin, MAIL, page).status_code == 302
    assert written() is None


def test_armed_without_a_note_it_says_that_it_observes(admin: Client) -> None:
    fields = {"auto_retry.mode": "enabled"}
    page = look(admin, MAIL, **fields)
    assert "It stays in dry run until the idempotency note below is set." in page
    save(admin, MAIL, page, **fields)
    cells = row(admin.get("/scanners").content.decode(), "<code>bull:mail</code>")
    assert "enabled, but the idempotency note is not set" in cells


def test_what_counts_without_it_stands_in_the_empty_fields(desk: Desk, admin: Client, tmp_path: Path) -> None:
    configure(
        desk, tmp_path, "[policy.stale_check]\nafter = 1200\nmode = 'dry-run'\n[policy.never]\nnames = ['charge']"
    )
    page = admin.get(MAIL).content.decode()
    assert 'name="stale_check.after" type="text" value="" placeholder="1200"' in page
    assert ">Inherit (dry run)</option>" in page
    assert "Inherited: charge" in page
    cells = row(admin.get("/scanners").content.decode(), "<code>bull:mail</code>")
    assert "from all queues" in cells


def test_all_queues_have_a_policy_of_their_own(admin: Client) -> None:
    fields = {"orphan_watch.mode": "enabled", "orphan_watch.release": "true"}
    page = look(admin, EVERYWHERE, **fields)
    assert "Changes for all queues:" in page
    save(admin, EVERYWHERE, page, **fields)
    assert written("") == {"orphan_watch": {"mode": "enabled", "release": True}}
    cells = row(admin.get("/scanners").content.decode(), "<code>bull:mail</code>")
    assert "releases locks" in cells
    assert "from all queues" in cells


def test_an_edit_of_another_version_is_told_and_can_be_replaced(admin: Client) -> None:
    PolicyLayer.objects.create(deployment="main", base=BASE, written='{"later": {}}', by="anna", at=now_ms())
    page = admin.get("/scanners").content.decode()
    assert "The edited policy for bull:mail cannot be read, so no scanner acts" in page
    assert 'data-state="enabled"' not in row(page, "<code>bull:mail</code>")
    shown = look(admin, MAIL, **ARMED)
    save(admin, MAIL, shown, **ARMED)
    assert written() == {"auto_retry": {"mode": "enabled", "most": 50}, "idempotency": NOTE}


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/scanners/policy?queue=main", 400),
        ("/scanners/policy?queue=main/~zz", 400),
        ("/scanners/policy?queue=nowhere/bull:mail", 404),
        ("/scanners/policy?deployment=nowhere", 404),
        ("/scanners/policy?deployment=main", 200),
    ],
)
def test_an_address_that_means_nothing_is_told(admin: Client, address: str, status: int) -> None:
    assert admin.get(address).status_code == status
    assert admin.post(address, {"step": "look"}).status_code == status


def test_the_sweep_of_tables_is_no_business_of_a_redis_queue(admin: Client) -> None:
    assert "startup_sweep" not in admin.get(MAIL).content.decode()
    assert "startup_sweep" in admin.get(EVERYWHERE).content.decode()


def test_in_a_dialog_the_answer_is_a_toast(admin: Client) -> None:
    headers = {"HX-Request": "true"}
    shown = admin.get(MAIL, headers=headers)
    assert "<html" not in shown.content.decode()
    fields = ARMED | {"token": token(shown.content), "reason": REASON}
    looked = admin.post(MAIL, fields | {"step": "look"}, headers=headers)
    answer = admin.post(MAIL, fields | {"step": "confirm", "token": token(looked.content)}, headers=headers)
    assert answer.status_code == 204
    assert json.loads(answer.headers["HX-Trigger"])["unstall:toast"]["tone"] == "good"


def test_the_way_back_leads_only_into_our_own_house(admin: Client) -> None:
    assert 'href="/queues" data-closes' in admin.get(f"{MAIL}&back=/queues").content.decode()
    for evil in ("https://evil.example", "//evil.example", "javascript:alert(1)"):
        assert (
            "evil" not in admin.get(MAIL, {"queue": f"main/{BASE}", "back": evil}).content.decode().split("</head>")[1]
        )


def test_harmful_names_and_notes_are_only_text(desk: Desk, admin: Client) -> None:
    base = f"bull:{NASTY}"
    bullmq(desk.client, base)
    desk.look(base)
    shown = admin.get("/scanners").content.decode()
    found = re.search(r'href="(/scanners/policy\?queue=main/bull[^"]+)"', shown)
    assert found
    address = html.unescape(found[1])
    fields = {"idempotency": NASTY, "never.names": NASTY, "backoff.0.name": NASTY, "stale_check.after": NASTY}
    page = look(admin, address, **fields)
    fields.pop("stale_check.after")
    save(admin, address, look(admin, address, **fields), **fields)
    for told in (shown, page, admin.get(address).content.decode(), admin.get("/scanners").content.decode()):
        assert "<img" not in told


def test_where_nothing_may_be_changed_nothing_acts(desk: Desk, admin: Client, tmp_path: Path) -> None:
    file = tmp_path / "unstall.toml"
    file.write_text(file.read_text().replace('name = "main"', 'name = "main"\nread_only = true'))
    registry.reset()
    scanners_views.forget()
    page = admin.get("/scanners").content.decode()
    cells = row(page, "<code>bull:mail</code>")
    assert "the deployment is read-only" in cells
    assert 'data-state="enabled"' not in cells
    card = page[page.index('aria-labelledby="scan-stale-check"') : page.index('aria-labelledby="scan-auto-retry"')]
    assert 'dry run</span> <span class="muted">in all 2 queues' in card


def test_a_value_from_further_above_says_from_where(desk: Desk, admin: Client, tmp_path: Path) -> None:
    configure(desk, tmp_path, "[policy.stale_check]\nmost = 20")
    page = admin.get("/scanners").content.decode()
    assert "from the file" in row(page, "All queues</b>")
    assert "from all queues" in row(page, "<code>bull:mail</code>")


def test_a_job_table_is_the_business_of_its_own_scanners(desk: Desk, admin: Client) -> None:
    assert desk.snapshot is not None
    first, *others = desk.snapshot.queues
    table = first._replace(flavour=LibraryVersion(QueueLibrary.TABLE))
    desk.snapshot = replace(desk.snapshot, queues=(table, *others))
    scanners_views.forget()
    page = admin.get("/scanners").content.decode()
    cells = row(page, f"<code>{first.ref.base}</code>")
    assert re.findall(r'data-label="([\w-]+)">\s*<span class="badge"', cells) == ["auto-retry", "startup-sweep"]
    assert 'enabled</span> <span class="muted">in the only job table' in page
    form = admin.get(f"/scanners/policy?queue=main/{first.ref.base}").content.decode()
    assert "startup_sweep" in form
    assert "orphan_watch" not in form
