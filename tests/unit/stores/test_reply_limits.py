"""How a stream of replies is cut, and what becomes of one that is too long."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
import redis

from recovery.stores.redis import reply_limits
from recovery.stores.redis.pipeline import Command, chunked
from recovery.stores.redis.redis_errors import refusal
from recovery.stores.redis.reply_limits import MIB, OversizedReply, ReplyReader, UnreadReply, commands

LONG = b"x" * (MIB + 1)  # for one string
STREAM = (
    b"$2\r\nab\r\n"
    b"*3\r\n$1\r\na\r\n:5\r\n*2\r\n$-1\r\n$0\r\n\r\n"
    b"*0\r\n*-1\r\n+OK\r\n:-7\r\n"
    b"-WRONGTYPE it holds something else\r\n"
    b"$6\r\n$9\r\nab\r\n"
)
COUNT = 8


def bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def asked(*names: Command) -> list[reply_limits.SentCommand]:
    return list(commands(chunked(names)[0].sent))


def told(found: list[Any]) -> list[Any]:
    return [str(one) if isinstance(one, Exception) else one for one in found]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_replies_are_cut_as_hiredis_cuts_them(step: int) -> None:
    whole = hiredis.Reader(replyError=refusal)
    whole.feed(STREAM)
    replies = ReplyReader(asked(*[("LRANGE", "key", 0, 1)] * COUNT), refusal)
    for at in range(0, len(STREAM), step):
        assert not replies.is_complete
        replies.feed(STREAM[at : at + step])
    assert replies.is_complete
    assert told(replies.found) == told([whole.gets() for _ in range(COUNT)])


@pytest.mark.parametrize("step", [100, 64 * 1024, 10 * MIB])
def test_one_that_is_a_little_too_long_is_passed_over(step: int) -> None:
    replies = ReplyReader(asked(("GET", "a"), ("HMGET", "bull:evil:meta", "paused"), ("GET", "b")), refusal)
    stream = bulk(b"1") + b"*1\r\n" + bulk(LONG) + bulk(b"2")
    for at in range(0, len(stream), step):
        replies.feed(stream[at : at + step])
        assert len(replies._buffer) <= max(step, MIB)
    first, long, last = replies.found
    assert (first, last) == (b"1", b"2")
    assert isinstance(long, OversizedReply)
    assert isinstance(long, redis.ResponseError)
    assert str(long) == "the answer to HMGET bull:evil:meta is longer than 1 MiB, so it was not read"


def test_of_one_that_is_much_too_long_the_rest_is_given_up() -> None:
    replies = ReplyReader(asked(("GET", "a"), ("LINDEX", "bull:evil:active", 0), ("GET", "b")), refusal)
    replies.feed(bulk(b"1") + b"$125829120\r\nxxxx")
    assert replies.has_given_up
    replies.go_on()
    replies.feed(bulk(b"2"))
    assert replies.is_complete
    assert [type(one) for one in replies.found] == [bytes, OversizedReply, bytes]


def test_a_window_of_many_short_strings_has_a_limit_as_well() -> None:
    replies = ReplyReader(asked(("LRANGE", "bull:evil:active", 0, -1)), refusal)
    replies.feed(b"*1000000\r\n" + bulk(b"x" * 1000) * 5000)
    assert replies.has_given_up


def test_a_text_that_was_measured_may_be_as_long_as_a_page_loads() -> None:
    replies = ReplyReader(asked(("HGET", "bull:mail:1", "data")), refusal)
    replies.feed(bulk(LONG * 8))
    assert replies.found == [LONG * 8]


def test_a_scan_goes_on_although_the_names_it_found_are_too_long() -> None:
    replies = ReplyReader(asked(("SCAN", 0, "COUNT", 1000)), refusal)
    replies.feed(b"*2\r\n$4\r\n1234\r\n*2\r\n" + bulk(b"bull:x:id") + b"$125829120\r\n")
    replies.go_on()
    (refused,) = replies.found
    assert refused.cursor == b"1234"


def test_after_very_much_only_short_ones_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_limits, "FLIGHT_LIMIT", MIB)
    replies = ReplyReader(asked(*[("GET", "key")] * 6), refusal)
    replies.feed((bulk(b"x" * (MIB // 2)) * 3) + bulk(b"short") + bulk(b"y" * 20_000) + bulk(b"short"))
    kinds = [type(one) for one in replies.found]
    assert kinds == [bytes, bytes, UnreadReply, bytes, UnreadReply, bytes]


def test_what_a_script_has_kept_is_read_however_much_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took jobs away, and answers all there is left of them."""
    monkeypatch.setattr(reply_limits, "FLIGHT_LIMIT", MIB)
    replies = ReplyReader(asked(*[("EVALSHA", "digest", 0)] * 4), refusal)
    replies.feed(bulk(LONG * 4) * 4)
    assert [type(one) for one in replies.found] == [bytes] * 4


def test_what_is_no_reply_is_said() -> None:
    with pytest.raises(hiredis.ProtocolError):
        ReplyReader(asked(("GET", "a")), refusal).feed(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(hiredis.ProtocolError):
        ReplyReader(asked(("GET", "a")), refusal).feed(b"$x\r\n")


def test_commands_are_found_in_what_was_sent() -> None:
    sent = chunked([("get", b"a\r\n*2"), ("PING",), ("EVALSHA", "digest", 1, "key", "arg")])[0].sent
    found = list(commands(sent))
    assert [(one.verb, one.key, one.is_read) for one in found] == [
        (b"GET", b"a\r\n*2", True),
        (b"PING", b"", True),
        (b"EVALSHA", b"digest", False),
    ]
    assert found[-1].end == len(sent)
