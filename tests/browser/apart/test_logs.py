"""/logs in a real browser: lines as they are written, chosen, opened, followed and held back."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.log_site import LogSite, texts
from tests.support.accessibility import barriers
from tests.support.waiting import until

pytestmark = pytest.mark.browser
Open = Callable[..., Page]

ESC = "\x1b"
SECRET = "hunter2-is-not-a-password"
NASTY = '<script>window.bad = 1</script><img src=x onerror="window.bad = 1"> &amp;'
ALL = (
    NASTY,
    f"{ESC}[1;31mred{ESC}[0m plain {ESC}[38;5;51mcyan{ESC}[0m",
    b"broken \xff utf-8 \x00 nul",
    "x" * 40_000,
    f"connected with password={SECRET}",
    "ERROR it failed",
    "WARN it may fail",
    "FATAL it ends",
)
_SIDEWAYS = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"


def of(server: str) -> str:
    return f"/logs?source=servers&label=server%3D{server}"


def box(page: Page) -> Locator:
    return page.get_by_role("region", name="Log lines")


def state(page: Page) -> Locator:
    return page.locator(".log-bar [data-state]")


def stands(page: Page, *lines: str) -> None:
    until(lambda: texts(page) == list(lines), 30, f"these lines stand on the page: {lines}")


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last + 1)]


def test_a_line_is_text_and_nothing_else(open_page: Open, site: LogSite) -> None:
    site.writer("odd").write(*ALL)
    page = open_page(of("odd"), site=site)
    until(lambda: len(texts(page)) == len(ALL), 30, "all lines stand on the page")
    found = texts(page)
    assert found[0] == NASTY
    assert page.evaluate("window.bad") is None
    assert page.locator("[data-rows] img, [data-rows] script").count() == 0
    assert found[1] == "red plain cyan"
    expect(page.locator("[data-look~=red][data-look~=bold]")).to_have_text("red")
    expect(page.locator("[data-look~=bright-cyan], [data-look~=cyan]")).to_have_text("cyan")
    assert found[2] == "broken \ufffd utf-8 \u2400 nul"
    assert re.fullmatch(r"x{16384} … 23,616 more bytes omitted", found[3])
    assert SECRET not in page.content()
    expect(page.locator("li[data-level=error] .level")).to_have_text("error")


def test_every_filter_stands_in_the_address_and_back_leads_back(open_page: Open, site: LogSite) -> None:
    writer = site.writer("filters")
    writer.write("ERROR one", "INFO two", "ERROR three retry", container="mail")
    writer.write("ERROR four", container="web")
    page = open_page(of("filters"), site=site)
    stands(page, "ERROR one", "INFO two", "ERROR three retry", "ERROR four")
    page.get_by_role("checkbox", name="error").check()
    stands(page, "ERROR one", "ERROR three retry", "ERROR four")
    page.get_by_role("textbox", name="Excludes").fill("RETRY")
    stands(page, "ERROR one", "ERROR four")
    assert re.search(r"exclude=RETRY&level=error|level=error.*exclude=RETRY", page.url)
    page.locator("summary", has_text="container").click()
    page.get_by_role("checkbox", name="web").check()
    stands(page, "ERROR four")
    writer.write("INFO five", "ERROR six retry", "ERROR seven", container="web")
    stands(page, "ERROR four", "ERROR seven")
    with page.expect_download() as kept:
        page.get_by_role("link", name="Download").click()
    text = Path(kept.value.path()).read_text()
    assert text.index("ERROR four") < text.index("ERROR seven")
    assert not re.search("one|two|three|five|six", text)
    page.go_back()
    stands(page, "ERROR one", "ERROR four", "ERROR seven")
    page.go_back()
    page.wait_for_url(re.compile(r"(?!.*exclude)"))
    expect(page.get_by_role("checkbox", name="error")).to_be_checked()
    expect(page.get_by_role("textbox", name="Excludes")).to_have_value("")
    page.get_by_role("textbox", name="Contains", exact=True).fill("three")
    stands(page, "ERROR three retry")
    page.get_by_role("link", name="Show all").click()
    page.wait_for_url(f"{site.url}/logs")


def test_a_label_that_no_line_has_is_said_with_those_that_exist(open_page: Open, site: LogSite) -> None:
    site.writer("known").write("here")
    page = open_page(of("nobody"), site=site)
    note = page.locator(".log-note", has_text="No line has the selected value of server")
    note.get_by_role("button", name="server=known").click()
    stands(page, "here")
    assert "server%3Dknown" in page.url
    assert "nobody" not in page.url


def test_who_reads_above_is_not_pushed_about(open_page: Open, site: LogSite) -> None:
    writer = site.writer("pause")
    writer.write(*numbered(1, 200))
    page = open_page(of("pause"), site=site)
    expect(state(page)).to_have_text("Live")
    stands(page, *numbered(1, 200))
    box(page).hover()
    page.mouse.wheel(0, -600)
    expect(state(page)).to_have_text("Paused")
    place = box(page).evaluate("(box) => box.scrollTop")
    writer.write(*numbered(201, 203))
    resume = page.get_by_role("button", name="3 new · Resume")
    expect(resume).to_be_visible()
    assert texts(page) == numbered(1, 200)
    assert box(page).evaluate("(box) => box.scrollTop") == place
    resume.click()
    stands(page, *numbered(1, 203))
    expect(state(page)).to_have_text("Live")
    expect(page.locator("[data-rows] > li").last).to_be_in_viewport()
    box(page).press("Home")
    expect(state(page)).to_have_text("Paused")
    until(lambda: box(page).evaluate("(box) => box.scrollTop") == 0, what="the first line is in sight")
    box(page).press("End")
    expect(state(page)).to_have_text("Live")


def test_older_lines_that_come_late_call_nobody_back(open_page: Open, site: LogSite) -> None:
    site.writer("late").write(*numbered(1, 900))
    page = open_page(of("late"), site=site)
    expect(state(page)).to_have_text("Live")
    rows = page.locator("[data-rows] > li")
    until(lambda: texts(page)[-1:] == ["line 900"], 30, "the newest line stands on the page, and so all before it")
    before = rows.count()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/live/logs/older?*", hold)
    with page.expect_request("**/live/logs/older?*"):
        box(page).press("Home")
    expect(state(page)).to_have_text("Paused")
    until(lambda: box(page).evaluate("(box) => box.scrollTop") == 0, what="the first line is in sight")
    box(page).press("End")
    expect(state(page)).to_have_text("Live")
    held[0].continue_()
    expect(rows).not_to_have_count(before)
    expect(state(page)).to_have_text("Live")
    expect(rows.last).to_be_in_viewport()


def test_scrolling_up_brings_the_older_lines_each_once(open_page: Open, site: LogSite) -> None:
    site.writer("older").write(*numbered(1, 900))
    page = open_page(of("older"), site=site)
    until(lambda: len(texts(page)) >= 500, 30, "the newest stand on the page")

    def reached_the_first() -> bool:
        box(page).evaluate("(box) => { box.scrollTop = 0; }")
        return "line 1" in texts(page)

    until(reached_the_first, 30, "the first line is loaded")
    assert texts(page) == numbered(1, 900)


def test_a_line_is_opened_linked_and_shown_among_its_neighbours(open_page: Open, site: LogSite) -> None:
    writer = site.writer("neighbours")
    for number in range(1, 31):
        writer.write(f"{'ERROR' if number == 15 else 'INFO'} line {number}", container="mail")
        writer.write(f"INFO other {number}", container="web")
    page = open_page(f"{of('neighbours')}&level=error", site=site)
    stands(page, "ERROR line 15")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    detail = page.locator("#log-detail")
    expect(detail).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{9} \S+"))
    expect(detail.get_by_role("button", name="Only lines with container=mail")).to_be_visible()
    link = detail.get_by_label("Link to this line").input_value()
    detail.get_by_role("button", name="Surrounding lines").click()
    dialog = page.get_by_role("dialog", name="Surrounding lines")
    expect(dialog.locator("[aria-current]")).to_contain_text("ERROR line 15")
    expect(dialog.locator(".log-line")).to_have_count(30)
    expect(dialog).not_to_contain_text("other")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(detail).to_have_count(0)
    page.goto(link)
    expect(page.locator("[data-rows] [aria-current]")).to_contain_text("ERROR line 15")
    expect(page.locator("[data-rows] [aria-current]")).to_be_in_viewport()
    assert len(texts(page)) == 30
    page.get_by_role("link", name="Follow live").click()
    expect(state(page)).to_have_text("Live")
    assert "line=" not in page.url


def test_a_source_in_trouble_is_said_and_the_others_go_on(
    open_page: Open, site: LogSite, complaints: list[str]
) -> None:
    site.writer("sound").write("sound")
    site.loki.answers = [500] * 1000
    page = open_page("/logs?label=server%3Dsound", site=site)
    note = page.locator(".log-note[data-tone=bad]")
    expect(note.first).to_contain_text("Loki:")
    assert note.first.locator("span").inner_text(), "what to do"
    expect(state(page)).to_contain_text("Loki:")
    site.loki.answers.clear()
    expect(page.locator(".log-note", has_text="The source is available again.")).to_be_visible()
    assert "sound" in texts(page)
    expect(state(page)).to_have_text("Live")
    complaints.clear()  # of the labels, which could not be read either


def test_a_restarted_web_process_loses_and_doubles_no_line(
    open_page: Open, site: LogSite, complaints: list[str]
) -> None:
    writer = site.writer("restart")
    writer.write(*numbered(1, 50))
    page = open_page(of("restart"), site=site)
    stands(page, *numbered(1, 50))
    for turn, death in enumerate((signal.SIGKILL, signal.SIGTERM), 1):
        first = turn * 100 - 49
        site.web.signal(death)
        writer.write(*numbered(first, first + 49))
        site.web.wait(10)
        site.web.start()
        writer.write(*numbered(first + 50, first + 99))
        until(lambda: len(texts(page)) >= first + 99, 90, "the page has caught up")  # noqa: B023
    assert texts(page) == numbered(1, 250)
    page.close()
    complaints.clear()  # the browser reports each attempt that met nobody


def test_a_flood_leaves_a_page_that_answers(open_page: Open, site: LogSite) -> None:
    writer = site.writer("flood")
    page = open_page(of("flood"), site=site)
    expect(state(page)).to_have_text("Live")
    for start in range(0, 30_000, 1000):
        writer.write(*numbered(start + 1, start + 1000))
    page.get_by_role("button", name="Wrap").click()
    expect(page.locator("[data-rows] > li").last).to_contain_text("line 30000", timeout=60_000)
    found = [int(line.removeprefix("line ")) for line in texts(page)]
    assert len(found) <= 3000
    notes = page.locator("[data-rows] .log-note").count()
    assert sum(later != one + 1 for one, later in pairwise(found)) <= notes, "what is left out is said"


def test_a_proxy_that_holds_the_stream_back_is_said(open_page: Open, site: LogSite) -> None:
    def never(route: Route) -> None:
        """No answer."""

    page = open_page(of("proxy"), site=site)
    page.route("**/live/logs?*", never)
    page.reload()
    expect(state(page)).to_contain_text("a proxy buffers the stream")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_nobody_is_kept_out(open_page: Open, site: LogSite, theme: str, width: int) -> None:
    writer = site.writer(f"all-{width}")
    writer.write(*ALL, container="mail", file="/var/log/a-rather-long-name/of-a-file/worker.log")
    writer.write("INFO more", container="web")
    page = open_page(f"/logs?label=server%3Dall-{width}&label=container%3Dnope", site=site, theme=theme, width=width)
    expect(page.locator(".log-note", has_text="No line has").first).to_be_visible()
    assert barriers(page) == []
    page.goto(of(f"all-{width}"))
    until(lambda: len(texts(page)) == len(ALL) + 1, 30, "all lines stand on the page")
    page.locator("summary", has_text="container").click()
    assert barriers(page) == []
    page.keyboard.press("Escape")
    page.locator(".log-line a.at").last.click()
    assert barriers(page) == []
    page.get_by_role("button", name="Surrounding lines").click()
    expect(page.locator("#log-around [aria-current]")).to_be_visible()
    assert barriers(page) == []
    assert page.evaluate(_SIDEWAYS) <= 0


def test_without_scripts_the_newest_lines_stand_in_the_page(open_page: Open, site: LogSite) -> None:
    site.writer("plain").write(NASTY, "ERROR it failed", "INFO it went well", container="mail")
    page = open_page(of("plain"), site=site, javascript=False)
    page.wait_for_url("**plain=1*")
    lines = page.locator(".log-plain .said")
    expect(lines).to_have_text([NASTY, "ERROR it failed", "INFO it went well"])
    expect(page.locator(".log-view")).to_be_hidden()
    page.get_by_role("checkbox", name="error").check()
    page.get_by_role("button", name="Show").click()
    expect(lines).to_have_text(["ERROR it failed"])
    expect(page.get_by_role("checkbox", name="container=mail")).to_be_visible()
    assert "level=error" in page.url
    for number in range(8):
        site.writer("plain").write("a line", file=f"/var/log/worker/mail-{number}.log")
    page.set_viewport_size({"width": 360, "height": 800})
    page.reload()
    heights = page.evaluate("[...document.querySelectorAll('#log-labels .chip')].map((chip) => chip.offsetHeight)")
    assert max(heights) < 60, "on a phone a label is a word or two, not a column of letters"
