"""What somebody wrote becomes a line that is safe to show: plain text, cut, in colours, without secrets."""

from __future__ import annotations

import pytest

from recovery.domain.logs import ansi, line_batches
from recovery.domain.logs.line_batches import CutLine, LineBatch
from recovery.domain.logs.sanitize import LIMIT, line_prefilter, sanitize_line
from recovery.domain.logs.types import LogLevel, LogLine, LogQuery, StyledSpan
from recovery.domain.redaction.redact import MARK


def line(raw: bytes) -> LogLine:
    return sanitize_line("1", 1, raw, {})


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'<b>markup</b> & "quotes"', '<b>markup</b> & "quotes"'),
        (b"ends with both\r\n", "ends with both"),
        (b"one\rtwo\nthree", "one\u240dtwo\u240athree"),
        (b"a\x00b\x07c\x7f", "a\u2400b\u2407c\u2421"),
        (b"tab\tstays", "tab\tstays"),
        ("café \u00e9\u0301 \U0001f600".encode(), "café \u00e9\u0301 \U0001f600"),
        (b"caf\xc3\xa9 \xff\xc3", "café \ufffd\ufffd"),
        (b"\xef\xbb\xbfwith a mark of its order", "with a mark of its order"),
        ("a\u202eb\u200bc\u2028d".encode(), "a\ufffdb\ufffdc\ufffdd"),
        (b"", ""),
        (b"\r\n", ""),
    ],
)
def test_a_line_is_plain_text_whatever_was_written(raw: bytes, text: str) -> None:
    assert (line(raw).text, line(raw).spans) == (text, ())


def test_a_long_line_is_cut_and_says_how_much_is_left_out() -> None:
    long = line(b"x" * 1_000_000)
    assert (long.text, long.left_out) == ("x" * LIMIT, 1_000_000 - LIMIT)
    assert line(b"x" * LIMIT).left_out == 0
    assert sanitize_line("1", 1, b"x" * 10, {}, more=90).left_out == 90
    assert line("é".encode() * LIMIT).text.rstrip("\ufffd") == "é" * (LIMIT // 2)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"password=Zqhunter22", f"password={MARK}"),
        (b"pass\x1b[31mword=Zqhunter22", f"password={MARK}"),
        (b"2fa_token=Zqhunter22", f"2fa_token={MARK}"),
        (b"MIIEowIBAAKCAQEAx7Vb1Nq3k5mJ8pQ2rS4tU6vW8xY0zA1bC3dE5fG7hI9jK1lM", MARK),
        (b"redis://user:Zqhunter22@10.0.0.1/0", f"redis://user:{MARK}@10.0.0.1/0"),
    ],
)
def test_a_secret_is_hidden(raw: bytes, text: str) -> None:
    assert line(raw).text == text


def test_what_shows_itself_only_without_the_unseen_hides_the_line() -> None:
    assert line("pass\u200bword=Zqhunter22".encode()).text == MARK


@pytest.mark.parametrize(
    ("raw", "spans"),
    [
        (b"\x1b[31mred\x1b[0m plain", [("red", "red"), (" plain", "")]),
        (b"\x1b[1;38;5;208mx\x1b[22;39my", [("x", "bold bright-red"), ("y", "")]),
        (b"\x1b[38;2;0;0;255mb\x1b[mz", [("b", "bright-blue"), ("z", "")]),
        (b"\x1b[30;47ma\x1b[0;37;41mb", [("a", "white"), ("b", "red")]),
        (b"\x1b[4;3;2;9mall\x1b[23;24;29;22m none", [("all", "dim italic underline strike"), (" none", "")]),
        (b"\\u001b[32mas JSON has it\\u001b[0m", [("as JSON has it", "green")]),
        (b"\x1b]8;;http://x\x07link\x1b]8;;\x07\x1b[2K\x1b(B\x1b[36m!", [("link", ""), ("!", "cyan")]),
        (b"\x1b[31mtoken=Zqhunter22 \x1b[32mok", [("token=", "red"), (MARK, ""), (" ", "red"), ("ok", "green")]),
    ],
)
def test_colours_are_looks_and_other_codes_are_gone(raw: bytes, spans: list[tuple[str, str]]) -> None:
    shown = line(raw)
    assert shown.spans == tuple(StyledSpan(*span) for span in spans)
    assert shown.text == "".join(text for text, _ in spans)


