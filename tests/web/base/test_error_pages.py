from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from dashboard import urls
from dashboard.accounts.roles import UserRole
from recovery.errors import AccessDenied, DeploymentMissing, JobMissing, QueueMissing, Unreachable, Unsupported
from tests.support.people import browser, person

pytestmark = pytest.mark.django_db


def raising(fault: Exception) -> Callable[..., HttpResponse]:
    def view(request: HttpRequest, **_: Any) -> HttpResponse:
        raise fault

    return view


DOWN = Unreachable("redis://10.1.2.3:6379/0", "Connection refused", command="LLEN")
urlpatterns = [
    path("faults/job/<str:deployment>/<name:base>/<name:id>", raising(JobMissing("17"))),
    path("faults/queue/<str:deployment>/<name:base>", raising(QueueMissing("x"))),
    path("faults/deployment", raising(DeploymentMissing("x"))),
    path("faults/down", raising(DOWN)),
    path("faults/denied", raising(AccessDenied("redis://db", "NOPERM", command="SCAN"))),
    path("faults/unsupported", raising(Unsupported("BullMQ Pro keeps <groups> that we cannot read."))),
    path("faults/broken", raising(ZeroDivisionError("hunter2"))),
    *urls.urlpatterns,
]
handler400, handler403, handler404, handler500 = urls.handler400, urls.handler403, urls.handler404, urls.handler500


@pytest.fixture
def client() -> Iterator[Client]:
    with override_settings(ROOT_URLCONF=__name__):
        yield browser(person(UserRole.VIEWER))


def test_a_job_that_is_gone_leads_to_its_queue(client: Client) -> None:
    answer = client.get("/faults/job/main/bull:mail~2Fout/17")
    page = answer.content.decode()
    assert answer.status_code == 404
    assert "Job not found" in page
    assert 'href="/queues/main/bull:mail~2Fout/"' in page
    assert "Queue: bull:mail/out" in page


@pytest.mark.parametrize("address", ["/faults/queue/main/bull:x", "/faults/deployment", "/nowhere"])
def test_what_is_not_there_leads_to_all_queues(client: Client, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert '<a class="button" data-kind="primary" href="/queues">' in answer.content.decode()


def test_a_name_that_cannot_be_one_is_not_a_page(client: Client) -> None:
    assert client.get("/faults/queue/main/bull~ZZ").status_code == 404


def test_a_dead_store_is_told_with_target_error_and_advice_and_tried_again(client: Client) -> None:
    answer = client.get("/faults/down")
    page = answer.content.decode()
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    for told in ("redis://10.1.2.3:6379/0", "Connection refused", "LLEN", "Is it running"):
        assert told in page
    assert '<meta http-equiv="refresh" content="5">' in page


def test_a_change_is_never_repeated_by_itself(client: Client) -> None:
    page = client.post("/faults/down").content.decode()
    assert "http-equiv" not in page
    assert "It is not known whether the change was made" in page


def test_a_refused_command_says_which_and_what_to_grant(client: Client) -> None:
    page = client.get("/faults/denied").content.decode()
    assert "SCAN" in page
    assert "ACL" in page


def test_a_fragment_becomes_a_notice_and_its_old_content_stays(client: Client) -> None:
    answer = client.get("/faults/down", headers={"HX-Request": "true"})
    assert answer.status_code == 503
    assert answer.headers["HX-Retarget"] == "#trouble"
    assert answer.headers["HX-Reswap"] == "innerHTML"
    assert "<html" not in answer.content.decode()
    assert "Connection refused" in answer.content.decode()


def test_what_a_version_cannot_do_is_said_as_text(client: Client) -> None:
    answer = client.get("/faults/unsupported")
    assert answer.status_code == 409
    assert "&lt;groups&gt;" in answer.content.decode()


def test_a_fault_of_ours_says_so_and_tells_no_secret(client: Client) -> None:
    answer = client.get("/faults/broken")
    assert answer.status_code == 500
    assert "This is a bug in Unstall" in answer.content.decode()
    assert "hunter2" not in answer.content.decode()


def test_a_script_gets_a_sentence_instead_of_a_page(client: Client) -> None:
    answer = client.get("/faults/down", headers={"accept": "application/json"})
    assert answer.status_code == 503
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert b"<" not in answer.content


def test_a_stranger_sees_no_frame_on_a_page_that_is_not_there() -> None:
    page = browser().get("/nowhere").content.decode()
    assert "Page not found" in page
    assert "Log out" not in page
    assert 'href="/queues"' in page


def test_a_host_that_nobody_allowed_is_refused_with_the_remedy() -> None:
    answer = browser().get("/login", headers={"host": "evil.example"})
    assert answer.status_code == 400
    assert "UNSTALL_ALLOWED_HOSTS" in answer.content.decode()
