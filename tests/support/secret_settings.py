"""A configuration in which every secret setting holds a value that is found again wherever it comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recovery.config.schema import SECRETS, TABLES

# Nothing listens there, so each store is asked, and fails.
NOWHERE = "127.0.0.1:9"
# Of a password that is cut, decoded or quoted a half of it is seen, too.
MARK = "Zq7Xw"


@dataclass(frozen=True, slots=True)
class Form:
    """Describes one way of writing a secret: the word made of its mark, and how a URL holds it."""

    name: str
    word: Callable[[str], str]
    url: str = "{scheme}://user:{word}@{host}/{path}"

    def made(self, mark: str, scheme: str = "", path: str = "0") -> str:
        word = self.word(mark)
        return self.url.format(scheme=scheme, word=word, host=NOWHERE, path=path) if scheme else word

    def __str__(self) -> str:
        return self.name


def _both(sign: str) -> Callable[[str], str]:
    return lambda mark: f"{mark}{sign}{mark}"


PLAIN = Form("as it should be", lambda mark: mark)
# Real mistakes: a password without percent-encoding, one that begins as a port does, half a URL, a line too much.
MISTAKES = (
    *(Form(f"with {sign}", _both(sign)) for sign in "/?#@:%[ "),
    *(Form(f"number and {sign}", lambda mark, sign=sign: f"12{sign}{mark}=3") for sign in "/?#"),  # type: ignore[misc]
    Form("no host", lambda mark: mark, "{scheme}://user:{word}"),
    Form("no scheme", lambda mark: mark, "user:{word}@{host}/{path}"),
    Form("as the port", lambda mark: mark, "{scheme}://{host}{word}/{path}"),
    Form("as the database", lambda mark: mark, "{scheme}://{host}/{word}@{path}"),
    Form("as an option", lambda mark: mark, "{scheme}://{host}/{path}?password={word}"),
    Form("not ASCII", lambda mark: f"{mark}ü\x01"),
    Form("two lines", lambda mark: f"{mark}\n{mark}"),
)
FORMS = (PLAIN, *MISTAKES)

# Of each table of the file its keys that are secret, or URLs that may hold a secret; each is written into a file where
# it can be. "": the environment.
TABLE_SECRETS = {
    "": SECRETS,
    "deployments": ("url", "password", "sentinel_password"),
    "state": ("url", "password"),
    "databases": ("url",),
    "n8n": ("api_key", "api", "editor"),
    "nodes": ("exporter", "token_file", "password_file"),
    "prometheus": ("url", "token_file", "password_file"),
    "logs": ("url", "token_file", "password_file"),
    "alerts.webhooks": ("url", "secret"),
    "alerts.email": ("password",),
    "audit": ("url", "secret"),
}
_LIKE_A_SECRET = ("password", "secret", "token", "key", "url", "exporter", "api", "editor")
_NOT_SECRET = {"tls_key", "secret_file", "url_file", "api_key_file", "sentinel_password_file"}


def forgotten() -> dict[str, list[str]]:
    """Lists keys of the schema that look like secrets, and that no configuration of this module holds."""
    found = {
        table: [
            key.name
            for key in keys
            if key.name.removesuffix("_file").split("_")[-1] in _LIKE_A_SECRET
            and key.name not in (*TABLE_SECRETS.get(table, ()), *_NOT_SECRET)
            and key.name.removesuffix("_file") not in TABLE_SECRETS.get(table, ())
        ]
        for table, keys in TABLES.items()
    }
    return {table: names for table, names in found.items() if names}


@dataclass(slots=True)
class SecretSettings:
    """Holds `environ` for a process of ours, with the file that it names, and `marks`: what must not be seen."""

    directory: Path
    form: Form
    environ: dict[str, str] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)

    def write(self) -> SecretSettings:
        self._environment()
        path = self.directory / "secret.toml"
        path.write_text(self._toml(), encoding="utf-8")
        self.environ["UNSTALL_CONFIG"] = str(path)
        return self

    def seen_in(self, text: str) -> list[str]:
        """Returns the settings whose secret stands in this text."""
        return [setting for setting, mark in self.marks.items() if mark in text]

    def _environment(self) -> None:
        schemes = {
            "UNSTALL_REDIS_URL": "redis",
            "UNSTALL_STATE_URL": "rediss",
            "UNSTALL_N8N_DATABASE_URL": "postgresql",
            "DATABASE_URL": "postgres",
            "UNSTALL_SECRET_KEY": "",
            "UNSTALL_SECRET_KEY_FALLBACKS": "",
        }
        for name in SECRETS:
            scheme = schemes[name]
            value = self._made(name, scheme, "unstall" if "DATABASE" in name else str(10 + len(self.marks)))
            self.environ[name] = value if scheme else value * 5

    def _toml(self) -> str:
        own, url, file = self._quoted, self._url, self._file
        return f"""
