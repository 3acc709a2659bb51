"""One queue's page on a real store: its tabs, its pages of jobs, and what it says when the store is gone."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from recovery.actions.catalog import ENTRIES
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.types import VerdictKind
from recovery.models import PolicyLayer
from recovery.reads.stuck import inbox_store, observations
from recovery.reads.stuck.observations import DeploymentObservation, QueueObservation
from recovery.stores import registry
from tests.support.patience import patience
from tests.support.people import browser, person, text
from tests.support.stuck.watching import add, bullmq, config_of, finish, now_ms
from tests.web.conftest import BULLMQ, Desk
from tests.web.inbox import found, stuck

pytestmark = pytest.mark.django_db
BASE = "bull:mail"
PAGE = "/queues/main/bull:mail/"


def ids(page: str) -> list[str]:
    return re.findall(r'class="id" href="[^"]*">([^<]*)</a>', page)


def active(desk: Desk, id: str, *, ttl: int | None = 20_000, **fields: str | int) -> None:
    add(desk.client, BASE, id, processedOn=now_ms() - 4000, **fields)
    desk.client.lrem(f"{BASE}:wait", 1, id)
    desk.client.lpush(f"{BASE}:active", id)
    if ttl:
        desk.client.set(f"{BASE}:{id}:lock", "worker-a:1", px=ttl)


def test_the_tabs_are_those_that_the_library_knows(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "1", "2")
    desk.look(BASE)
    page = text(viewer, PAGE)
    assert re.findall(r'id="tab-([\w-]+)"', page)[:5] == [
        "active",
        "waiting",
        "prioritized",
        "delayed",
        "waiting-children",
    ]
    assert "Waiting<small>2</small>" in page
    desk.look(BASE, flavour=LibraryVersion(QueueLibrary.BULL, 4))
    assert "waiting-children" not in text(viewer, PAGE)


def test_the_head_tells_flavour_evidence_workers_and_watchdog(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    desk.client.hset(f"{BASE}:meta", mapping={"concurrency": 7, "paused": 1})
    desk.look(BASE)
    page = text(viewer, PAGE)
    for words in (
        "BullMQ 5.81",
        "meta.version = bullmq:5.81.5",
        "no worker",
        "stalled check: not running",
        "global concurrency 7",
        ">paused<",
    ):
        assert words in page


@pytest.mark.parametrize(
    ("role", "flavour", "why"),
    [
        (UserRole.ADMIN, BULLMQ, ""),
        (UserRole.ADMIN, BULLMQ._replace(mixed=True), "Workers of two BullMQ generations are running"),
        (UserRole.ADMIN, BULLMQ._replace(read_only="It is too old."), "It is too old."),
        (UserRole.OPERATOR, BULLMQ, ""),
        (UserRole.VIEWER, BULLMQ, "your role does not allow it."),
    ],
)
def test_a_paused_queue_has_resume_or_says_why_not(
    desk: Desk, role: UserRole, flavour: LibraryVersion, why: str
) -> None:
    bullmq(desk.client, BASE)
    desk.client.hset(f"{BASE}:meta", "paused", 1)
    desk.look(BASE, flavour=flavour)
    page = text(browser(person(role)), PAGE)
    assert ("act=resume" in page) is (not why)
    assert ("disabled aria-describedby" in page) is bool(why)
    assert f"Resume is disabled: {why}" in page or not why


def test_an_empty_list_of_paused_jobs_never_stands_beside_a_paused_queue(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    assert 'id="tab-paused"' in text(viewer, PAGE)
    desk.client.hset(f"{BASE}:meta", "paused", 1)
    desk.look(BASE)
    page = text(viewer, f"{PAGE}?tab=paused")
    assert 'id="tab-paused"' not in page
    assert re.search(r'id="tab-waiting"[^>]*aria-current="page"', page)
    add(desk.client, BASE, "1")
    desk.client.rename(f"{BASE}:wait", f"{BASE}:paused")
    desk.look(BASE)
    assert re.search(r'id="tab-paused"[^>]*>Paused<small>1<', text(viewer, PAGE))


def test_an_active_job_shows_holder_and_lock(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    active(desk, "held", pb="mail-3", ats=1)
    active(desk, "lost", ttl=None)
    desk.look(BASE)
    page = text(viewer, PAGE)
    assert "mail-3" in page
    assert re.search(r'data-lock="held".*?(1[0-9]|20) s left', page, re.DOTALL)  # how long a lock is nobody has seen
    observations.remember(
        desk.state.client, "main", DeploymentObservation(queues={BASE: QueueObservation(lock_length=24_000)}), ()
    )
    desk.forget()
    page = text(viewer, PAGE)
    assert re.search(r'data-lock="held".*?(1[0-9]|20) s of ≥ 24 s', page, re.DOTALL)
    assert re.search(r'data-lock="none".*?none', page, re.DOTALL)


def test_acts_on_all_orphans_are_offered_where_there_are_some(desk: Desk) -> None:
    bullmq(desk.client, BASE)
    active(desk, "held")
    desk.look(BASE)
    admin = browser(person(UserRole.ADMIN))
    for kind, offers in ((VerdictKind.WORKER_LOST, False), (VerdictKind.ORPHAN, True)):
        found(desk, [stuck("held", kind)])
        assert ("Requeue 1 orphan</a>" in text(admin, PAGE)) is offers
        assert ("all=orphan" in text(admin, PAGE)) is offers


def test_pages_of_failed_jobs_lose_none_and_show_none_twice(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    finish(desk.client, BASE, *(now_ms() - index for index in range(110)), outcome="failed")
    desk.look(BASE)
    seen: list[list[str]] = []
    address: str | None = f"{PAGE}?tab=failed&size=50"
    while address:
        page = text(viewer, address)
        seen.append(ids(page))
        following = re.search(r'id="next" rel="next" href="([^"]*)"', page)
        address = PAGE + following[1].replace("&amp;", "&") if following else None
    assert [len(rows) for rows in seen] == [50, 50, 10]  # each as long as was chosen for the first
    assert len({id for rows in seen for id in rows}) == 110


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ([10 * index for index in range(40)], [5 + 30 * index for index in range(20)]),
        (list(range(30)), list(range(1000, 1030))),
    ],
    ids=["mixed", "one after the other"],
)
def test_history_tells_both_outcomes_by_time_over_all_pages(
    desk: Desk, viewer: Client, good: list[int], bad: list[int]
) -> None:
    bullmq(desk.client, BASE)
    now = now_ms()
    finish(desk.client, BASE, *(now - ago for ago in good), outcome="completed")
    finish(desk.client, BASE, *(now - ago for ago in bad), outcome="failed")
    desk.look(BASE)
    seen: list[str] = []
    address: str | None = f"{PAGE}?tab=history&size=25"
    while address:
        page = text(viewer, address)
        seen += ids(page)
        following = re.search(r'id="next" rel="next" href="([^"]*)"', page)
        address = PAGE + following[1].replace("&amp;", "&") if following else None
    ends = [int(desk.client.hget(f"{BASE}:{id}", "finishedOn") or 0) for id in seen]
    assert len(seen) == len(set(seen)) == 60
    assert ends == sorted(ends, reverse=True)


def test_history_says_how_long_jobs_ran_and_waited(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    now = now_ms()
    for index in range(1, 21):
        finish(desk.client, BASE, now - index)
        desk.client.hset(f"{BASE}:{index}", mapping={"timestamp": now - 9_000, "processedOn": now - 100 - 2 * index})
    desk.look(BASE)
    page = text(viewer, f"{PAGE}?tab=history")
    assert "p50 110 ms, p95 119 ms" in page
    assert "Waited before" in page
    assert "the newest 20 completed jobs" in page


@pytest.mark.parametrize(
    "tab", ["waiting", "delayed", "completed", "failed", "schedulers", "workers", "history", "nonsense"]
)
def test_every_tab_of_an_empty_queue_opens_and_says_that_it_is_empty(desk: Desk, viewer: Client, tab: str) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    assert 'class="none"' in text(viewer, f"{PAGE}?tab={tab}")


def test_a_fragment_brings_the_head_along(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    fragment = text(viewer, f"{PAGE}tab?tab=failed")
    assert fragment.lstrip().startswith('<section id="tab"')
    assert 'id="queue-facts" class="queue-facts" hx-swap-oob="true"' in fragment
    assert "<html" not in fragment


def test_the_chart_is_numbers_with_gaps(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    finish(desk.client, BASE, now_ms() - 120_000)
    desk.look(BASE)
    figure = json.loads(text(viewer, f"{PAGE}chart?hours=168"))
    assert len(figure["data"][0]["x"]) <= 240
    assert None in figure["data"][0]["y"]


def test_a_queue_too_new_for_the_snapshot_is_looked_at_itself(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "1")
    assert desk.snapshot is None
    assert ids(text(viewer, f"{PAGE}?tab=waiting")) == ["1"]
    assert "No snapshot contains this queue yet" in text(viewer, f"{PAGE}?tab=workers")


def test_what_is_no_queue_is_not_found(desk: Desk, viewer: Client) -> None:
    text(viewer, "/queues/main/bull:nothing/", status=404)
    text(viewer, "/queues/elsewhere/bull:mail/", status=404)


def test_any_bytes_are_shown_as_text(desk: Desk, viewer: Client) -> None:
    base = "bull:<i>odd & [x]*"
    bullmq(desk.client, base)
    for id in (b"<b>1</b>", b"a/b:c\r\n", b"\xfe", b"ghost"):
        desk.client.lpush(f"{base}:wait", id)
        if id != b"ghost":
            desk.client.hset(base.encode() + b":" + id, mapping={"name": "<script>x</script>", "data": b"\xff"})
    (sample,) = desk.look(base).queues
    page = text(viewer, f"/queues/main/{sample.ref.slug}/?tab=waiting")
    assert "<script>x" not in page
    assert "&lt;b&gt;1&lt;/b&gt;" in page
    assert page.count("only the id is left") == 1
    links = re.findall(r'class="id" href="([^"]*)"', page)
    pages = [text(viewer, link) for link in links]
    assert len(pages) == 4
    assert sum("Missing job data:" in page for page in pages) == 1


def test_many_viewers_cost_the_queue_what_one_does(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "1")
    desk.look(BASE)
    text(viewer, f"{PAGE}tab?tab=waiting")
    before = desk.client.info("stats")["total_commands_processed"]
    started = time.monotonic()
    for _ in range(10):
        text(viewer, f"{PAGE}tab?tab=waiting")
    spent = desk.client.info("stats")["total_commands_processed"] - before - 1
    reads = 1 + int(time.monotonic() - started)  # one a second; the machine may be slow
    assert spent <= reads * 12


@pytest.mark.parametrize("tab", ["waiting", "history", "schedulers"])
def test_a_dead_store_leaves_the_head_and_a_sentence(desk: Desk, viewer: Client, tab: str) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "1")
    desk.look(BASE)
    desk.store.pause()
    try:
        started = time.monotonic()
        page = text(viewer, f"{PAGE}?tab={tab}")
        took = time.monotonic() - started
    finally:
        desk.store.resume()
    assert "This list cannot be read" in page
    assert "Waiting<small>1</small>" in page
    assert took < patience(2)  # the store is given 0.5 s


def policy(viewer: Client) -> str:
    """The tab's text, in one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", text(viewer, f"{PAGE}tab?tab=policy")).split())