def test_codes_without_colour_leave_plain_text() -> None:
    assert (line(b"\x1b[2Kdone").text, line(b"\x1b[2Kdone").spans) == ("done", ())
    assert line(b"never ended \x1b[31").text == "never ended \u241b[31"


def test_too_many_changes_of_colour_end_in_plain_text() -> None:
    runs = ansi.parse_runs("".join(f"\x1b[{31 + number % 2}mx" for number in range(3 * ansi.RUNS_LIMIT)))
    assert len(runs) == ansi.RUNS_LIMIT + 1
    assert runs[-1] == ("x" * 2 * ansi.RUNS_LIMIT, "")


def test_a_level_that_the_source_knows_wins() -> None:
    assert line(b"ERROR: x").level is LogLevel.ERROR
    assert sanitize_line("1", 1, b"ERROR: x", {}, LogLevel.INFO).level is LogLevel.INFO


def test_the_mark_of_a_secret_can_be_looked_for_and_the_secret_cannot() -> None:
    raw = b"password=Zqhunter22"
    for term in (MARK, "redacted", "=[red"):
        assert LogQuery(include=(term,)).matches(line(raw))
        assert line_prefilter(LogQuery(include=(term,)))(raw)
    assert not LogQuery(include=("Zqhunter",)).matches(line(raw))


# -- parcels


def test_a_parcel_unfolds_to_what_was_put_in() -> None:
    lines = ((5, b"one"), (3, b"tab\tand \xff"), (4, CutLine.of(b"the beginning", 99)), (6, b""))
    fields = LineBatch(lines, {"b": "é", "a": "1"}).encode()
    assert fields["labels"] == '{"a":"1","b":"é"}'
    assert (fields["count"], fields["first"], fields["last"]) == (4, 3, 6)
    found = list(line_batches.unpack_lines(bytes(fields["body"])))  # type: ignore[arg-type] # it is bytes
    assert found == list(lines)
    assert [raw.left_out if isinstance(raw, CutLine) else 0 for _, raw in found] == [0, 0, 99, 0]


def test_a_line_feed_within_a_line_makes_no_second_one() -> None:
    fields = LineBatch(((1, b"one\ntwo"),)).encode()
    assert list(line_batches.unpack_lines(bytes(fields["body"]))) == [(1, b"one two")]  # type: ignore[arg-type] # it is bytes


@pytest.mark.parametrize(
    "spoil", [lambda body: body[:-1], lambda body: b"", lambda body: b"rubbish", lambda body: body[::-1]]
)
def test_what_is_no_parcel_is_refused(spoil: object) -> None:
    body = LineBatch(((1, b"one"),)).encode()["body"]
    with pytest.raises(ValueError, match="parcel"):
        list(line_batches.unpack_lines(spoil(body)))  # type: ignore[operator] # a function


def test_a_parcel_that_unfolds_to_more_than_there_may_be_is_refused() -> None:
    body = LineBatch(((1, b"x" * line_batches.LARGEST),)).encode()["body"]
    with pytest.raises(ValueError, match="too large"):
        line_batches.decompress_rows(bytes(body))  # type: ignore[arg-type] # it is bytes


@pytest.mark.parametrize("row", [b"", b"x", b"x\ty", b"-\ty", "1+\u0661\ty".encode(), b"1+x\ty", b"9" * 30 + b"\ty"])
def test_a_row_without_a_moment_is_refused(row: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- int() has its own words
        line_batches.unpack_line(row)


def test_a_revealed_line_has_its_secret_and_still_no_code_of_a_terminal() -> None:
    raw = b"\x1b[31mpassword=Zqhunter22\x1b[0m \x00 " + b"x" * LIMIT
    line = sanitize_line("1", 1, raw, {}, is_revealed=True)
    assert line.text.startswith("password=Zqhunter22 \u2400 x")
    assert line.left_out == len(raw) - LIMIT
    assert sanitize_line("1", 1, raw, {}).text.startswith(f"password={MARK} ")
