"""What axe finds on a page that keeps somebody out."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_BARRIERS = ("serious", "critical")
# Preloaded styles are for one rule alone, an experiment that is off; they cost a request each.
_OPTIONS = {"resultTypes": ["violations"], "preload": False}


def barriers(page: Page) -> list[str]:
    """One line for each serious or critical finding: the rule, what it says, and where."""
    found = Axe().run(page, options=_OPTIONS).response["violations"]
    return [_line(violation) for violation in found if violation["impact"] in _BARRIERS]


def _line(violation: dict[str, object]) -> str:
    nodes = violation["nodes"]
    places = [str(node["target"]) for node in nodes] if isinstance(nodes, list) else []
    return f"{violation['id']}: {violation['help']} at {', '.join(places)}"
