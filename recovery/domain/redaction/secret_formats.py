"""Finds secrets that are known by their own form: prefixes of vendors' keys, keys in files, URLs that are secrets.

Formats are those that the vendors document. Each pattern begins with letters of its own, is tried where a word begins,
and never goes back: so all of them together are linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Iterator

Span = tuple[int, int]
_BODY = r"[A-Za-z0-9_-]"
# What a token begins with → what may follow at least. Letters first: a word is looked up by its first two.
_FORMATS: dict[str, str] = {
    "unstall_": rf"{_BODY}{{16,}}+",
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), r"\w{10,}+"),
    **dict.fromkeys(("glpat-", "glptt-", "glrt-", "gldt-", "glcbt-", "glft-", "glimt-", "glagent-"), r"[\w.-]{10,}+"),
    **dict.fromkeys(("gloas-", "glsoat-", "glffct-", "GR1348941"), rf"{_BODY}{{10,}}+"),
    **dict.fromkeys(("xoxb-", "xoxp-", "xoxa-", "xoxe-", "xoxe.", "xoxo-", "xoxr-", "xoxs-", "xapp-"), r"[\w.-]{10,}+"),
    **dict.fromkeys(("sk_", "sk-", "rk_", "pk_", "pk-", "rk-", "whsec_", "whsec-"), rf"{_BODY}{{16,}}+"),
    **dict.fromkeys(("sq0atp-", "sq0csp-", "sq0idp-", "EAAA"), rf"{_BODY}{{20,}}+"),
    "EAA": r"[A-Za-z0-9]{40,}+",
    "ATBB": r"[A-Za-z0-9]{24,}+",
    **dict.fromkeys(("ATATT3", "ATCTT3"), r"[\w=-]{20,}+"),
    **dict.fromkeys(("AKIA", "ASIA", "AGPA", "AIDA", "AROA", "ANPA", "ABIA", "ACCA"), r"[0-9A-Z]{12,}+"),
    "ABSK": r"[A-Za-z0-9+/]{40,}+=*",
    "AIza": rf"{_BODY}{{30,}}+",
    "ya29.": rf"{_BODY}{{20,}}+",
    "GOCSPX-": rf"{_BODY}{{20,}}+",
    "LTAI": r"[A-Za-z0-9]{12,}+",
    "AQVN": rf"{_BODY}{{30,}}+",
    "SK": r"[0-9a-f]{32}(?![0-9A-Za-z])",
    "SG.": r"[\w.-]{10,}+",
    "key-": r"[0-9a-f]{32}(?![0-9A-Za-z])",
    **dict.fromkeys(("xkeysib-", "xsmtpsib-"), r"[\w-]{20,}+"),
    **dict.fromkeys(("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{10,}+"),
    **dict.fromkeys(("HRKU-", "fo1_", "rnd_", "nfp_", "sbp_", "napi_", "npm_", "rubygems_"), rf"{_BODY}{{10,}}+"),
    **dict.fromkeys(("fm1r_", "fm1a_", "fm2_", "glc_"), r"[A-Za-z0-9+/]{20,}+=*"),
    **dict.fromkeys(("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[\w=.-]{20,}+"),
    **dict.fromkeys(
        ("pypi-", "dckr_pat_", "dckr_oat_", "pul-", "ico-", "glsa_", "lin_api_", "lin_oauth_"), rf"{_BODY}{{20,}}+"
    ),
    "oy2": r"[a-z0-9]{43}(?![0-9A-Za-z])",
    "AKCp": r"[A-Za-z0-9]{40,}+",
    "cmVmd": r"[A-Za-z0-9]{50,}+",
    **dict.fromkeys(("hvs.", "hvb.", "hvr."), rf"{_BODY}{{20,}}+"),
    "s.": r"(?=[A-Za-z]*\d)[A-Za-z0-9]{24}(?![0-9A-Za-z.])",
    **dict.fromkeys(("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."), r"[A-Za-z0-9_.-]{30,}+"),
    **dict.fromkeys(("NRAK-", "NRII-", "NRJS-", "NRRA-", "NRIQ-"), rf"{_BODY}{{16,}}+"),
    "sntrys_": r"[A-Za-z0-9+/=_]{30,}+",
    "sntryu_": r"[0-9a-f]{40,}+",
    "dt0c01.": r"[A-Z0-9.]{40,}+",
    **dict.fromkeys(("shpat_", "shpss_", "shpca_", "shppa_", "shpua_"), r"[0-9A-Fa-f]{20,}+"),
    **dict.fromkeys(("pat-na1-", "pat-eu1-", "access-production-", "access-sandbox-"), r"[0-9a-f-]{30,}+"),
    "pat": r"[A-Za-z0-9]{14}\.[0-9a-f]{60,}+",
    "ntn_": r"[A-Za-z0-9]{30,}+",
    "secret_": r"(?=[A-Za-z]*\d)[A-Za-z0-9]{30,}+",
    **dict.fromkeys(("figd_", "figu_", "tfp_", "rdme_", "aio_", "tskey-", "bkua_", "n8n_api_"), r"[\w.=-]{20,}+"),
    "PMAK-": r"[0-9a-f-]{40,}+",
    **dict.fromkeys(("hf_", "api_org_", "r8_", "gsk_", "pplx-", "xai-", "pcsk_", "lsv2_pt_", "lsv2_sk_"), r"\w{20,}+"),
    "tvly-": r"[\w-]{20,}+",
    "dapi": r"[0-9a-f]{32}(?![0-9A-Za-z])",
    "AAAAAAAAAAAAAAAAAAAA": r"[A-Za-z0-9%]{40,}+",
    **dict.fromkeys(("sk.eyJ", "tk.eyJ"), r"[\w.-]{30,}+"),
    "sl.": rf"{_BODY}{{60,}}+",
    **dict.fromkeys(("squ_", "sqp_", "sqa_", "sgp_"), r"[0-9a-fA-F_]{30,}+"),
    **dict.fromkeys(("CCIPAT_", "CCIPRJ_"), r"\w{30,}+"),
    "ops_eyJ": r"[A-Za-z0-9+/=_-]{60,}+",
    "A3-": r"[A-Z0-9]{6}-[A-Z0-9-]{20,}+",
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{30,}+",
    **dict.fromkeys(("duffel_live_", "duffel_test_", "CFPAT-", "fio-u-", "tk-us-"), r"[\w=-]{30,}+"),
    **dict.fromkeys(("EZAK", "EZTK"), r"[A-Za-z0-9]{40,}+"),
    **dict.fromkeys(("FLWSECK-", "FLWSECK_TEST-"), r"[A-Za-z0-9-]{12,}+"),
    **dict.fromkeys(("shippo_live_", "shippo_test_"), r"[0-9a-fA-F]{30,}+"),
    "API-": r"[A-Z0-9]{25,}+",
    "sha256~": rf"{_BODY}{{40,}}+",
    "pnu_": r"[A-Za-z0-9]{30,}+",
    **dict.fromkeys(("CLOJARS_", "clojars_"), r"[A-Za-z0-9]{40,}+"),
    **dict.fromkeys(("sm_aat_", "sm_pat_", "sm_sat_"), r"[A-Za-z0-9]{16,}+"),
    "dnkey-": r"[\w=-]{40,}+",
    "p8e-": r"[A-Za-z0-9]{32}",
    "waka_": r"[0-9a-f-]{30,}+",
    "v1.0-": r"[0-9a-f]{24}-[0-9a-f]{100,}+",
    # A JWT has dots; what is long enough is one without.
    "eyJ": r"[A-Za-z0-9_-]{5,}+(?:(?:\.[A-Za-z0-9_-]*+){1,4}|(?<=[A-Za-z0-9_-]{57}))",
}
_BY_START: dict[str, list[re.Pattern[str]]] = defaultdict(list)
for _start, _rest in _FORMATS.items():
    _BY_START[_start[:2]].append(re.compile(re.escape(_start) + _rest))
_SHORTEST = 14
_RUN = re.compile(rf"(?<![A-Za-z0-9_])[A-Za-z][A-Za-z0-9_.~-]{{{_SHORTEST - 1},}}+")
_PLAIN_RUN = bytes(0x61 if (chr(code).isalnum() and code < 128) or chr(code) in "_.~-" else 0x20 for code in range(256))
_LONG_RUN = b"a" * _SHORTEST

# Tokens that begin with digits or with anything, each with a sign of its own that is asked for first.
_OTHERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("-us", re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{32}-us\d{1,2}(?!\w)")),  # Mailchimp
    (":AA", re.compile(r"(?<!\d)\d{8,10}:AA[\w-]{30,}+")),  # Telegram
    ("1//0", re.compile(r"(?<![\w/])1//0[\w-]{30,}+")),  # Google's refresh tokens
    ("Q~", re.compile(r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{30,}+")),  # Azure
    (".atlasv1.", re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+")),  # Terraform
    ("|", re.compile(r"(?<!\d)\d{13,17}\|[\w-]{20,}+")),  # Facebook
    ("1/", re.compile(r"(?<![\w/.])[12]/\d{12,20}(?:/\d{12,20})?:[0-9a-f]{32}(?!\w)")),  # Asana
    ("_mmk", re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?!\w)")),  # MaxMind
    ("$production$", re.compile(r"access_token\$production\$[a-z0-9]+\$[0-9a-f]{20,}+")),  # Braintree
    ("SSWS ", re.compile(r"SSWS\s[\w-]{20,}+")),  # Okta
    ("PuTTY", re.compile(r"PuTTY-User-Key-File-\d:.*?(?:Private-MAC: *\w+|\Z)", re.DOTALL)),
    ("bedrock-api-key-", re.compile(r"bedrock-api-key-[\w=+/-]{20,}+")),
)
# Hashes of passwords: crypt, bcrypt, argon2.
_CRYPT = re.compile(
    r"(?:\$(?:2[abxy]?|5|6|y|7|apr1|argon2(?:id|i|d)|scrypt)|pbkdf2_sha\d{1,3}\$\d{1,9})\$[./A-Za-z0-9$,=+-]{20,}+"
)
# Discord's bot tokens are three parts of which the first is a number in base64.
_BOT = re.compile(r"(?<![\w.-])[MNO][\w-]{22,30}\.[\w-]{6}\.[\w-]{27,}+")
_OTHERS += (
    (
        "hook",
        re.compile(
            r"(?<=hooks\.slack\.com/)[\w/+-]{20,}+|(?<=/webhooks/)\d{10,}/[\w-]{20,}+|(?<=/hooks/catch/)[\w/]{8,}+"
            r"|(?<=webhook\.office\.com/)[\w/@-]{40,}+|(?<=office\.com/webhook/)[\w/@-]{40,}+"
        ),
    ),
    ("/bot", re.compile(r"(?<=/bot)\d{6,12}:[\w-]{20,}+")),
    ("ifttt", re.compile(r"(?<=/with/key/)[\w-]{10,}+")),
    ("/welcome/", re.compile(r"(?<=/welcome/)[\w-]{16,}+")),
    ("pagerduty", re.compile(r"(?<=/integration/)[0-9a-f]{20,}+")),
)
_PRIVATE_KEY = re.compile(
    r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r".*?(?:-{4,5} ?END [A-Z0-9 ]{0,40}KEY(?: BLOCK)? ?-{4,5}|\Z)",
    re.DOTALL,
)
_BASIC = re.compile(r"(?i)(?<![\w-])basic\s{1,4}([A-Za-z0-9+/_-]{8,}+={0,2})")
_BEARER = re.compile(r"(?i)(?<![\w-])(?:bearer|negotiate|ntlm|geniekey)\s{1,4}([A-Za-z0-9+/=._~:-]{8,}+)")
_DIGEST = re.compile(r"(?i)(?<![\w-])digest\s{1,4}(?=[^\n]{0,400}response=)[^\n]{8,}")
_SCHEMES = frozenset((b"basic", b"bearer", b"negotiate", b"ntlm", b"geniekey", b"digest"))
_ALGORITHM = re.compile(r"(?i)(?:sha|md)-?\d|realm=|http/")
_USER_IN_URL = re.compile(r"(?<=://)([^/\s:@\[\"'<>]{0,256}+):([^\s\"'<>]{1,512}+)")
_TOKEN_IN_URL = re.compile(r"(?<=://)([^/\s:@\[\"'<>?#]{12,256}+)(?=[:@])")
_LOGIN = re.compile(r"(?<![\w/:.@+-])[\w.+-]{1,64}+:([^\s:@/\"'<>]{6,128}+)@[A-Za-z][\w-]*+\.?")
_PORT = re.compile(r"\d{1,5}(?:[/?#]|$)")
_ORACLE = re.compile(r"(?:(?<=thin:)|(?<=sqlplus ))[\w$#]{1,60}/([^@\s\"']{1,128})(?=@)")
_CLASSES = bytes(
    0x64 if chr(code) in "0123456789" else 0x55 if "A" <= chr(code) <= "Z" else 0x20 for code in range(256)
)
_CARD_DIGITS = b"d" * 13
_CARD = re.compile(r"(?<!\d)(?<!\d\.)\d(?:[ -]?\d){12,18}(?!\d)")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?=[ -]?[A-Z0-9])")
_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT SC",
    32: "LC",
}
_IBAN_SIZES = {country: size for size, countries in _IBAN_COUNTRIES.items() for country in countries.split()}


def find_formats(text: str, lowered: str, raw: bytes, words: list[bytes]) -> list[Span]:
    """Returns the places of all of them, in no order. `lowered`, `raw`, `words`: the text in small letters, in bytes,
    and split into words of small ASCII.
    """
    places: list[Span] = []
    if _LONG_RUN in raw.translate(_PLAIN_RUN):
        places += _runs(text)
        for sign, pattern in _OTHERS:
            if sign in text:
                places += (match.span() for match in pattern.finditer(text))
    if "PRIVATE KEY" in text:
        places += (match.span() for match in _PRIVATE_KEY.finditer(text))
    if "$" in text:
        places += (match.span() for match in _CRYPT.finditer(text))
    if "@" in text:
        places += _in_urls(text)
    if not _SCHEMES.isdisjoint(words):
        places += _schemes(text, lowered)
    classed = raw.translate(_CLASSES, b" -")
    if _CARD_DIGITS in classed or b"UUdd" in classed:
        places += _numbers(text)
    return places


def _runs(text: str) -> Iterator[Span]:
    """Yields tokens among words that are long enough, by their first two letters."""
    for run in _RUN.finditer(text):
        for pattern in _BY_START.get(run[0][:2], ()):
            if match := pattern.match(text, run.start()):
                yield match.span()
                break
        else:
            if run[0][0] in "MNO" and (match := _BOT.match(text, run.start())):
                yield match.span()


def _in_urls(text: str) -> Iterator[Span]:
    """Yields credentials in URLs: `://name:password@`, `://token@`."""
    if "thin:" in text or "sqlplus " in text:
        yield from (match.span(1) for match in _ORACLE.finditer(text))
    yield from (match.span(1) for match in _LOGIN.finditer(text) if _is_made(match[1]))
    if "://" not in text:
        return
    for match in _USER_IN_URL.finditer(text):
        end = _end_of_user(text, match)
        if end > match.start(2):
            yield match.start(2), end
    for match in _TOKEN_IN_URL.finditer(text):
        user = match[1]
        is_made = _is_made(user) and "%40" not in user
        is_alone = text[match.end()] == "@" or text.startswith((":x-oauth-basic@", ":@", ":x@"), match.end())
        if is_made and is_alone and user.count(".") < 2:
            yield match.span(1)


def _is_made(word: str) -> bool:
    return any(map(str.isdigit, word)) and any(map(str.isalpha, word))


def _end_of_user(text: str, match: re.Match[str]) -> int:
    """Returns where the password of a URL ends: before its last @. 0 where what follows the colon is a port."""
    written = match[2]
    for stop in (",", ";"):  # several in one list
        head, _, rest = written.partition(stop)
        if rest and "://" in rest and "@" in head:
            written = head
    place = written.rfind("@")
    if place < 1 or _PORT.match(written[:place]):
        return 0
    return match.start(2) + place


def _schemes(text: str, lowered: str) -> Iterator[Span]:
    if "basic" in lowered:
        yield from (match.span() for match in _BASIC.finditer(text) if _is_basic(match[1]))
    if "bearer" in lowered or "negotiate" in lowered or "ntlm" in lowered or "geniekey" in lowered:
        for match in _BEARER.finditer(text):
            if any(map(str.isdigit, match[1])) and not _ALGORITHM.match(match[1]):
                yield match.span()
    if "digest" in lowered and "response=" in lowered:
        yield from (match.span() for match in _DIGEST.finditer(text))


def _is_basic(written: str) -> bool:
    """Returns True for a name, a colon and a password in base64, and for what looks like generated base64."""
    if any(map(str.isdigit, written)) and any(map(str.isupper, written[1:])) and any(map(str.islower, written)):
        return True
    try:
        return b":" in base64.b64decode(written + "=" * (-len(written) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _numbers(text: str) -> Iterator[Span]:
    yield from (match.span() for match in _CARD.finditer(text) if is_card(match[0]))
    for match in _IBAN.finditer(text):
        size = _IBAN_SIZES.get(match[0][:2], 0)
        if size and (end := _iban_end(text, match.start(), size)):
            yield match.start(), end


def is_card(written: str) -> bool:
    """Returns True for a payment card's number: a length and a first digit that cards have, and Luhn's sum."""
    digits = written.replace(" ", "").replace("-", "")
    if not digits.isascii() or not digits.isdigit() or not 13 <= len(digits) <= 19 or digits[0] not in "23456":
        return False
    if len(digits) == 13 and digits[0] != "4":  # else a time in milliseconds would do
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 * (number > 9) for number in doubled) % 10 == 0


def _iban_end(text: str, start: int, size: int) -> int:
    """Returns where an IBAN of this many characters ends; 0 when it is none."""
    plain, position = "", start
    while len(plain) < size and position < len(text):
        sign = text[position]
        position += 1
        if sign in " -\u00a0" and text[position - 2] not in " -\u00a0":
            continue
        if not (sign.isascii() and (sign.isdigit() or sign.isupper())):
            return 0
        plain += sign
    if len(plain) < size or text[position : position + 1].isalnum():
        return 0
    return position if int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1 else 0