[[deployments]]
name = "eu"
url = {url("deployments.url", "rediss", "0")}

[[deployments]]
name = "us"
url = "redis://{NOWHERE}/1"
username = "unstall"
password = {own("deployments.password")}

[[deployments]]
name = "ha"
url = "redis+sentinel://{NOWHERE}/main/2"
password_file = {file("deployments.password_file")}
sentinel_username = "unstall"
sentinel_password = {own("deployments.sentinel_password")}

[[databases]]
name = "app"
url = {url("databases.url", "postgresql", "app")}

[[databases]]
name = "shop"
url_file = {file("databases.url_file", "mysql", "shop")}

[[n8n]]
queue = "eu/bull:jobs"
editor = {url("n8n.editor", "https", "editor") if self.form is not PLAIN else '"http://127.0.0.1:9"'}
api = {url("n8n.api", "https", "api") if self.form is not PLAIN else '"http://127.0.0.1:9"'}
api_key = {own("n8n.api_key")}

[[nodes]]
id = "one"
exporter = "http://{NOWHERE}/metrics"
token_file = {file("nodes.token_file")}

[[nodes]]
id = "two"
exporter = {url("nodes.exporter", "http", "metrics") if self.form is not PLAIN else '"http://127.0.0.1:9/two"'}
username = "unstall"
password_file = {file("nodes.password_file")}

[prometheus]
url = {url("prometheus.url", "http", "") if self.form is not PLAIN else '"http://127.0.0.1:9"'}
token_file = {file("prometheus.token_file")}

[[logs]]
name = "loki"
kind = "loki"
url = {url("logs.url", "http", "") if self.form is not PLAIN else '"http://127.0.0.1:9"'}
username = "unstall"
password_file = {file("logs.password_file")}

[[alerts.webhooks]]
name = "ops"
url = {url("alerts.webhooks.url", "http", "hook")}
secret = {own("alerts.webhooks.secret")}

[[alerts.webhooks]]
name = "slack"
url = {self._slack()}
format = "slack"

[alerts.email]
host = "127.0.0.1"
port = 9
encryption = "none"
username = "unstall"
password = {own("alerts.email.password")}
from = "unstall@example.com"
to = ["ops@example.com"]

[audit]
url = {url("audit.url", "http", "heads")}
secret = {own("audit.secret")}
"""

    def _slack(self) -> str:
        """Returns the URL of a Slack webhook, whose path is the secret."""
        parts = (self._made(f"alerts.webhooks.url {part}") for part in ("path", "query"))
        return json.dumps(f"http://{NOWHERE}/services/{'?key='.join(parts)}", ensure_ascii=False)

    def _made(self, setting: str, scheme: str = "", path: str = "0") -> str:
        mark = self.marks.setdefault(setting, f"{MARK}{len(self.marks):02d}")
        return self.form.made(mark, scheme, path)

    def _quoted(self, setting: str) -> str:
        return json.dumps(self._made(setting), ensure_ascii=False).replace("\x01", "\\u0001")

    def _url(self, setting: str, scheme: str, path: str) -> str:
        return json.dumps(self._made(setting, scheme, path), ensure_ascii=False).replace("\x01", "\\u0001")

    def _file(self, setting: str, scheme: str = "", path: str = "0") -> str:
        file = self.directory / f"secret-{len(self.marks)}"
        file.write_text(self._made(setting, scheme, path), encoding="utf-8")
        return json.dumps(str(file))


def written(directory: Path, form: Form) -> SecretSettings:
    directory.mkdir(parents=True, exist_ok=True)
    return SecretSettings(directory, form).write()


def without(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}
