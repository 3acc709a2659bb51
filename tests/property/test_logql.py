"""Whatever a person writes stands in a question to Loki as plain text, and refuses no line that may match."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from recovery.domain.logs.sanitize import sanitize_line
from recovery.domain.logs.types import LogLevel, LogQuery
from recovery.logs.loki import logql as loki_logql
from tests.support.logs import logql

TRICKY = [
    '"',
    "\\",
    "`",
    "{",
    "}",
    "|",
    "=",
    "~",
    "\n",
    "\x00",
    "\ud800",
    "\ufeff",
    "é",
    "ß",
    "\u2028",
    ".*",
    "(?i)",
    "a",
]
TEXTS = st.one_of(st.text(max_size=12), st.lists(st.sampled_from(TRICKY), max_size=8).map("".join))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
LETTERS = st.one_of(
    st.characters().filter(lambda sign: len(sign.casefold()) == 1),
    st.sampled_from("sSkKéÉſ\u212astfi \x1b[31m\t\r\n[redacted]"),
)


def sound(text: str) -> str:
    """As it can be written down at all."""
    return text.encode("utf-8", "replace").decode()


@given(NAMES, st.sets(TEXTS, min_size=1, max_size=4), TEXTS)
def test_a_value_is_chosen_and_nothing_but_it(name: str, values: set[str], other: str) -> None:
    asked = loki_logql.selector(loki_logql.matchers("", LogQuery(labels=((name, frozenset(values)),))))
    chosen = logql.logs(asked, may_be_all=True)
    assert all(chosen.matches({name: sound(value)}) for value in values)
    assert chosen.matches({name: sound(other)}) == (sound(other) in {sound(value) for value in values})


@given(TEXTS)
@example("a!~`x`} | json | line_format `{{.password}}` # ")
@example('b="x" or app')
def test_a_name_of_a_label_cannot_leave_its_place(name: str) -> None:
    """Of a line without the label the value is "": so any name may be asked for."""
    query = LogQuery(labels=((name, frozenset(("",))),))
    asked = loki_logql.selector(loki_logql.matchers('env="a"', query)) + loki_logql.filters(query)
    found = logql.logs(asked)
    assert found.matches({"env": "a"})
    assert not found.matches({"env": "b"})
    assert asked in ('{env="a"}', f'{{env="a", {name}=""}}' if loki_logql.is_name(name) else "")


@given(TEXTS, TEXTS)
def test_a_text_cannot_leave_its_place(term: str, match: str) -> None:
    query = LogQuery(labels=(("app", frozenset((match, "x"))),), include=(term,), levels=frozenset((LogLevel.INFO,)))
    asked = loki_logql.selector(loki_logql.matchers('env="a"', query)) + loki_logql.filters(query)
    assert "\n" not in asked
    found = logql.logs(asked)
    assert found.matches({"env": "a", "app": "x"})
    assert not found.matches({"env": "b", "app": "x"})


@given(st.text(LETTERS, max_size=40), st.text(LETTERS, min_size=1, max_size=5), st.booleans())
@example("CAFÉ au lait", "café", False)
@example("a.b*c", ".B*", False)
@example("\x1b[1mwo\x1b[0mrd", "word", False)
@example("\\u001b[31mER\\u001b[0mROR", "error", False)
@example("KELVIN \u212a", "k", False)
@example("password=Zq7", "redacted", False)
@example("a\r\nb", "\u240d", False)
def test_no_line_that_matches_is_refused_over_there(text: str, term: str, is_part: bool) -> None:
    """`is_part`: the text to look for is taken from the line as it is shown, so that there is something to find."""
    raw = sound(text)
    line = sanitize_line("1", 1, raw.encode(), {})
    if is_part:
        assume(line.text)
        term = line.text[len(line.text) // 3 :][:5] or line.text
    query = LogQuery(include=(term,))
    if query.matches(line):
        asked = '{a="b"}' + loki_logql.filters(query)
        assert logql.logs(asked).keeps(raw, {})


@given(st.sampled_from(LogLevel), st.sampled_from([*loki_logql.LEVELS, "unknown", "", "odd"]))
def test_a_level_refuses_only_what_is_surely_another(level: LogLevel, name: str) -> None:
    query = LogQuery(levels=frozenset((level,)))
    is_kept = logql.logs('{a="b"}' + loki_logql.filters(query)).keeps("x", {loki_logql.LEVEL: name.upper()})
    assert is_kept == (loki_logql.LEVELS.get(name, level) is level)
