"""Numbers that move by themselves, and nothing else that moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from recovery.domain.identifiers import slug
from tests.support.processes.site import Site
from tests.support.waiting import until

Open = Callable[..., Page]
_QUIET_MS = 2500  # two snapshots and a half: what has not moved by then does not move


_NAMES = ("count", "list", "focus", "typing", "off", "order-a", "order-b", "press")


class Plain:
    """A queue of BullMQ's keys, made by hand: these tests are about the page alone."""

    def __init__(self, site: Site, name: str, waiting: int) -> None:
        self.site, self.base, self.count = site, f"bull:{name}", 0
        site.queues.client.hset(f"{self.base}:meta", "version", "bullmq:5.81.5")
        self.add(waiting)

    @property
    def page(self) -> str:
        return f"/queues/main/{slug(self.base)}/"

    def add(self, count: int = 1) -> None:
        store = self.site.queues.client
        for _ in range(count):
            self.count += 1
            store.hset(
                f"{self.base}:{self.count}", mapping={"name": "send", "data": "{}", "timestamp": "1795000000000"}
            )
            store.lpush(f"{self.base}:wait", str(self.count))

    def is_listed(self) -> bool:
        return self.base.encode() in self.site.web.get("/queues", "viewer").body


@pytest.fixture(scope="module")
def queues(live_site: Site) -> dict[str, Plain]:
    """One for each test, found by the scheduler in one go."""
    made = {name: Plain(live_site, f"live-{name}", 2) for name in _NAMES}
    until(lambda: all(queue.is_listed() for queue in made.values()), 30, "all are found")
    return made


def waiting(page: Page, name: str) -> Locator:
    """The cell of the table of all queues."""
    return page.locator(f"tr[data-row]:has(a:text-is('bull:{name}'))").locator("[data-label=Waiting]")


def mark(page: Page) -> None:
    """Gone if the page is loaded again."""
    page.evaluate("window.marked = true")


def is_marked(page: Page) -> bool:
    return bool(page.evaluate("window.marked === true"))


def test_a_new_job_is_counted_without_a_reload(open_page: Open, queues: dict[str, Plain]) -> None:
    queue = queues["count"]
    page = open_page("/queues?q=live-count")
    mark(page)
    expect(waiting(page, "live-count")).to_have_text("2")
    queue.add(4)
    expect(waiting(page, "live-count")).to_have_text("6")
    expect(page.locator(".tally")).to_contain_text("waiting")
    assert is_marked(page)


def test_a_new_job_appears_in_its_list_and_in_the_tab(open_page: Open, queues: dict[str, Plain]) -> None:
    queue = queues["list"]
    page = open_page(f"{queue.page}?tab=waiting")
    mark(page)
    expect(page.locator("[data-row]")).to_have_count(2)
    queue.add(2)
    expect(page.locator("[data-row]")).to_have_count(4)
    expect(page.locator("#tab-waiting small")).to_have_text("4")
    assert is_marked(page)


def test_the_focus_stays_where_it_was(open_page: Open, queues: dict[str, Plain]) -> None:
    queue = queues["focus"]
    page = open_page("/queues?q=live-focus")
    link = page.get_by_role("link", name="bull:live-focus", exact=True)
    link.focus()
    queue.add(2)
    expect(waiting(page, "live-focus")).to_have_text("4")
    expect(link).to_be_focused()


def test_the_cursor_stays_with_its_row_when_rows_change_places(open_page: Open, queues: dict[str, Plain]) -> None:
    first, second = queues["order-a"], queues["order-b"]
    first.add()
    page = open_page("/queues?q=live-order&sort=-waiting")
    names = page.locator("[data-row] th a")
    expect(names).to_have_text(["bull:live-order-a", "bull:live-order-b"])
    page.keyboard.press("j")
    second.add(5)
    expect(names).to_have_text(["bull:live-order-b", "bull:live-order-a"])
    expect(page.locator("[data-cursor] th a")).to_have_text("bull:live-order-a")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{first.page}")


