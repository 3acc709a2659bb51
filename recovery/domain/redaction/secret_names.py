"""Decides whether a name stands for a secret, and whether the value behind it can be one.

`token: null`, `card: declined` and `sessionTimeout=30` are no secrets: the last word of a name may say that it is about
something else, and a value may be a word of a status. Where a name is certain (`password=`), nearly any value counts.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

KEY_LIMIT = 200  # characters of a name that are judged
VALUE_LIMIT = 300  # characters of a value that are judged; a longer one is hidden
WORD_LETTERS = 9  # a plain word of so many letters may stand behind `token:` without being one


class NameKind(IntEnum):
    """Certainty that a name stands for a secret, from none upwards."""

    NONE = 0
    WEAK = 1  # card, session, auth: only what looks made by a generator
    TOKEN = 2  # a word of a language is none
    SECRET = 3  # a word counts, a small number does not
    PASSWORD = 4  # anything counts
    CODE = 5  # a number of some digits counts: a PIN


class Separator(IntEnum):
    """Separator between a name and its value."""

    EQUALS = 0  # =, :=, =>, a tag, a flag: the next word belongs to the name
    COLON = 1  # `name: value` may be a sentence
    COMMA = 2  # two neighbours in a list
    BLANK = 3  # prose


_PASSWORD = frozenset((
    *("password", "passwd", "passwrd", "pwd", "pw", "pswd", "psw", "passphrase", "passcode", "passe"),
    *("mnemonic", "psk", "userpass", "passwort", "kennwort", "contrasena", "clave", "motdepasse", "mdp"),
    *("senha", "haslo", "wachtwoord", "losenord", "salasana", "heslo", "jelszo", "parola", "sifre", "lozinka"),
    *("geslo", "adgangskode", "passord"),
))  # fmt: skip
_SECRET = frozenset(("secret", "secrets", "credential", "credentials", "apikey", "iban", "creds"))
_TOKEN = frozenset((
    "token", "tokens", "jwt", "csrf", "xsrf", "authorization", "cookie", "cookies", "bearer", "csrftoken",
))  # fmt: skip
_CODE = frozenset(("pin", "otp", "totp", "cvv", "cvc", "cvv2", "ssn"))
_WEAK = frozenset(("pass", "auth", "card", "session", "sid", "sig", "signature"))
WORDS = _PASSWORD | _SECRET | _TOKEN | _CODE | _WEAK
# Found anywhere in a name whose separators were dropped: `x-api-key`, `AWSSecretAccessKey`, `dbpassword`.
_PASSWORD_PARTS = ("password", "passwd", "passphrase", "dbpass", "smtppass")
_SECRET_PARTS = (
    *("secret", "apikey", "accesskey", "privatekey", "privkey", "signingkey", "encryptionkey", "masterkey"),
    *("credential", "creditcard", "cardnumber", "connectionstring", "accountkey", "sharedkey", "storagekey"),
    *("functionskey", "subscriptionkey", "applicationkey", "appkey", "authkey", "licensekey", "deploykey", "hmackey"),
    *("securitycode", "webhookurl"),
)
_TOKEN_PARTS = ("token", "authorization", "cookie", "sessionid", "sessid", "csrf", "xsrf", "laravelsession")
PARTS = (*_PASSWORD_PARTS, *_SECRET_PARTS, *_TOKEN_PARTS, "iban")
# Words of other scripts and with marks of their own, in small letters.
FOREIGN = (
    *("contraseña", "hasło", "lösenord", "jelszó", "şifre", "пароль", "пароля", "паролю", "парола", "лозинка"),
    *("секрет", "токен", "密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호", "κωδικός"),
    *("סיסמה", "المرور", "khẩu", "รหัสผ่าน", "गुप्तशब्द"),
)
# A name that ends so is about a secret, and holds none.
_NEUTRAL = frozenset((
    *("error", "errors", "exception", "failure", "failures", "failed", "warning", "fault", "issue", "problem"),
    *("timeout", "ttl", "expiry", "expires", "expiration", "expired", "age", "count", "length", "size"),
    *("limit", "max", "min", "total", "type", "kind", "name", "names", "url", "uri", "endpoint", "path"),
    *("file", "dir", "domain", "method", "mode", "policy", "provider", "providers", "status", "state"),
    *("version", "ref", "arn", "enabled", "disabled", "required", "valid", "invalid", "at", "on", "in", "of"),
    *("format", "algorithm", "alg", "service", "server", "store", "manager", "handler", "controller", "module"),
    *("middleware", "driver", "host", "port", "user", "username", "role", "scope", "bucket", "position"),
    *("usage", "used", "budget", "remaining", "strategy", "factory", "guard", "issuer", "audience", "brand"),
    *("holder", "country", "field", "days", "hours", "seconds", "ms", "rate", "attempts", "retries", "reset"),
    *("job", "request", "requests", "response", "secure", "samesite", "httponly", "stdin", "prompt"),
    *("completion", "input", "output", "env", "filter", "interval", "second", "minute", "hint", "changed"),
    *("updated", "created", "verified", "verification", "validation", "validator", "parser", "index"),
    *("tokenizer", "tokenization", "tokenized", "secretary", "passwordless", "authorizer", "cookiecutter"),
    *("last4", "network", "bank", "level", "check", "checks", "rotation", "schema", "object", "class"),
    *("processor",),
))  # fmt: skip
_NEUTRAL_ENDS = tuple(word for word in _NEUTRAL if len(word) >= 5)
_NEUTRAL_FIRST = frozenset(("no", "without", "num", "max", "min", "total", "has", "is", "use", "public"))
_NOT_ID = frozenset(("card", "credential", "credentials", "token"))
_FILES = frozenset((
    *("js", "mjs", "cjs", "ts", "mts", "tsx", "jsx", "py", "rb", "go", "rs", "php", "java", "kt", "cs", "c"),
    *("h", "cpp", "vue", "html", "css", "json", "yml", "yaml", "toml", "conf", "txt", "log", "md", "sql", "sh"),
))  # fmt: skip
_COUNTS = frozenset((
    "max", "min", "num", "total", "count", "prompt", "completion", "input", "output", "used", "usage", "limit",
))  # fmt: skip
WORD_ENDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# What stands behind a name in place of a value, or says how it is with it.
_STATUS = frozenset((
    *("path", "cast", "expected", "got", "received", "length", "minimum", "maximum", "await", "new", "typeof"),
    *("null", "none", "nil", "undefined", "true", "false", "nan", "empty", "void", "default", "unknown", "na"),
    *("tbd", "yes", "no", "on", "off", "ok", "okay", "done", "set", "unset", "notset", "present", "absent"),
    *("provided", "given", "required", "optional", "missing", "invalid", "valid", "expired", "revoked"),
    *("rejected", "refused", "denied", "accepted", "allowed", "forbidden", "unauthorized", "authorized"),
    *("authenticated", "declined", "approved", "blocked", "locked", "unlocked", "disabled", "enabled"),
    *("active", "inactive", "failed", "failure", "success", "successful", "succeeded", "error", "mismatch"),
    *("mismatched", "malformed", "unsupported", "unexpected", "wrong", "incorrect", "correctly", "bad", "good"),
    *("weak", "strong", "changed", "unchanged", "updated", "created", "deleted", "removed", "rotated"),
    *("refreshed", "renewed", "generated", "loaded", "loading", "reloaded", "found", "notfound", "redacted"),
    *("hidden", "masked", "filtered", "removed", "secret", "password", "token", "string", "number", "object"),
    *("boolean", "text", "basic", "bearer", "digest", "negotiate", "oauth", "oauth2", "oidc", "saml", "ldap"),
    *("kerberos", "anonymous", "plain", "login", "logout", "started", "starting", "stopped", "stopping"),
    *("closed", "closing", "opened", "open", "opening", "ended", "ending", "cancelled", "canceled", "pending"),
    *("running", "ready", "waiting", "verified", "verifying", "unverified", "checked", "checking", "skipped"),
    *("ignored", "include", "omit", "forced", "punc", "name", "identifier", "operator", "keyword", "eof"),
    *("newline", "forgotten", "vergessen", "falsch", "ungültig", "fehlt", "abgelaufen", "неверный", "неверно"),
    *("истёк", "invalide", "inválida", "incorrecta", "mounted", "refilled", "confirmed", "consumed"),
    *("exchanged", "issued", "received", "sent", "stored", "saved"),
))  # fmt: skip
# A text of several words with one of these is a sentence.
_PROSE = frozenset((
    *("a", "an", "the", "is", "was", "are", "were", "be", "been", "has", "have", "had", "must", "may", "can"),
    *("cannot", "could", "should", "will", "would", "does", "do", "did", "not", "no", "and", "or", "but", "if"),
    *("of", "for", "from", "in", "into", "on", "at", "to", "by", "with", "without", "as", "than", "this"),
    *("that", "your", "you", "too", "only", "already", "any", "all", "please", "user", "field", "header"),
    *("after", "before", "during"),
))  # fmt: skip
_STAND_IN = re.compile(
    r"\$\{[^{}]*\}|\$\(?[A-Za-z_]\w*\)?|%\(?\w{1,40}\)?[sdr%]?|%[A-Za-z_]\w*%|\{\{.*\}\}|\{[\w.]*\}|<[\w .-]*>|"
    r"\[[A-Za-z ]{1,40}\]?|process\.env\.\w+|os\.environ.*|[*•·.…#-]+|[xX]{3,}|[Nn]/[Aa]|\[?\]?|\(?\)?|\{?\}?"
)
# Code: a call, or a property of a well-known name.
_CODE_VALUE = re.compile(
    r"[A-Za-z_$][\w$.]{0,60}\(.*|(?:this|self|req|request|res|response|config|settings|process|ctx|options|opts|props|params"
    r"|env|args|user|data|event|payload|body|headers)(?:\??\.[A-Za-z_$][\w$]*)+",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_MEASURE = re.compile(
    r"[+-]?\d{1,12}(?:[.,:/]\d{1,6}){0,4} ?(?:ms|us|ns|s|m|h|d|min|kb|mb|gb|b|%|x|eur|usd)?", re.IGNORECASE
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?|\d\d:\d\d(?::\d\d)?.*")
_PATH = re.compile(r"(?:[a-z][a-z0-9+.-]*:/)?/[\w./{}:-]*|\./[\w./-]*")
_TRIM = "\"'`,;:.!?()[]{}<>“”«»„"


@lru_cache(maxsize=4096)
def name_kind(name: str) -> NameKind:  # noqa: PLR0911 -- from certain to weak
    """Returns the kind of secret that this name stands for."""
    words = _split(name)
    joined = "".join(words)
    if not name.isascii() and any(part in name.lower() for part in FOREIGN):
        return NameKind.PASSWORD
    if (
        not words
        or words[-1] in _NEUTRAL
        or words[-1].endswith(_NEUTRAL_ENDS)
        or words[0] in _NEUTRAL_FIRST
        or (words[-1] in _FILES and "." in name)
    ):
        return NameKind.NONE
    if words[-1] == "id" and not _NOT_ID.isdisjoint(words):
        return NameKind.NONE
    found = set(words)
    if found & _PASSWORD or any(part in joined for part in _PASSWORD_PARTS):
        return NameKind.PASSWORD
    if found & _CODE:
        return NameKind.CODE
    if found & _SECRET or any(part in joined for part in _SECRET_PARTS):
        return NameKind.SECRET
    if found & _TOKEN or any(part in joined for part in _TOKEN_PARTS):
        return NameKind.TOKEN
    return NameKind.WEAK if found & _WEAK else NameKind.NONE


def is_secret_key(name: str) -> bool:
    """Returns True if the value under this name is hidden in data, whatever it looks like."""
    return name_kind(name) is not NameKind.NONE


def is_counted(name: str) -> bool:
    """Returns True for `max_tokens` and its kind, which hold a number that is no secret."""
    words = _split(name)
    return words[-1:] == ["tokens"] or not _COUNTS.isdisjoint(words)


def is_secret_value(kind: NameKind, written: str, sign: Separator) -> bool:  # noqa: PLR0911 -- one rule each
    """Returns True if the value behind a name of this kind can be a secret. One longer than VALUE_LIMIT is one."""
    if len(written) > VALUE_LIMIT:
        return True
    value = written.strip().strip(_TRIM).strip()
    if not value or _STAND_IN.fullmatch(value) or _STAND_IN.fullmatch(written.strip()):
        return False
    if _CODE_VALUE.fullmatch(value) or _CODE_VALUE.fullmatch(written.strip()):
        return False
    lowered = value.casefold()
    if lowered in _STATUS or _is_sentence(lowered):
        return False
    if _MEASURE.fullmatch(value) or _DATE.fullmatch(value):
        return _is_number(kind, value, sign)
    if kind is not NameKind.PASSWORD and _PATH.fullmatch(value):
        return False
    if kind is NameKind.WEAK or sign is Separator.COMMA:
        return looks_made(value)
    if _PLAIN.fullmatch(value):
        return _is_word(kind, value, sign)
    return True


def is_passphrase_word(word: str) -> bool:
    """Returns True if a word that follows one of a passphrase can be the next one."""
    return word.islower() and word not in _PROSE and word not in _STATUS


def looks_made(value: str) -> bool:
    """Returns True for letters and digits in one word, or for a long word in camel case."""
    if len(value) < 6 or " " in value:
        return False
    has_digit = any(map(str.isdigit, value))
    has_letter = any(map(str.isalpha, value))
    return (has_digit and has_letter) or (len(value) >= 16 and _CAMEL.search(value) is not None)


def _is_number(kind: NameKind, value: str, sign: Separator) -> bool:
    digits = sum(map(str.isdigit, value))
    if value.isdigit() and kind is NameKind.PASSWORD:
        return digits >= 3
    if kind is NameKind.CODE:
        return digits >= 3 and "." not in value
    return (
        value.isdigit() and digits >= 6 and (kind is not NameKind.WEAK or digits >= 16) and sign is not Separator.BLANK
    )


def _is_word(kind: NameKind, value: str, sign: Separator) -> bool:
    if sign is Separator.BLANK or kind is NameKind.CODE:
        return False
    if sign is Separator.COLON and value.casefold() in _PROSE:
        return False
    if kind is NameKind.TOKEN:
        return sign is Separator.EQUALS or len(value) > WORD_LETTERS
    return True


def _is_sentence(lowered: str) -> bool:
    words = [word.strip(_TRIM) for word in lowered.split()]
    if len(words) < 2 or not all(_PLAIN.fullmatch(word) or word.isdigit() for word in words if word):
        return False
    return words[0] in _STATUS or not _PROSE.isdisjoint(words)


def _split(name: str) -> list[str]:
    return [word.lower() for word in WORD_ENDS.split(name[:KEY_LIMIT]) if word]
