"""Finds the places of secrets in a text: behind names that stand for one, and by their own form.

Every pattern is linear in the text, because the text is of unknown origin: repeats have an end or never go back, and
after a match the search goes on behind it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from recovery.domain.redaction import secret_formats, secret_names
from recovery.domain.redaction.secret_formats import Span, is_card
from recovery.domain.redaction.secret_names import (
    FOREIGN,
    KEY_LIMIT,
    PARTS,
    VALUE_LIMIT,
    WORD_ENDS,
    WORDS,
    NameKind,
    Separator,
    is_counted,
    is_secret_key,
    is_secret_value,
    looks_made,
    name_kind,
)

__all__ = ["KEY_LIMIT", "PARTS", "WORDS", "Span", "find_secrets", "is_card", "is_counted", "is_secret_key"]

MARK = "[redacted]"
_LETTERS = (string.ascii_letters + string.digits).encode()
_LOWER = bytes(range(256)).lower()
_OTHERS = bytes(set(range(256)) - set(_LETTERS))
_AS_WORDS = bytes(_LOWER[code] if code in _LETTERS else 0x20 for code in range(256))
# A text that has none of these has no name of a secret: parts of words first, each the sign of one or more names.
_CERTAIN = (
    *("password", "passwd", "passphrase", "token", "secret", "credential", "cookie", "csrf", "xsrf", "pwd"),
    *("iban", "connectionstring", "webhookurl", "formdata", "identifiedby", "passcode", "passwort", "kennwort"),
)
_KEYS = tuple(sorted(part for part in PARTS if part.endswith("key")))
# Less certain ones are looked for by what they have in common, and only then one by one.
_UNCERTAIN = (
    ("pass", ("requirepass", "dbpass", "smtppass")),
    ("auth", ("authorization", "masterauth")),
    ("card", ("cardnumber", "creditcard")),
    ("sess", ("sessionid", "sessid", "laravelsession")),
    ("code", ("securitycode", "code=")),
    ("key", (*_KEYS, "key=")),
)
_EXACT = frozenset(word.encode() for word in (*WORDS, "pincode", "otpcode", "cvvcode"))
_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")  # a name of several words, written as one: `passcodeA`

_QUOTED_NAME = re.compile(
    r"""(\\{0,15})(["'])((?:[^"'\\\n]|\\(?!["'])){1,200})\1\2(\]?\s{0,20}(?:=>|:=|==?|[:：,])|\]\s{0,2}=)\s{0,200}"""
)
# A name may begin with a digit or a letter of another alphabet: `2fa_token=`, `größe.password=`.
_PLAIN_NAME = re.compile(
    r"(?<![\w.-])(\w[\w.-]*+)(?:\[\w{0,40}+\](?==))?(?:"
    r"[\])]?\s{0,4}(=>|:=|={2,3}|->|:\s{0,2}(?:&?(?:'static )?str|[Ss]tring|any|bytes)\s{0,2}=|[=:：])\s{0,4}"
    r"|(?<=\w)>|(?<=-)>\s{0,4}|`\s{0,2}(=)\s{0,4})"
)
_FLAG = re.compile(r"(?<![\w-])--?([A-Za-z][\w.-]*+)(?:=|[ \t]{1,4})(?=[^\s-]|-[^\s-])")
# Words that together are a name: `api key: …`.
_TWO_WORDS = (
    *(
        "api key",
        "access key",
        "secret key",
        "private key",
        "signing key",
        "encryption key",
        "account key",
        "master key",
    ),
    *("license key", "shared key", "subscription key", "security code", "verification code", "recovery code"),
    *("one-time code", "2fa code", "card number", "mot de passe", "client secret", "كلمة المرور", "mật khẩu"),
)
_AFTER_TWO = re.compile(r"\s{0,2}(?:(?:[:=]|is|was)\s{0,2}|(?=[\"'`]))", re.IGNORECASE)
_PROSE_NAMES = ("password", "passphrase", "passcode", "passwort", "kennwort", "secret", "token", " key", "key provided")
_AFTER_PROSE = re.compile(
    r"(?i)(?:\s{1,2}(?:is|was|lautet|ist|=)\s{0,2}:?\s{0,2}|\sfor [^\n=]{1,40}=\s{0,2}(?=[\"'])|"
    r"\s{1,2}(?:provided\s{0,2}:\s{0,2})?)(?=\S)"
)
# Commands whose argument is a secret without any name: `-p` of mysql, `AUTH` of redis, `PASS` of mail.
_PROGRAMS = (
    "mysql",
    "mariadb",
    "sshpass",
    "mongo",
    "docker login",
    "redis-cli",
    "ldap",
    "zip",
    "7z",
    "smbclient",
    "influx",
)
_ARGUMENT = re.compile(r"[\w -]{2,20}(?=\s)[^\n|]{0,200}?\s-[pawP]\s?(?=[^\s-])")
_CURL = re.compile(r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]{1,3}(?:([\"']))?[^\s:\"']{1,100}+:")
_ORDERS = ("requirepass", "masterauth", "identified by", "passin pass:", "passout pass:", "auth", "pass")
_ORDER = re.compile(
    r"(?i)(?<![\w-])(?:requirepass\s|masterauth\s|identified by\s|pass(?:in|out) pass:"
    r"|(?<![\w:] )AUTH\s(?:default\s|PLAIN\s|LOGIN\s)?|(?<![\w:] )PASS\s)\s{0,2}(?=\S)"
)
_HEADER = re.compile(r"(?i)(?:authorization|cookie2?)\s{0,4}(?::|=>|=)\s{0,4}(?=[^\s\"'\[{(])")
_HEADER_BEGIN = re.compile(r"[A-Za-z-]{1,12}\Z")
_COOKIES = re.compile(r"[^\s;,\"']+(?:;[ \t]*[^\s;,\"'=]+(?:=[^\s;\"']*)?)*")
_PARAMETERS = re.compile(r"[^\s,\"']+(?:[ \t]*,?[ \t]+?[A-Za-z_]\w*=(?:\"[^\"\n]*\"|[^\s,\"']*))*")
_XML = re.compile(r"<([\w:.-]{1,80})(?:\s[^<>]{0,200}+)?>([^<]{1,4096}+)</")
_PLIST = re.compile(r"<key>([^<]{1,200}+)</key>\s{0,20}<string>([^<]{1,4096}+)<")
_PAIR = re.compile(
    r"""(?i)(?<![\w-])(?:name|key|header|field|id)\\{0,7}["']?\s{0,4}(?:=>|[:=])\s{0,4}\\{0,7}["']?([\w.:-]{1,80}+)\\{0,7}["']?"""
    r"""[\s,;>/}]{1,12}\\{0,7}["']?(?:(?:value|val|content|text)\\{0,7}["']?\s{0,4}(?:=>|[:=])\s{0,4})(?=\S)"""
)
_XML_PAIR = re.compile(r"(?i)\bname=\"([\w.:-]{1,80}+)\"[^<>]{0,100}+>([^<]{1,4096}+)<")
_FORM = re.compile(
    r"(?i)form-data;[^\n]{0,80}?name=\\?\"([\w.\[\]-]{1,80}+)\\?\"(?:\r?\n[^\r\n]{0,200}){0,3}?(?:(?:\r?\n){2}|(?:\\r)?\\n(?:\\r)?\\n)"
)
_LINE_END = re.compile(r"\r?\n|\\r|\\n|\Z")
_SERIALIZED = re.compile(r"s:\d{1,4}:\\?\"([\w.-]{1,80}+)\\?\";s:\d{1,6}:(?=\\?\")")
_PAIRS = ((("val", "content", "text"), _PAIR), ((";s:",), _SERIALIZED))
_CODE_IN_URL = re.compile(r"(?<=[?&#])(?:code|key|sig|hmac|auth|hash)=([\w.~%/+-]{16,}+)")
_LITERAL_END = re.compile(r"[,}\]\s]")
_SCHEME = re.compile(  # before a value; also a tag of YAML
    r"(?i)(?:bearer|basic|digest|negotiate|token|apikey|ssws|hawk|ntlm|geniekey|!{1,2}[a-z]{1,20})\s{1,4}(?=\S)"
)
_WRAPPED = re.compile(
    r"(?:[A-Za-z_][\w.:]{0,40}[(\[{]|string\(\d+\)\s|[bruNBRU]{1,2}(?=[\"'])|[\[({&*]{1,2})\s{0,2}(?=[\"'`])"
)
_STOP = re.compile(
    r"[\s\"'<>`]|[,;&](?=\s|$|[\w.%-]{1,60}\s{0,2}[=:]|[&'\"])|[)}\]](?=[\s,;:.)}\]\"']|$)|\\[nrt\"']|%26|\\u0026"
)
_NEXT_WORD = re.compile(r" ([^\W\d_]{2,20})(?![^\s.,;])")
_CALLED = re.compile(r"(?i)[\w.:]*(?:get|env|read|load|find|fetch|prompt|input|hash|verify|compare|check|require)\w*\(")
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*\r?\n(?:([ \t]+)[^\n]*(?:\r?\n|\Z))+")
_ENTITY = r"&(?:quot|#34|#39|apos|#58|#61|#x3[aAdD]);"
_ENCODED = re.compile(rf"%[0-9A-Fa-f]{{2}}|{_ENTITY}|\\u00(?:22|27|3[aAdD]|26)|\\x(?:22|27)")
_ENCODED_SIGN = re.compile(rf"%(?:22|27|3[aAdD]|25|40)|{_ENTITY}|\\u00(?:22|27|3)|\\x2[27]")
_LITERALS = {"&quot;": '"', "&#34;": '"', "&#39;": "'", "&apos;": "'", "\\x22": '"', "\\x27": "'", "\\u0022": '"'}
_LITERALS |= {"&#58;": ":", "&#61;": "=", "&#x3a;": ":", "&#x3d;": "="}
_LITERALS |= {"\\u0027": "'", "\\u003a": ":", "\\u003d": "=", "\\u0026": "&"}
_DECODED_TIMES = 2  # what is encoded thrice no program writes into a log