def test_a_row_is_not_swapped_away_under_a_pressed_button(open_page: Open, queues: dict[str, Plain]) -> None:
    queue = queues["press"]
    page = open_page("/queues?q=live-press")
    page.evaluate("""() => {
      document.addEventListener("pointerdown", (event) => (window.pressed = event.target));
      document.body.addEventListener("unstall:arrived", () => (window.arrived = (window.arrived || 0) + 1));
    }""")
    page.get_by_role("link", name="bull:live-press", exact=True).hover()
    page.mouse.down()
    queue.add()
    before = page.evaluate("window.arrived || 0")
    until(lambda: page.evaluate("window.arrived || 0") >= before + 6, what="six snapshots arrived")
    assert page.evaluate("window.pressed.isConnected"), "still the element that was pressed"
    page.mouse.up()
    page.wait_for_url(f"**{queue.page}")


def test_what_somebody_types_survives_a_refresh(open_page: Open, queues: dict[str, Plain]) -> None:
    queue = queues["typing"]
    page = open_page(queue.page + "?tab=waiting")
    page.locator("#find-job").fill("half a wo")
    queue.add()
    expect(page.locator("#tab-waiting small")).to_have_text("3")
    expect(page.locator("#find-job")).to_have_value("half a wo")
    expect(page.locator("#find-job")).to_be_focused()


def test_a_switched_off_page_stands_still_and_goes_on_when_told(open_page: Open, queues: dict[str, Plain]) -> None:
    queue = queues["off"]
    page = open_page("/queues?q=live-off")
    page.get_by_label("Refresh").select_option("off")
    expect(page.locator("#fresh")).to_have_attribute("data-tone", "paused")
    expect(page.locator(".htmx-request")).to_have_count(0)  # one that was under way when it was switched off
    queue.add(6)
    page.wait_for_timeout(_QUIET_MS)
    cell = waiting(page, "live-off")
    expect(cell).to_have_text("2")
    page.get_by_label("Refresh").select_option("live")
    expect(cell).to_have_text("8")


def test_a_hidden_tab_lets_go_of_its_stream_and_takes_it_up_again(open_page: Open, live_site: Site) -> None:
    page = open_page("/queues")
    expect(page.locator("#fresh")).to_have_attribute("data-tone", "live")
    opened: list[str] = []
    page.on("request", lambda request: opened.append(request.url) if "/live/" in request.url else None)
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url) if "/live/" in request.url else None)
    _turn(page, hidden=True)
    until(lambda: _waits(page) and ended, 15, "the stream is closed")
    assert opened == []
    _turn(page, hidden=False)
    until(lambda: _waits(page) and opened, 10, "the stream is open again")
    expect(page.locator("#fresh")).to_have_attribute("data-tone", "live")


def _turn(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def _waits(page: Page) -> bool:
    """Lets the browser's events come in."""
    page.wait_for_timeout(50)
    return True


def test_a_dead_scheduler_is_told_and_its_return_too(own_site: Site, open_page: Open) -> None:
    queue = Plain(own_site, "stale", 1)
    until(queue.is_listed, 30, "the queue is found")
    page = open_page("/queues", site=own_site)
    mark(page)
    numbers, cell = page.locator("#overview .tally"), waiting(page, "stale")
    expect(numbers).to_have_css("opacity", "1")
    own_site.unschedule()
    expect(page.locator("#fresh")).to_have_attribute("data-tone", "stale", timeout=30_000)
    expect(page.locator("#banner")).to_contain_text("manage.py scheduler")
    expect(cell).to_have_text("1")
    expect(numbers).to_have_css("opacity", "0.6")
    own_site.schedule()
    queue.add()
    expect(cell).to_have_text("2", timeout=30_000)
    expect(page.locator("#fresh")).to_have_attribute("data-tone", "live")
    expect(page.locator("#banner .notice")).to_have_count(0)
    expect(numbers).to_have_css("opacity", "1")
    assert is_marked(page)
