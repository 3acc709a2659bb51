"""Every text holds 4.5 : 1 on every ground it stands on, in both themes, worked out from the tokens."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

TOKENS = (Path(__file__).parents[2] / "static/css/tokens.css").read_text(encoding="utf-8")
PAIRS = dict(re.findall(r"--([\w-]+):\s*light-dark\((oklch\([^)]*\),\s*oklch\([^)]*\))\)", TOKENS))
THEMES = ("light", "dark")
GROUNDS = ("bg", "panel", "raised")
TONES = tuple(name for name in PAIRS if name.endswith("-ground"))
WORDS = ("text", "muted", "link", *(name for name in PAIRS if name.endswith("-text")))
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


def test_the_tokens_are_read() -> None:
    assert {"text", "muted", "failed-text", "stuck-ground", *GROUNDS} <= set(PAIRS)
    assert contrast("text", "text", "light") == pytest.approx(1)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_legible(word: str, ground: str, theme: str) -> None:
    assert contrast(word, ground, theme) >= LEAST_TEXT


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", TONES)
@pytest.mark.parametrize("word", ["text", "muted", "link", "failed-text", "stuck-text"])
def test_a_word_on_a_toned_ground_is_legible(word: str, ground: str, theme: str) -> None:
    assert contrast(word, ground, theme) >= LEAST_TEXT


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("mark", ["edge", "focus", "active", "completed", "failed", "delayed", "stuck"])
def test_a_mark_is_seen(mark: str, theme: str) -> None:
    assert contrast(mark, "panel", theme) >= LEAST_MARK
