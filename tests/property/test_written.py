"""Whatever bytes a line has: no control character, no code, no secret comes out, and nothing else is lost."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from recovery.domain.logs import ansi, levels
from recovery.domain.logs.sanitize import JUDGED, LIMIT, line_prefilter, sanitize_line
from recovery.domain.logs.types import LogQuery
from recovery.domain.redaction import secret_finder

SECRET = st.from_regex(r"[A-Za-z0-9_]{10,24}", fullmatch=True).map(lambda some: f"Zq{some}7")
CODES = st.sampled_from(
    ["\x1b[31m", "\x1b[0m", "\x1b[1;38;5;208m", "\x1b[48;2;1;2;3m", "\\u001b[32m", "\x1b]0;t\x07", "\x1b(B", "\x1b[2K"]
)
UNSEEN = st.sampled_from(["\x00", "\u200b", "\xad", "\x08", "\x1b", "\u202e", "\u2060", "\x7f"])
SIGNS = ["=", ": ", '"', "'", " ", "-", "_", "--", "://", "@", "\\", "{", "[", "\n", "\r"]
SHAPES = ["Bearer abcdef1234", "eyJhbGciOi.x", "AKIAIOSFODNN7EXAMPLE", "ghp_16C7e42F292c69", "4111 1111 1111 1111"]
SHAPES += ["xoxb-22222", "DE89 3704 0044 0532 0130 00", "sk_live_4eC39HqLyjWDarjt"]
SAID = [
    "ERROR",
    "level",
    '"level":',
    "lvl=",
    "severity: ",
    "50",
    "3",
    "E0102 10:11:12.",
    "Traceback (most recent",
    "[warn]",
]
SAID += ["x.FooException:", "Info:", "fatal - ", "npm ERR!", "\u017fevere:", "{"]
FOLDED = ["Ba\u017fic abcdefgh", "COO\u212aie: a; b", "wordX" * 45]
PIECES = st.one_of(
    st.text(max_size=8),
    CODES,
    UNSEEN,
    st.sampled_from([*secret_finder.WORDS, *secret_finder.PARTS, *SIGNS]),
    st.sampled_from(SHAPES),
    st.sampled_from([*FOLDED, *SAID]),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
SAYINGS = st.lists(st.sampled_from([*SAID, " ", '"', "=", ":"]), max_size=6).map(lambda said: "".join(said).encode())
LINES = st.one_of(st.binary(max_size=300), TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")))


@given(LINES)
def test_nothing_comes_out_that_a_terminal_or_a_browser_would_obey(raw: bytes) -> None:
    line = sanitize_line("1", 1, raw, {})
    assert not [sign for sign in line.text if sign != "\t" and unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")]
    assert not any("\u202a" <= sign <= "\u202e" or "\u2066" <= sign <= "\u2069" for sign in line.text)
    assert all(set(span.look.split()) <= set(ansi.LOOKS) and span.text for span in line.spans)
    assert not line.spans or "".join(span.text for span in line.spans) == line.text


@settings(max_examples=250)
@given(TEXTS)
@example("passcodeA:@")
@example("COO\u212aie: a; b=")
def test_the_quick_look_for_names_is_never_weaker_than_the_search(text: str) -> None:
    lowered = text.lower()
    if not secret_finder.may_name(text):
        assert not list(secret_finder.behind_names(text, lowered))


@given(SECRET, st.data())
def test_a_secret_is_not_shown_however_it_is_cut_in_two(secret: str, data: st.DataObject) -> None:
    key, form = data.draw(st.sampled_from([("password", "{}={}"), ("apiKey", '{{"{}": "{}"}}'), ("token", "--{} {}")]))
    whole = form.format(key, secret)
    seam = st.one_of(CODES, st.sampled_from(["\x00", "\u200b", "\xad", "\x08"]))
    for place in sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=4)), reverse=True):
        whole = whole[:place] + data.draw(seam) + whole[place:]
    shown = sanitize_line("1", 1, whole.encode(), {})
    letters = "".join(sign for sign in shown.text if sign.isalnum())
    assert secret.replace("_", "") not in letters
    assert all(secret[-6:] not in span.text for span in shown.spans)


CUT = ["4111 1111 1111 1111", "redis://u:Zqhunter22@h", "token=Zqhunter22"]


@given(st.integers(LIMIT - 60, LIMIT + 20), st.sampled_from(CUT))
def test_a_secret_is_not_shown_in_part_where_the_line_is_cut(place: int, secret: str) -> None:
    raw = b"x" * (place - 1) + b" " + secret.encode() + b" " + b"y" * 5000
    line = sanitize_line("1", 1, raw, {})
    assert "4111" not in line.text
    assert "Zq" not in line.text
    assert len(line.text) <= JUDGED
    assert line.left_out == len(raw) - LIMIT


@settings(max_examples=250)
@given(LINES, st.data())
def test_the_sieve_lets_through_all_that_matches(raw: bytes, data: st.DataObject) -> None:
    line = sanitize_line("1", 1, raw, {})
    start = data.draw(st.integers(0, len(line.text)))
    term = line.text[start : start + data.draw(st.integers(1, 6))].swapcase()
    query = LogQuery(include=(term,)) if term else LogQuery()
    if query.matches(line):
        assert line_prefilter(query)(raw)
        assert line_prefilter(query)(b"before\n" + raw + b"\nbehind")


@settings(max_examples=250)
@given(st.one_of(LINES, SAYINGS))
def test_the_sieve_lets_through_every_line_of_a_level(raw: bytes) -> None:
    line = sanitize_line("1", 1, raw, {})
    if line.level:
        assert line_prefilter(LogQuery(levels=frozenset((line.level,))))(raw)
        assert line_prefilter(LogQuery(levels=frozenset((line.level,))))(b"before\n" + raw + b"\nbehind")


@given(st.one_of(TEXTS, st.text(max_size=500)))
def test_any_text_has_a_level_or_none(text: str) -> None:
    levels.find_level(text)
    levels.find_level("{" + text)
