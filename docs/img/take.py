"""Takes the pictures of the README from the running demo: `make screenshots`.

It starts the product as a stranger would, follows the one-time link, lets the demo work for a while, and
photographs the pages in both themes and two widths. The README's own are kept; the rest goes where it is told.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BIND = "127.0.0.1:8977"
BROWSERS = ("chromium-headless-shell", "chromium")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
SETTLE_MS = 900  # for the first tick and a chart to be drawn
STUCK_MS = 180_000
WIDTHS = {"wide": 1280, "narrow": 360}
KEPT = {
    "queues-light-wide": "queues",
    "stuck-light-wide": "stuck",
    "job-dark-wide": "job",
    "queues-dark-narrow": "phone",
}
PLAIN = ("servers", "scanners", "alerts", "audit")
TABS = (("active", "imports", "active"), ("failed", "payments", "failed"), ("history", "emails", "history"))
LIFE_SECONDS = 75.0  # for the demo to fill more than a minute of the charts
LINK = re.compile(r"http://\S+/welcome/\S+")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", type=Path, help="a directory for every picture, not only the README's")
    arguments.add_argument("--life", type=float, default=LIFE_SECONDS, help="seconds the demo lives before")
    wish = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as link, sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, BROWSERS)), None) or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        session = sign_in(browser, link)
        time.sleep(wish.life)
        for name, picture in pictures(browser, session):
            if wish.all:
                wish.all.mkdir(parents=True, exist_ok=True)
                (wish.all / f"{name}.png").write_bytes(picture)
            if name in KEPT:
                (HERE / f"{KEPT[name]}.png").write_bytes(picture)
        browser.close()


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """The whole product on the demo, in a directory of its own; gives the one-time link."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("UNSTALL_")}
    (folder / "unstall.toml").touch()  # an empty one, so that the developer's own is not read
    environ |= {"UNSTALL_DATA_DIR": str(folder), "UNSTALL_BIND": BIND, "UNSTALL_CONFIG": str(folder / "unstall.toml")}
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up"], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        yield next(found[0] for line in process.stdout or () if (found := LINK.search(line)))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def sign_in(browser: Browser, link: str) -> list[dict[str, object]]:
    """Becomes the first admin; gives the cookies."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    page.fill("input[name=username]", "ada")
    for field in page.query_selector_all("input[type=password]"):
        field.fill("a-long-enough-secret")
    page.click("form button[data-kind=primary]")
    page.wait_for_url("**/queues**")
    cookies = context.cookies()
    context.close()
    return [dict(cookie) for cookie in cookies]


def pictures(browser: Browser, session: list[dict[str, object]]) -> Iterator[tuple[str, bytes]]:
    for theme in ("light", "dark"):
        for width, pixels in WIDTHS.items():
            context = browser.new_context(
                base_url=f"http://{BIND}",
                color_scheme=theme,
                viewport={"width": pixels, "height": 860},
            )
            context.add_cookies(session)  # type: ignore[arg-type]  # as Playwright gave them
            page = context.new_page()
            for name, path in addresses(page):
                page.goto(path)
                if name == "stuck":  # the demo's worker dies again and again; sooner or later it has left something
                    page.wait_for_selector("[data-row]", timeout=STUCK_MS)
                page.wait_for_timeout(SETTLE_MS)
                yield f"{name}-{theme}-{width}", page.screenshot()
            context.close()


def addresses(page: Page) -> Iterator[tuple[str, str]]:
    """The pages worth a picture; the job is the first one of the orphaned queue."""
    yield "queues", "/queues"
    yield "stuck", "/stuck"
    for name in PLAIN:
        yield name, f"/{name}"
    page.goto("/queues")
    queues = [str(link.get_attribute("href")) for link in page.query_selector_all("a[href*='/queues/main/']")]
    for name, wanted, tab in TABS:
        found = next((address for address in queues if wanted in address), None)
        if found is None:
            continue
        yield name, f"{found}?tab={tab}"
        job = page.query_selector("a[href*='/jobs/']")
        if job and name == "failed":
            yield "job", str(job.get_attribute("href"))


if __name__ == "__main__":
    main()