def find_secrets(text: str) -> list[Span]:
    """Returns the places of all secrets, in order, none of which touches another."""
    found = _found(text)
    if "%" in text or "&" in text or "\\" in text:
        found += _in_encoded(text, _DECODED_TIMES)
    return merge_spans(found) if found else found


def merge_spans(found: Iterable[Span]) -> list[Span]:
    """Merges places that touch each other."""
    whole: list[Span] = []
    for start, end in sorted(found):
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        elif end > start:
            whole.append((start, end))
    return whole


def _found(text: str) -> list[Span]:
    """Returns places in no order, and perhaps one within another."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that is two in small ones
        lowered = "".join(small if len(small := sign.lower()) == 1 else sign for sign in text)
    raw = text.encode("latin-1", "replace")
    words = raw.translate(_AS_WORDS).split()
    found = secret_formats.find_formats(text, lowered, raw, words)
    if not _EXACT.isdisjoint(words) or _may_name(text, lowered, raw):
        found += behind_names(text, lowered)
    if " -" in text or text.startswith("-"):
        found += _of_commands(text, lowered)
    return found


def may_name(text: str) -> bool:
    """Returns False only if the text has no name of a secret; True may be wrong."""
    raw = text.encode("latin-1", "replace")
    return not _EXACT.isdisjoint(raw.translate(_AS_WORDS).split()) or _may_name(text, text.lower(), raw)


def _may_name(text: str, lowered: str, raw: bytes) -> bool:
    """Looks quickly for names that are no words of their own."""
    if not text.isascii():  # the sign of Kelvin is a k in small letters
        raw = lowered.encode("latin-1", "replace")
    squeezed = raw.translate(_LOWER, _OTHERS).decode("ascii")
    for part in _CERTAIN:
        if part in squeezed:
            return True
    for common, parts in _UNCERTAIN:
        if common in squeezed and _has_one(parts, squeezed, lowered):
            return True
    if _HUMP.search(text) and not WORDS.isdisjoint(map(str.lower, WORD_ENDS.split(text))):
        return True
    return not text.isascii() and any(word in lowered for word in FOREIGN)


def _has_one(parts: tuple[str, ...], squeezed: str, lowered: str) -> bool:
    return any(part in squeezed or part in lowered for part in parts)


def _places(text: str, words: Iterable[str]) -> Iterator[int]:
    """Yields where each of the words begins, word by word."""
    for word in words:
        place = text.find(word)
        while place >= 0:
            yield place
            place = text.find(word, place + len(word))


def behind_names(text: str, lowered: str) -> Iterator[Span]:
    """Yields the places of values behind names of secrets, in each way to write that."""
    yield from _behind_quoted(text)
    yield from _behind_plain(text)
    yield from _behind_flags(text)
    yield from _headers(text, lowered)
    if "</" in text:
        yield from _between_tags(text)
    for signs, pattern in _PAIRS:
        if any(sign in lowered for sign in signs):
            for match in pattern.finditer(text):
                yield from _judged(text, name_kind(match[1]), match.end(), Separator.EQUALS)
    if "form-data" in lowered:
        yield from _in_forms(text)
    yield from _behind_two_words(text, lowered)
    yield from _in_prose(text, lowered)
    if "=" in text:
        yield from (match.span(1) for match in _CODE_IN_URL.finditer(text) if looks_made(match[1]))


def _behind_two_words(text: str, lowered: str) -> Iterator[Span]:
    for name in _TWO_WORDS:
        kind = NameKind.CODE if name.endswith(("code", "number")) else NameKind.PASSWORD
        kind = NameKind.SECRET if name.endswith("key") else kind
        for place in _places(lowered, (name,)):
            if match := _AFTER_TWO.match(text, place + len(name)):
                yield from _judged(text, kind, match.end(), Separator.COLON)


def _in_forms(text: str) -> Iterator[Span]:
    for match in _FORM.finditer(text):
        if name_kind(match[1]):
            stop = _LINE_END.search(text, match.end())
            yield match.end(), stop.start() if stop else len(text)


def _behind_quoted(text: str) -> Iterator[Span]:
    position = 0
    for match in _QUOTED_NAME.finditer(text):
        if match.start() < position:
            continue
        name, escape = match[3], match[1]
        kind = name_kind(name)
        if not kind:
            continue
        is_list = match[4].strip() == ","
        if is_list and not _quote_at(text, match.end(), escape):
            continue
        sign = Separator.EQUALS if not is_list or name.startswith("-") or "-" in name.strip("-") else Separator.COMMA
        if kind is NameKind.TOKEN and is_list and name.lower() in ("authorization", "cookie", "set-cookie"):
            sign = Separator.EQUALS
        if kind is NameKind.WEAK and name.lower().endswith("pass") and _quote_at(text, match.end(), escape):
            kind = NameKind.PASSWORD
        is_bare = not escape and not text.startswith(("{", "["), match.end())
        wrapped = _WRAPPED.match(text, match.end()) if is_bare else None
        end = _end(text, wrapped.end() if wrapped else match.end(), escape)
        if _is_hidden(text, kind, match.end(), end, sign):
            position = end
            yield match.end(), end


def _is_hidden(text: str, kind: NameKind, start: int, end: int, sign: Separator) -> bool:
    """Returns True if a value is hidden. What is no text is judged by what it holds: {} and [null] hold no secret."""
    if end - start > VALUE_LIMIT:
        return True
    value = text[start:end].strip()
    if value[:1] in ("{", "["):
        parts = [part for part in re.split(r"[\s\[\]{},]+", value) if part]
        inner = [part for part in re.split(r"[\[\]{},]", value) if part.strip()]
        return any(
            is_secret_value(kind, part.rpartition(":")[2] if ":" in part else part, sign) for part in inner
        ) and bool(parts)
    return is_secret_value(kind, _bare(value), sign)


def _behind_plain(text: str) -> Iterator[Span]:
    position = 0
    for match in _PLAIN_NAME.finditer(text):
        if match.start() < position:
            continue
        kind = name_kind(match[1])
        if not kind:
            continue
        written = match[2] or "="
        start = match.end()
        is_colon = written in (":", "：")
        sign = Separator.COLON if is_colon and text[start - 1 : start].isspace() else Separator.EQUALS
        if (
            kind is NameKind.TOKEN
            and is_colon
            and _follows(text, match.start(), ("unexpected ", "reserved ", "illegal "))
        ):
            continue
        if kind is NameKind.WEAK and not is_colon and match[1].lower().endswith("pass"):
            kind = NameKind.PASSWORD
        if "\n" in text[match.end(1) : start] and is_colon and "\n" in text[match.end(1) : start].rstrip(" \t"):
            continue  # YAML: what follows on the next line has a name of its own
        for span in _judged(text, kind, start, sign):
            position = span[1]
            yield span


_OF_PARSERS = ("unexpected ", "reserved ", "illegal ")


def _follows(text: str, start: int, words: tuple[str, ...]) -> bool:
    return text[max(0, start - 12) : start].lower().endswith(words)


def _behind_flags(text: str) -> Iterator[Span]:
    position = 0
    for match in _FLAG.finditer(text):
        if match.start() < position or text.startswith("--", match.end()):
            continue
        kind = name_kind(match[1])
        if kind is NameKind.NONE or (kind is NameKind.WEAK and len(match[1]) < 4):
            continue
        if kind is NameKind.WEAK and match[1].lower().endswith("pass"):
            kind = NameKind.PASSWORD
        for span in _judged(text, kind, match.end(), Separator.EQUALS):
            position = span[1]
            yield span


def _judged(text: str, kind: NameKind, start: int, sign: Separator) -> Iterator[Span]:
    """Yields the place of the value that begins here, if it can be a secret."""
    if kind is NameKind.NONE or start >= len(text):
        return
    block = _BLOCK.match(text, start)
    if block:
        yield block.start(), block.start() + len(block[0].rstrip("\r\n"))
        return
    end = _value_end(text, start)
    if end > start and (end - start > VALUE_LIMIT or is_secret_value(kind, _bare(text[start:end]), sign)):
        yield start, _with_words(text, start, end, kind)


def _bare(value: str) -> str:
    """Removes the scheme before a value, and what wraps it: `Secret("x")` is a value, `config.get("x")` is code."""
    scheme = _SCHEME.match(value)
    value = value[scheme.end() :] if scheme else value
    wrapped = _WRAPPED.match(value)
    if wrapped and _CALLED.match(wrapped[0]):
        return ""
    return (value[wrapped.end() :].rstrip(")]}") if wrapped else value).replace("\\", "")


def _with_words(text: str, start: int, end: int, kind: NameKind) -> int:
    """Extends a passphrase of several words: by those that follow a word, up to one that a sentence would have."""
    if kind is not NameKind.PASSWORD or not text[start:end].isalpha():
        return end
    for _ in range(30):
        following = _NEXT_WORD.match(text, end)
        if not following or not secret_names.is_passphrase_word(following[1]):
            break
        end = following.end()
    return end


def _headers(text: str, lowered: str) -> Iterator[Span]:
    done = line_end = 0
    for place in sorted(_places(lowered, ("authorization", "cookie"))):
        match = _HEADER.match(text, place) if place >= done else None
        if not match:
            continue
        begin = _HEADER_BEGIN.search(text, max(0, place - 12), place)
        first, start = begin.start() if begin else place, match.end()
        if start > line_end or not line_end:
            line_end = text.find("\n", start)
            line_end = len(text) if line_end < 0 else line_end
        before = text[max(0, first - 1) : first]
        is_cookie = lowered.startswith("cookie", place)
        if before in ('"', "'", "`") and before:
            stop = text.find(before, start, line_end)
            end = stop if stop >= 0 else line_end
        elif _begins_line(text, first):
            end = line_end
        else:
            scheme = _SCHEME.match(text, start)
            shape = _COOKIES if is_cookie else _PARAMETERS
            found = shape.match(text, scheme.end() if scheme else start)
            end = min(found.end() if found else start, line_end)
        value = text[start:end].strip()
        if is_cookie and "=" not in value and not looks_made(value):
            continue
        if is_secret_value(NameKind.TOKEN, _bare(value), Separator.COLON):
            done = end
            yield start, start + len(text[start:end].rstrip())


def _begins_line(text: str, start: int) -> bool:
    line = text.rfind("\n", max(0, start - 40), start)
    return text[line + 1 if line >= 0 else max(0, start - 40) : start].strip(" \t<>*+-|") == "" and (
        line >= 0 or start < 40
    )


def _between_tags(text: str) -> Iterator[Span]:
    for match in (*_XML.finditer(text), *_PLIST.finditer(text), *_XML_PAIR.finditer(text)):
        kind = name_kind(match[1].rpartition(":")[2])
        if kind and is_secret_value(kind, match[2], Separator.EQUALS):
            yield match.span(2)


def _in_prose(text: str, lowered: str) -> Iterator[Span]:
    for name in _PROSE_NAMES:
        for place in _places(lowered, (name,)):
            if match := _AFTER_PROSE.match(text, place + len(name)):
                yield from _said(text, name, match)
    for place in _places(lowered, _ORDERS):
        if match := _ORDER.match(text, place):
            start = match.end()
            end = _value_end(text, start)
            value = text[start:end]
            is_quoted = value[:1] in ('"', "'", "N") and "'" in value and len(value) > 3
            if is_quoted or is_secret_value(NameKind.WEAK, value, Separator.EQUALS):
                yield start, end


def _said(text: str, name: str, match: re.Match[str]) -> Iterator[Span]:
    """Yields the value in prose: `password 'x'`, `the token is x`."""
    start = match.end()
    end = _value_end(text, start)
    value = text[start:end].strip("\"'`.,;:!?„“”")
    is_named = match[0].rstrip().lower().endswith(("is", "was", "ist", "lautet", ":", "="))
    if text[start] in "\"'`":
        if (is_named or (" " not in value and len(value) > 3)) and is_secret_value(
            NameKind.PASSWORD, value, Separator.EQUALS
        ):
            yield start, end
    elif looks_made(value) and (is_named or len(value) >= 16 or name.startswith(("pass", "kenn"))):
        yield start, end


def _of_commands(text: str, lowered: str) -> Iterator[Span]:
    for place in _places(lowered, _PROGRAMS):
        if match := _ARGUMENT.match(text, place):
            start = match.end()
            end = _value_end(text, start)
            value = text[start:end].strip("\"'")
            is_certain = lowered.startswith(("sshpass", "docker", "redis"), place) and len(value) > 3
            if is_certain or looks_made(value):
                yield start, end
    if "-u " in text or "--user" in text or "--proxy-user" in text:
        for match in _CURL.finditer(text):
            start = match.end()
            end = text.find(match[1], start) if match[1] else _value_end(text, start)
            if end > start and is_secret_value(NameKind.PASSWORD, text[start:end], Separator.EQUALS):
                yield start, end


def _end(text: str, start: int, escape: str) -> int:
    """Returns where a JSON-like value ends: a string, a bracket with its contents, a bare word; or the text, if cut."""
    depth, position = 0, start
    while position < len(text):
        quote = _quote_at(text, position, escape)
        if quote:
            position = _after_string(text, position + len(quote), quote)
        elif text[position] in "{[":
            depth, position = depth + 1, position + 1
        elif text[position] in "}]" and depth:
            depth, position = depth - 1, position + 1
        elif depth:
            position += 1
        else:
            ending = _LITERAL_END.search(text, position)
            return ending.start() if ending else len(text)
        if not depth:
            return position
    return len(text)


def _value_end(text: str, start: int) -> int:
    """Returns where a plain value ends: at its closing quote, or where something else begins."""
    scheme = _SCHEME.match(text, start)
    position = scheme.end() if scheme else start
    while text.startswith(MARK, position):
        position += len(MARK)
        if text[position : position + 1] in _BEHIND_MARK:
            return position
    wrapped = _WRAPPED.match(text, position)
    position = wrapped.end() if wrapped else position
    escape = ""
    while text.startswith("\\", position + len(escape)) and len(escape) < 15:
        escape += "\\"
    quote = _quote_at(text, position, escape)
    if quote:
        end = _after_string(text, position + len(quote), quote)
        while quote == "'" and text.startswith("'", end):  # SQL writes a quote twice
            end = _after_string(text, end + 1, quote)
        return (
            end + 1 if wrapped and text[end : end + 1] in (")", "]", "}") and wrapped[0].strip()[-1:] in "([{" else end
        )
    ending = _STOP.search(text, position)
    return ending.start() if ending else len(text)


_BEHIND_MARK = frozenset(("", *" \t\r\n,;&'\"`)}]<>/@\\"))


def _quote_at(text: str, position: int, escape: str) -> str:
    for mark in ('"', "'", "`"):
        if text.startswith(escape + mark, position):
            return escape + mark
    return ""


def _after_string(text: str, position: int, quote: str) -> int:
    """Returns the place past the closing quote. JSON wrapped n times has 2ⁿ − 1 backslashes before it; more inside."""
    step = len(quote)
    start = position
    while (found := text.find(quote, position)) != -1:
        run = found
        while run > start and text[run - 1] == "\\":
            run -= 1
        if (found - run) // step % 2 == 0:
            return found + step
        position = found + step
    return len(text)


def _in_encoded(text: str, times: int) -> Iterator[Span]:
    """Yields secrets in lines whose percent signs, entities and escapes are decoded, at their places in the text."""
    position = 0
    for sign in _ENCODED_SIGN.finditer(text):
        if sign.start() < position:
            continue
        start = text.rfind("\n", position, sign.start()) + 1 or position
        position = text.find("\n", sign.end())
        position = len(text) if position < 0 else position
        decoded, places = _decoded(text[start:position], start)
        found = _found(decoded)
        if times > 1:
            found += _in_encoded(decoded, times - 1)
        yield from ((places[first], places[last]) for first, last in found)


def _decoded(written: str, offset: int) -> tuple[str, list[int]]:
    """Returns the decoded text, and where each of its characters stood."""
    parts: list[str] = []
    places: list[int] = []
    position = 0
    for match in _ENCODED.finditer(written):
        parts.append(written[position : match.start()])
        places += range(offset + position, offset + match.start())
        sign = match[0]
        meant = _LITERALS.get(sign.lower()) or unquote(sign, "latin-1")
        parts.append(meant)
        places.append(offset + match.start())
        position = match.end()
    parts.append(written[position:])
    places += range(offset + position, offset + len(written) + 1)
    return "".join(parts), places
