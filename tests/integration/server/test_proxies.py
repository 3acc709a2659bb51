"""The proxies' configurations that we hand out, in the real programs, before a real web process."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.processes.processes import end, free_port, spawn
from tests.support.processes.web_process import COOKIE, ROOT, WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until

DEPLOY = ROOT / "deploy"
SOCKETS = ("web-1.sock", "web-2.sock")
LARGE = 1_900_000  # bytes: /tuning takes 1.5 MB of files, which a form makes larger
NGINX = """
{user}
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""
CADDY = "{{\n\tadmin off\n\tauto_https disable_redirects\n\tstorage file_system {folder}\n}}\n"


class Proxy:
    """`url`: where it takes TLS. `plain`: its port without, 0 where it has none."""

    def __init__(self, folder: Path, certificates: Path) -> None:
        self.port, self.plain = free_port(), free_port()
        self.url = f"https://localhost:{self.port}"
        self._folder = folder
        self._certificates = certificates

    def nginx(self) -> list[str]:
        _installed("nginx")
        server = (DEPLOY / "nginx.conf").read_text()
        for ours, here in (
            ("/run/unstall/", f"{self._folder}/"),
            ("/etc/ssl/unstall/fullchain.pem", str(self._certificates / "server.crt")),
            ("/etc/ssl/unstall/privkey.pem", str(self._certificates / "server.key")),
            ("listen 443", f"listen 127.0.0.1:{self.port}"),
            ("listen 80", f"listen 127.0.0.1:{self.plain}"),
        ):
            assert ours in server
            server = server.replace(ours, here)
        path = self._folder / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""  # its workers have to reach our folder
        path.write_text(NGINX.format(folder=self._folder, server=server, user=user))
        return ["nginx", "-c", str(path), "-e", str(self._folder / "error.log"), "-p", str(self._folder)]

    def caddy(self, name: str, *places: tuple[str, str]) -> list[str]:
        _installed("caddy")
        site, crt, key = "unstall.example.com {", self._certificates / "server.crt", self._certificates / "server.key"
        text = (DEPLOY / name).read_text()
        for ours, here in ((site, f"{self.url} {{\n\tbind 127.0.0.1\n\ttls {crt} {key}"), *places):
            assert ours in text
            text = text.replace(ours, here)
        path = self._folder / name
        path.write_text(CADDY.format(folder=self._folder) + text)
        return ["caddy", "run", "--adapter", "caddyfile", "--config", str(path)]


@pytest.fixture
def environ(state_store: Store, valkey: Store) -> dict[str, str]:
    return {"UNSTALL_STATE_URL": state_store.url, "UNSTALL_REDIS_URL": valkey.url}


@pytest.fixture(params=["nginx", "caddy", "caddy of compose"])
def through(
    request: pytest.FixtureRequest, tmp_path: Path, certificates: Path, environ: dict[str, str]
) -> Iterator[tuple[Proxy, httpx.Client]]:
    """A proxy, and a viewer's browser that reaches the web process through it."""
    proxy = Proxy(tmp_path, certificates)
    socket = None if request.param == "caddy of compose" else tmp_path / SOCKETS[0]
    bind = {"UNSTALL_BIND": f"unix:{socket}"} if socket else {}
    with WebProcess({**environ, **bind}, socket_path=socket) as web:
        if socket:
            (tmp_path / SOCKETS[1]).symlink_to(socket)
        commands: dict[str, Callable[[], list[str]]] = {
            "nginx": proxy.nginx,
            "caddy": lambda: proxy.caddy("Caddyfile", ("/run/unstall/", f"{tmp_path}/")),
            "caddy of compose": lambda: proxy.caddy("Caddyfile.compose", ("a web 8000", f"a localhost {web.port}")),
        }
        with (tmp_path / "proxy.log").open("wb") as log:
            process = spawn(commands[request.param](), stdout=log, stderr=log, directory=tmp_path)
        trusted = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        cookies = {COOKIE: web.cookies["viewer"]}
        try:
            with httpx.Client(base_url=proxy.url, verify=trusted, cookies=cookies, timeout=10) as client:
                until(lambda: process.poll() is not None or _answers(client), 15, "the proxy answers")
                assert process.poll() is None, (tmp_path / "proxy.log").read_text() + _errors(tmp_path)
                yield proxy, client
        finally:
            end(process)


def test_pages_and_streams_come_through_a_proxy(through: tuple[Proxy, httpx.Client]) -> None:
    _, client = through
    assert "Queues" in client.get("/queues").text
    with client.stream("GET", "/live/events", headers={"Accept-Encoding": "gzip, zstd"}) as stream:
        assert stream.status_code == 200
        assert "Content-Encoding" not in stream.headers
        events = [line for line, _ in zip(_events(stream), range(2), strict=False)]
    assert events == ["event: hello", "event: tick"], "each when it is told, not when a buffer is full"
    answer = client.post("/tuning", content=b"x" * LARGE)
    assert answer.status_code == 403, "the form's token is missing; that it is large is no matter"


@pytest.mark.parametrize("through", ["nginx"], indirect=True)
def test_nginx_speaks_http_2_and_leads_from_http_to_https(
    through: tuple[Proxy, httpx.Client], certificates: Path
) -> None:
    proxy, _ = through
    _installed("curl")
    asked = ["curl", "-s", "-o", "/dev/null", "--cacert", str(certificates / "ca.crt"), "-w", "%{http_version}"]
    version = subprocess.run([*asked, f"{proxy.url}/healthz"], capture_output=True, text=True, check=True).stdout
    assert version == "2"
    moved = httpx.get(f"http://127.0.0.1:{proxy.plain}/queues?q=mail", headers={"Host": "unstall.example.com"})
    assert (moved.status_code, moved.headers["Location"]) == (301, "https://unstall.example.com/queues?q=mail")


@pytest.mark.parametrize("name", ["Caddyfile", "Caddyfile.compose"])
@pytest.mark.usefixtures("processes")
def test_caddy_understands_what_we_hand_out(name: str) -> None:
    _installed("caddy")
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / name)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


def _installed(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (Debian: apt install {program})")


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def _events(stream: httpx.Response) -> Iterator[str]:
    return (line for line in stream.iter_lines() if line.startswith("event:"))


def _errors(folder: Path) -> str:
    path = folder / "error.log"
    return path.read_text() if path.exists() else ""
