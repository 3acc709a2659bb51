"""Every text holds 4.5 : 1 on every ground it stands on, in both themes, worked out from the tokens."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

TOKENS = (Path(__file__).parents[2] / "static/css/tokens.css").read_text(encoding="utf-8")
PAIRS = dict(re.findall(r"--([\w-]+):\s*light-dark\((oklch\([^)]*\),\s*oklch\([^)]*\))\)", TOKENS))
THEMES = ("light", "dark")
GROUNDS = ("bg", "panel", "raised")
TONES = tuple(name for name in PAIRS if name.endswith("-ground"))
WORDS = ("text", "muted", "link", *(name for name in PAIRS if name.endswith("-text")))
WORDS_ON_TONES = ("text", "muted", "link", "failed-text", "stuck-text")
MARKS = ("edge", "focus", "active", "completed", "failed", "delayed", "stuck")
LEAST_TEXT = 4.5
LEAST_MARK = 3.0  # WCAG's limit for a thing that is not text


def luminance(name: str, theme: str) -> float:
    light, chroma, hue = map(float, re.findall(r"oklch\(([^)]*)\)", PAIRS[name])[THEMES.index(theme)].split())
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (light - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short
    red, green, blue = (min(1.0, max(0.0, part)) for part in (red, green, blue))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str, theme: str) -> float:
    lighter, darker = sorted((luminance(one, theme), luminance(other, theme)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def too_weak(words: Iterable[str], grounds: Iterable[str], least: float) -> dict[str, float]:
    """What stands out too little from its ground, and how much it does."""
    found = {
        f"{word} on {ground}, {theme}": round(contrast(word, ground, theme), 2)
        for word, ground, theme in itertools.product(words, grounds, THEMES)
        if contrast(word, ground, theme) < least
    }
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def test_the_tokens_are_read() -> None:
    assert {*WORDS, *WORDS_ON_TONES, *MARKS, *GROUNDS, "stuck-ground"} <= set(PAIRS)
    assert contrast("text", "text", "light") == pytest.approx(1)


def test_a_word_is_legible() -> None:
    violations = too_weak(WORDS, GROUNDS, LEAST_TEXT)
    assert violations == {}


def test_a_word_on_a_toned_ground_is_legible() -> None:
    violations = too_weak(WORDS_ON_TONES, TONES, LEAST_TEXT)
    assert violations == {}


def test_a_mark_is_seen() -> None:
    violations = too_weak(MARKS, ["panel"], LEAST_MARK)
    assert violations == {}