def configured(desk: Desk, directory: Path, *lines: str, **settings: object) -> None:
    config_of(directory, desk.state, {"main": desk.store}, **settings)
    with (directory / "unstall.toml").open("a") as file:
        file.write("\n" + "\n".join(lines) + "\n")
    registry.reset()


def test_the_policy_says_what_applies_by_default(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    page = policy(viewer)
    for words in (
        "The stale-check acts here automatically. The others only report what they find.",
        "orphan-watch Dry run, at most 500 jobs per run. by default",
        "stale-check Enabled after 15 min, at most 500 jobs per run. by default",
        "by an admin, under Scanners",
        "according to the configuration. 30 s default",
        "never default",
        "orphaned 3 times within 72 h built-in default",
        "every 5 s default",
        "main: read-write default",
        "Your role is viewer",
    ):
        assert words in page
    assert "refused" not in page
    assert "startup-sweep" not in page, "there are no rows of a process in a queue of Redis"
    assert re.search(r"Retry .*? available operator Promote", page)
    assert re.search(r"Remove .*? available operator: one job; admin: many", page)
    assert re.search(r"Pause Workers finish .*? available operator Resume", page)


def test_the_policy_says_where_a_configured_value_comes_from(desk: Desk, viewer: Client, tmp_path: Path) -> None:
    bullmq(desk.client, BASE)
    own = ("[[queues]]", f'name = "main/{BASE}"', "overdue_after = 600")
    configured(desk, tmp_path, "[thresholds]", "stalled_interval = 45", *own)
    desk.look(BASE)
    page = policy(viewer)
    assert "45 s configuration: stalled_interval in [thresholds]" in page
    assert f"10 min configuration: overdue_after of main/{BASE} in [[queues]]" in page


def test_the_policy_says_what_was_edited_and_by_whom(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    written = '{"orphan_watch": {"mode": "enabled", "after": 5}, "stale_check": {"mode": "dry-run"}}'
    PolicyLayer.objects.create(deployment="main", base=BASE, written=written, by="<ada>", at=now_ms() - 61_000)
    page = policy(viewer)
    assert "The orphan-watch acts here automatically." in page
    assert "Enabled after 5 s, at most 500 jobs per run." in page
    assert f"mode, after: edited by &lt;ada&gt; 1 min ago, for {BASE}; the rest: by default" in page
    admin = text(browser(person(UserRole.ADMIN)), f"{PAGE}tab?tab=policy")
    assert f'href="/scanners/policy?queue=main/{BASE}"' in admin


def test_a_policy_that_cannot_be_read_is_said_beside_what_it_withholds(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    PolicyLayer.objects.create(deployment="", base="", written="{", by="ada", at=1)
    page = policy(viewer)
    assert "No scanner acts here automatically." in page
    assert "The edited policy for all queues cannot be read, so no scanner acts" in page


def test_the_policy_of_a_read_only_deployment_refuses_every_act(desk: Desk, viewer: Client, tmp_path: Path) -> None:
    bullmq(desk.client, BASE)
    configured(desk, tmp_path, read_only=True)
    desk.look(BASE)
    page = policy(viewer)
    assert "main: read-only configuration: read_only of the deployment" in page
    assert "No scanner acts here. The deployment main is configured to be read only." in page
    assert page.count("refused The deployment main is configured to be read only. no role") == len(_shown())
    assert "available" not in page.replace("Available actions", "").replace("Other settings", "")


def test_the_policy_gives_the_reason_why_a_flavour_refuses_an_act(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    flavour = LibraryVersion(QueueLibrary.BULLMQ, None)
    desk.look(BASE, flavour=flavour)
    refused = operator(flavour).refusals(flavour)
    page = policy(viewer)
    told = [act for act in refused if act in _shown()]
    assert 0 < len(told) < len(_shown())
    assert page.count(f"refused {refused[Action.RETRY]} no role") == len(told)


def _shown() -> list[Action]:
    """What is done to executions of n8n is not told of queues."""
    return [act for act, entry in ENTRIES.items() if not entry.is_for_execution]


def test_the_policy_says_when_a_longer_interval_is_counted_with(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    tally = StuckTally(QueueRef("main", BASE), watchdog=StalledCheckState(interval=120_000))
    inbox_store.publish(registry.registry().state(), StuckInbox(now_ms(), (), (tally,)))
    assert "A longer interval was seen in Redis, so Unstall uses 2 min." in policy(viewer)


def test_a_stranger_gets_nothing(desk: Desk) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    for address in (PAGE, f"{PAGE}tab", f"{PAGE}chart"):
        assert browser().get(address).status_code == 302
