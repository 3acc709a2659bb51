"""What a secret looks like: names of keys, and shapes of values inside any text.

Every pattern is linear in the text, because the text is a stranger's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

KEY_LIMIT = 200  # characters of a key that are judged

WORDS = frozenset((
    "password", "passwd", "pwd", "pass", "passphrase", "passcode", "secret", "secrets", "token", "tokens",
    "authorization", "cookie", "cookies", "credential", "credentials", "cvv", "cvc", "iban", "ssn", "card", "pin",
    "otp", "totp", "jwt", "bearer", "auth", "apikey", "session", "sid", "csrf", "xsrf",
))  # fmt: skip
# Found anywhere in a key whose separators were dropped: `x-api-key`, `AWSSecretAccessKey`, `dbpassword`.
PARTS = (
    "password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey", "signingkey",
    "encryptionkey", "authorization", "cookie", "credential", "creditcard", "cardnumber", "sessionid", "csrf",
    "connectionstring", "iban",
)  # fmt: skip
_COUNTS = frozenset((
    "max", "min", "num", "total", "count", "prompt", "completion", "input", "output", "used", "usage", "limit",
))  # fmt: skip
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_SHAPES = (
    re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){0,4}"),  # JWT
    re.compile(r"(?i)\b(?:bearer|basic|digest|negotiate)\s{1,4}[A-Za-z0-9+/=._~:-]{6,}"),
    re.compile(r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[0-9A-Z]{12,}"),  # AWS
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|npm_|pypi-|hf_|dop_v1_|SG\.)[A-Za-z0-9_.-]{10,}"),
    re.compile(r"\b(?:sk|pk|rk|whsec)[-_][A-Za-z0-9_-]{16,}"),  # Stripe, model vendors
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),  # Google
)
_USER_IN_URL = re.compile(r"(?<=://)([^/\s:@\"']{0,256}):([^/\s\"']{1,512})@")
_LINE = re.compile(
    r"(?im)^([ \t]{0,40}(?:proxy-)?(?:authorization|cookie|set-cookie)[ \t]{0,4}[:=][ \t]{0,4})\S[^\r\n]*"
)
_QUOTED_KEY = re.compile(r"""(\\{0,15})(["'])((?:[^"'\\]|\\(?!["'])){1,200})\1\2\s{0,20}:\s{0,200}""")
# A key may begin with a digit or a letter of another alphabet: `2fa_token=`, `größe.password=`.
_PLAIN_KEY = re.compile(r"(?<![\w.-])(\w[\w.-]*)(?:\s{0,4}(?:=>|[=:])\s{0,4}|(?<=\w)>)")
_FLAG = re.compile(r"(?<![\w-])--?([A-Za-z][\w.-]*)(?:=|[ \t]{1,4})(?=\S)")
_LITERAL_END = re.compile(r"[,}\]\s]")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|digest|negotiate|token)\s{1,4}")  # before the secret in `Authorization`
_WORD_END = re.compile(r"[\s,;&\"'<>)}\]]")
_CARD = re.compile(r"(?<!\d)(?<!\d\.)\d(?:[ -]?\d){12,18}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b")


@lru_cache(maxsize=4096)
def is_secret_key(key: str) -> bool:
    """Whether what stands under this key is hidden, whatever it looks like."""
    words = _split(key)
    joined = "".join(words)
    return not WORDS.isdisjoint(words) or any(part in joined for part in PARTS)


def is_counted(key: str) -> bool:
    """`max_tokens` and its kind hold a number that is no secret."""
    words = _split(key)
    return words[-1:] == ["tokens"] or not _COUNTS.isdisjoint(words)


def is_card(written: str) -> bool:
    """A payment card's number: a length and a first digit that cards have, and Luhn's sum."""
    digits = written.replace(" ", "").replace("-", "")
    if not digits.isascii() or not digits.isdigit() or not 13 <= len(digits) <= 19 or digits[0] not in "23456":
        return False
    if len(digits) == 13 and digits[0] != "4":  # else a time in milliseconds would do
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 * (number > 9) for number in doubled) % 10 == 0


def masked(given: str, mark: str) -> str:
    """The text without its secrets. By keys first, then by shape."""
    given = _LINE.sub(rf"\1{mark}", given)
    given = _by_key(given, mark, _QUOTED_KEY, lambda found: (found[3], _end(given, found.end(), found[1])))
    given = _by_key(given, mark, _PLAIN_KEY, lambda found: (found[1], _word_end(given, found.end())))
    given = _by_key(given, mark, _FLAG, lambda found: (found[1], _word_end(given, found.end())))
    for shape in _SHAPES:
        given = shape.sub(mark, given)
    given = _USER_IN_URL.sub(rf"\1:{mark}@", given)
    given = _CARD.sub(lambda found: mark if is_card(found[0]) else found[0], given)
    return _IBAN.sub(lambda found: mark if _is_iban(found[0]) else found[0], given)


def _by_key(
    given: str, mark: str, pattern: re.Pattern[str], value_of: Callable[[re.Match[str]], tuple[str, int]]
) -> str:
    """Hides what follows each secret key. After a harmless key the search goes on right behind it."""
    parts, position = [], 0
    while found := pattern.search(given, position):
        parts.append(given[position : found.end()])
        position = found.end()
        key, end = value_of(found) if is_secret_key(_key_of(found)) else ("", position)
        hidden = given.startswith(mark, position)
        if end > position and not hidden and not (is_counted(key) and given[position:end].isdigit()):
            parts.append(mark)
            position = end
    parts.append(given[position:])
    return "".join(parts)


def _key_of(found: re.Match[str]) -> str:
    return found[found.re.groups]  # the key is the last group of each pattern


def _end(given: str, start: int, escape: str) -> int:
    """Where a JSON-like value ends: a string, a bracket with all it holds, a bare word; or the text, if it was cut."""
    depth, position = 0, start
    while position < len(given):
        quote = _quote_at(given, position, escape)
        if quote:
            position = _after_string(given, position + len(quote), quote)
        elif given[position] in "{[":
            depth, position = depth + 1, position + 1
        elif given[position] in "}]" and depth:
            depth, position = depth - 1, position + 1
        elif depth:
            position += 1
        else:
            ending = _LITERAL_END.search(given, position)
            return ending.start() if ending else len(given)
        if not depth:
            return position
    return len(given)


def _word_end(given: str, start: int) -> int:
    """Where a plain value ends: at its closing quote, or before the next separator."""
    scheme = _SCHEME.match(given, start)
    start = scheme.end() if scheme else start
    quote = _quote_at(given, start, "")
    if quote:
        return _after_string(given, start + 1, quote)
    ending = _WORD_END.search(given, start)
    return ending.start() if ending else len(given)


def _quote_at(given: str, position: int, escape: str) -> str:
    for mark in ('"', "'"):
        if given.startswith(escape + mark, position):
            return escape + mark
    return ""


def _after_string(given: str, position: int, quote: str) -> int:
    """Past the closing quote. JSON wrapped n times puts 2ⁿ − 1 backslashes before it; inner ones have more."""
    step = len(quote)
    start = position
    while (found := given.find(quote, position)) != -1:
        run = found
        while run > start and given[run - 1] == "\\":
            run -= 1
        if (found - run) // step % 2 == 0:
            return found + step
        position = found + step
    return len(given)


def _split(key: str) -> list[str]:
    return [word.lower() for word in _SPLIT.split(key[:KEY_LIMIT]) if word]


def _is_iban(written: str) -> bool:
    plain = written.replace(" ", "")
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1
