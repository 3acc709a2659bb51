"""Every page in every look: it loads, complains of nothing, fits, says what it is, and keeps nobody out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from recovery.domain.identifiers import slug, unslug
from tests.browser import scanned
from tests.browser.conftest import Complaints
from tests.browser.seeds import NASTY, SECRET, Seeds
from tests.support.accessibility import barriers
from tests.support.idempotency import Desk
from tests.support.processes.site import Site
from tests.support.waiting import until

Open = Callable[..., Page]


@dataclass(frozen=True, slots=True)
class Look:
    """`has_axe`: also searched for barriers. Without it a page is made `narrow` too, once it is there."""

    theme: str
    width: int
    zone: str = "UTC"
    javascript: bool = True
    has_axe: bool = False
    narrow: int = 0

    def __str__(self) -> str:
        return f"{self.theme}-{self.width}{'' if self.javascript else '-plain'}"


# A theme moves nothing, no script knows the width, and that every colour is legible in both themes is worked out from
# the tokens: so each theme and each width once, and both widths without scripts.
WITH_AXE = (Look("light", 1280, "America/New_York", has_axe=True), Look("dark", 360, "Asia/Kolkata", has_axe=True))
PLAIN = Look("light", 1280, javascript=False, narrow=360)
LOOKS = (*WITH_AXE, PLAIN)
_EACH_LOOK = pytest.mark.parametrize("look", LOOKS, ids=str)
RELEASE = "/scanners/safety-limits/release"
_STATES = ("active", "waiting", "prioritized", "delayed", "waiting-children", "completed", "failed", "paused")
_OF_THEIR_OWN = {"active", "waiting", "delayed", "completed", "failed"}  # the other lists are made of the same parts
_HEIGHT = 800
# The innermost elements that end behind the right edge.
_STICKS_OUT = """(width) => [...document.querySelectorAll("body *")]
    .filter((e) => e.getBoundingClientRect().right > width && !e.childElementCount)
    .slice(0, 5).map((e) => e.outerHTML)"""
_ROUNDED = 1  # pixel: columns have fractions


@dataclass(frozen=True, slots=True)
class Stop:
    """One page of a walk. `heading`: a part of its main heading."""

    path: str
    heading: str
    person: str = "admin"
    status: int = 200
    has_axe: bool = True  # False where another stop shows the same parts


class Walk:
    """Goes from page to page in one look, with one browser for each person."""

    def __init__(self, open_page: Open, complaints: Complaints, look: Look) -> None:
        self._open = open_page
        self._complaints = complaints
        self._look = look
        self._pages: dict[str, Page] = {}

    def to(self, *stops: Stop) -> Page:
        for stop in stops:
            page = self._go(stop)
            _is_itself(page, stop)
            self._measure(page, stop.path)
            if self._look.has_axe and stop.has_axe:
                assert barriers(page) == [], stop.path
            self._listen(stop)
        return page

    def _measure(self, page: Page, path: str) -> None:
        _fits(page, self._look.width, path)
        if self._look.narrow:
            page.set_viewport_size({"width": self._look.narrow, "height": _HEIGHT})
            _fits(page, self._look.narrow, path)
            page.set_viewport_size({"width": self._look.width, "height": _HEIGHT})

    def _go(self, stop: Stop) -> Page:
        if stop.person in self._pages:
            self._pages[stop.person].goto(stop.path, wait_until="load")
            return self._pages[stop.person]
        look = self._look
        page = self._open(
            stop.path,
            person=stop.person,
            theme=look.theme,
            width=look.width,
            javascript=look.javascript,
            timezone_id=look.zone,
        )
        self._pages[stop.person] = page
        return page

    def _listen(self, stop: Stop) -> None:
        """A browser writes every status from 400 on into its console."""
        wanted = f"status of {stop.status}"
        found = [line for line in self._complaints if stop.status < 400 or wanted not in line]
        self._complaints.clear()
        assert found == [], stop.path


@pytest.fixture
def walk(open_page: Open, complaints: Complaints, look: Look) -> Iterator[Walk]:
    yield Walk(open_page, complaints, look)
    complaints.clear()  # each page was listened to; a stream cut by leaving is no complaint


@pytest.fixture(scope="module")
def story(live_site: Site, seeds: Seeds) -> str:
    """A run of a scanner on a queue whose name means harm, and each kind of limit; the address of the run."""
    return scanned.story(live_site, unslug(seeds.nasty[0].split("/")[3]))


def _is_itself(page: Page, stop: Stop) -> None:
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_count(1)
    expect(heading).to_contain_text(stop.heading)
    assert page.title().endswith("Unstall"), stop.path


def _fits(page: Page, width: int, path: str) -> None:
    """Nothing makes the page scroll sideways, and on a desk no table hides its last columns."""
    if page.evaluate("document.documentElement.scrollWidth") > width:
        raise AssertionError(f"{path}: wider than {width} px by {page.evaluate(_STICKS_OUT, width)}")
    if width > 1000:
        cut = page.evaluate("[...document.querySelectorAll('.sheet')].map((e) => e.scrollWidth - e.clientWidth)")
        assert max(cut, default=0) <= _ROUNDED, f"{path}: a table is wider than its sheet by {cut}"


@_EACH_LOOK
def test_overview_and_search(walk: Walk, seeds: Seeds) -> None:
    walk.to(
        Stop("/queues", "Queues"),
        Stop("/queues?q=nothing-is-called-so", "Queues"),
        Stop("/queues?group=.", "Queues", has_axe=False),
        Stop("/queues?sort=-failed&q=state:failed", "Queues", "viewer"),
        Stop("/search", "Find a job"),
        Stop("/search?q=1", "Find a job", has_axe=False),
        Stop("/search?q=no-such-job", "Find a job", has_axe=False),
        Stop("/search?q=ann&by=data", "Find a job", has_axe=False),
        Stop("/search?q=ann&by=data&queue=main/bull:mail", "Find a job", "operator"),
        Stop("/palette?q=mail", "Find"),
    )


@_EACH_LOOK
def test_frame_and_faults(walk: Walk, seeds: Seeds) -> None:
    walk.to(
        Stop("/login", "Log in", ""),
        Stop("/welcome/nope", "This link", "", 404),
        Stop("/users", "Users"),
        Stop("/password", "password"),
        Stop("/password/again", "Confirm your password"),
        Stop("/sessions", "Your sessions"),
        Stop("/sessions", "Your sessions", "viewer", has_axe=False),
        Stop("/sessions/all", "All sessions"),
        Stop("/two-factor", "Two-factor authentication"),
        Stop("/sessions/all", "Permission denied", "operator", 403, has_axe=False),
        Stop("/no/such/page", "Page not found", status=404),
        Stop("/queues/main/bull:none/", "Queue not found", status=404, has_axe=False),
        Stop(f"{seeds.mail}jobs/none", "Job not found", status=404, has_axe=False),
        Stop("/users", "Permission denied", "viewer", 403),
        Stop("/search?q=a&by=data&queue=main/bull:mail", "Permission denied", "viewer", 403, has_axe=False),
    )


@pytest.fixture(scope="module")
def audited(live_site: Site, seeds: Seeds) -> None:
    """The audit has an entry, whatever ran before."""
    queue = "/".join(seeds.empty.strip("/").split("/")[1:])
    done = live_site.shell("act", "resume", "--queue", queue, "--reason", "to have an entry", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr


@_EACH_LOOK
@pytest.mark.usefixtures("audited")
def test_what_is_stuck_and_what_was_done(walk: Walk, seeds: Seeds) -> None:
    job, queue = f"main/{seeds.mail.split('/')[3]}/1", f"main/{seeds.crowd.split('/')[3]}"
    walk.to(
        Stop("/stuck", "Stuck"),
        Stop("/stuck?verdict=quarantined", "Stuck"),
        Stop("/stuck", "Stuck", "viewer", has_axe=False),
        Stop(f"/act?act=retry&job={job}", "Retry 1 job in"),
        Stop(f"/act?act=requeue&job={job}", "Requeue 1 job in", "operator", has_axe=False),
        Stop(f"/act?act=drain&queue={queue}", "Drain the queue"),
        Stop(f"/act?act=clean&queue={queue}", "Clean the queue"),
        Stop(f"/act?act=remove&queue={queue}&all=waiting", "waiting job"),
        Stop("/act?act=explode", "This cannot be done", status=400),
        Stop(f"/act?act=drain&queue={queue}", "Permission denied", "operator", 403, has_axe=False),
        Stop("/audit", "Audit"),
        Stop("/audit?act=fail", "Audit", "viewer", has_axe=False),
        Stop("/audit/999999", "Not found", status=404, has_axe=False),
        Stop("/bulk/999999", "Not found", status=404, has_axe=False),
    )


@_EACH_LOOK
def test_what_looks_after_itself(walk: Walk, seeds: Seeds, story: str) -> None:
    base = seeds.mail.split("/")[3]
    nasty = seeds.nasty[0].split("/")[3]
    walk.to(
        Stop("/scanners", "Scanners"),
        Stop("/scanners", "Scanners", "viewer", has_axe=False),
        Stop("/scanners?q=nothing-is-called-so", "Scanners", "operator", has_axe=False),
        Stop("/scanners/stale-check", "stale-check"),
        Stop("/scanners/discover", "discover", "viewer", has_axe=False),
        Stop(story, "stale-check, run"),
        Stop("/scanners/stale-check/order?how=run", "Run stale-check"),
        Stop("/scanners/stale-check/order", "Run stale-check", "operator", has_axe=False),
        Stop("/scanners/prune/pause", "Pause prune"),
        Stop("/scanners/policy", "The policy of all queues"),
        Stop(f"/scanners/policy?queue=main/{base}", "The policy of bull:mail", has_axe=False),
        Stop(f"/scanners/policy?queue=main/{nasty}", "The policy of bull:", has_axe=False),
        Stop(
            f"/scanners/safety-limits/release?kind=breaker&queue=main/{base}&key=gone",
            "Not found",
            status=404,
            has_axe=False,
        ),
        Stop("/scanners/policy?queue=main", "This cannot be done", status=400, has_axe=False),
        Stop("/scanners/policy", "Permission denied", "operator", 403, has_axe=False),
        Stop("/scanners/runs/999999", "Not found", status=404, has_axe=False),
        Stop("/scanners/nope", "Page not found", status=404, has_axe=False),
        Stop("/tuning", "Tuning"),
        Stop("/tuning", "Tuning", "viewer", has_axe=False),
    )
    page = walk.to(Stop(story, "stale-check, run", "viewer", has_axe=False))
    assert SECRET not in page.content()
    assert page.locator("main img, main script").count() == 0
    board = walk.to(Stop("/scanners", "Scanners", has_axe=False))
    assert SECRET not in board.content(), "of errors in safety limits nobody reads more than their words"
    told = walk.to(Stop("/alerts", "Alerts", "viewer", has_axe=False), Stop("/alerts", "Alerts"))
    assert told.get_by_role("row", name="are quarantined.").count() == 1
    assert told.locator("main img, main script").count() == 0
    board = walk.to(Stop("/scanners", "Scanners", has_axe=False))
    kinds = ("Breaker", "Auto-retry limit", "Quarantine")
    links = [board.get_by_role("link", name=f"Release: {kind}").first.get_attribute("href") for kind in kinds]
    walk.to(*(Stop(link or "", f"Release: {kind}") for kind, link in zip(kinds, links, strict=True)))


@_EACH_LOOK
def test_servers(walk: Walk, servers: tuple[str, str]) -> None:
    plain, odd = servers
    walk.to(
        Stop("/servers", "Servers"),
        Stop(f"{plain}?range=7d", "Servers", "operator", has_axe=False),
        Stop("/servers/nope", "Server not found", status=404, has_axe=False),
        Stop("/logs?plain=1", "Logs"),
        Stop("/logs?plain=1&label=app=none&include=x&level=error", "Logs", "viewer", has_axe=False),
    )
    page = walk.to(Stop(odd, "Servers", "viewer"))
    assert SECRET not in page.content()
    assert page.locator("main img, main script").count() == 0


@pytest.fixture(scope="module")
def claims(live_site: Site) -> tuple[str, str]:
    """The slugs of a key that was done and of one that nobody completed, with their tokens as a query."""
    desk = Desk(live_site.state.client)
    desk.claim("charge:order-17", owner="worker-3 on eu-2", by="billing")
    done = desk.done(f"done {NASTY[0]}", f'{{"password": "{SECRET}", "id": "ch_1"}}'.encode())
    dead = desk.expired("x" * 512, owner="y" * 200)
    return f"{slug(f'done {NASTY[0]}')}/forget?token={done}", f"{'x' * 512}/release?token={dead}"


@_EACH_LOOK
def test_what_must_not_run_twice(walk: Walk, claims: tuple[str, str]) -> None:
    done, dead = claims
    walk.to(
        Stop("/idempotency", "Idempotency keys"),
        Stop("/idempotency?state=claimed", "Idempotency keys", "operator", has_axe=False),
        Stop("/idempotency?q=no-such-key", "Idempotency keys", has_axe=False),
        Stop(f"/idempotency/keys/{done.split('/')[0]}", "done"),
        Stop(f"/idempotency/keys/{dead.split('/')[0]}", "xxx", "operator", has_axe=False),
        Stop(f"/idempotency/keys/{done}", "Forget the completed key"),
        Stop(f"/idempotency/keys/{dead}", "Release the claim of", "operator"),
        Stop(f"/idempotency/keys/{done}", "Permission denied", "operator", 403, has_axe=False),
        Stop(f"/idempotency/keys/{dead}0", "Not found", "operator", 404, has_axe=False),
        Stop("/idempotency/keys/none", "Not found", status=404, has_axe=False),
    )
    for path in ("/idempotency", f"/idempotency/keys/{done.split('/')[0]}"):
        page = walk.to(Stop(path, "", "viewer", has_axe=False))
        assert SECRET not in page.content()
        assert page.locator("main img, main script").count() == 0


@_EACH_LOOK
def test_every_list_of_a_queue(walk: Walk, seeds: Seeds) -> None:
    walk.to(*(Stop(f"{seeds.mail}?tab={tab}", "bull:mail", has_axe=tab in _OF_THEIR_OWN) for tab in _STATES))


@_EACH_LOOK
def test_everything_else_of_a_queue(walk: Walk, seeds: Seeds) -> None:
    walk.to(
        *(Stop(f"{seeds.mail}?tab={tab}", "bull:mail") for tab in ("workers", "policy", "history")),
        Stop(seeds.video, "bull:video.encode"),
        Stop(f"{seeds.orders}?tab=waiting-children", "bull:orders", has_axe=False),
        Stop(f"{seeds.reports}?tab=schedulers", "bull:reports"),
        Stop(f"{seeds.legacy}?tab=completed", "bull:legacy", has_axe=False),
        Stop(f"{seeds.paused}?tab=paused", "bull:newsletter", has_axe=False),
        Stop(seeds.empty, "bull:empty"),
    )


@_EACH_LOOK
def test_every_tab_of_a_job(walk: Walk, seeds: Seeds) -> None:
    walk.to(
        *(Stop(f"{seeds.failed}?tab={tab}", "1") for tab in ("error", "data", "options", "logs", "server-logs", "raw"))
    )
    walk.to(
        Stop(f"{seeds.logged}?tab=logs", "1"),
        Stop(f"{seeds.logged}?tab=result", "1", has_axe=False),
        Stop(f"{seeds.parent}?tab=family", "-"),
        Stop(seeds.held, "2"),
        Stop(seeds.large, "3"),
        Stop(f"{seeds.large}?tab=data&whole", "3", has_axe=False),
    )


@_EACH_LOOK
def test_names_that_mean_harm_are_only_text(walk: Walk, seeds: Seeds) -> None:
    walk.to(*(Stop(f"{queue}?tab=waiting", "bull:", has_axe=False) for queue in seeds.nasty))
    walk.to(Stop(f"{seeds.nasty[0]}?tab=failed", NASTY[0], has_axe=False))
    page = walk.to(*(Stop(f"{seeds.nasty_job}?tab={tab}", "<img src=x") for tab in ("error", "data", "raw")))
    assert page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("look", [LOOKS[0], PLAIN], ids=str)
def test_a_viewer_reads_no_secret(walk: Walk, seeds: Seeds) -> None:
    for path in (seeds.secret, f"{seeds.secret}?tab=raw", seeds.failed, f"{seeds.failed}?tab=raw"):
        assert SECRET not in walk.to(Stop(path, "", "viewer", has_axe=False)).content(), path
    page = walk.to(Stop(seeds.secret, "", "operator"))
    assert SECRET not in page.content()
    page.get_by_role("button", name="Reveal").click()
    expect(page.locator("#payload-text")).to_contain_text(SECRET)


@pytest.mark.parametrize("look", WITH_AXE, ids=str)
def test_a_link_lets_somebody_in(walk: Walk, live_site: Site) -> None:
    users = walk.to(Stop("/users", "Users"))
    users.get_by_label("Name").fill(f"new-{users.viewport_size['width'] if users.viewport_size else 0}")
    users.get_by_role("button", name="Create invite link").click()
    link = users.locator("#link").input_value()
    page = walk.to(Stop(link.removeprefix(live_site.url), "Welcome", ""))
    for field in page.locator("input[type=password]").all():
        field.fill("a quiet night, please")
    page.get_by_role("button", name="Set password").click()
    page.wait_for_url("**/queues")


@pytest.mark.parametrize("look", WITH_AXE, ids=str)
def test_a_silent_store_gets_a_page_of_its_own(walk: Walk, seeds: Seeds, live_site: Site) -> None:
    live_site.queues.pause()
    try:
        until(lambda: live_site.web.get(seeds.failed, "viewer").status == 503, what="the last answer is forgotten")
        walk.to(Stop(seeds.failed, "A store does not answer", status=503))
    finally:
        live_site.queues.resume()
        until(lambda: live_site.web.get(seeds.failed, "viewer").status == 200)


def test_a_page_that_could_not_be_shown_comes_by_itself(
    open_page: Open, complaints: Complaints, seeds: Seeds, live_site: Site
) -> None:
    live_site.queues.pause()
    try:
        until(lambda: live_site.web.get(seeds.held, "viewer").status == 503, what="the last answer is forgotten")
        page = open_page(seeds.held)
        expect(page.get_by_role("heading", level=1)).to_have_text("A store does not answer")
    finally:
        live_site.queues.resume()
    expect(page.get_by_role("heading", level=1)).to_have_text("2", timeout=20_000)
    complaints.clear()  # of the status
