"""Programs that measure servers: Debian's node_exporter and Prometheus, each private, on loopback, in a temp dir."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from recovery.stores.http import http_client, promql
from tests.support.processes.processes import end, free_port, spawn
from tests.support.waiting import until

_STARTS = 5  # somebody else may take the port between our look and the program's bind
_SECONDS = 30.0
# What is needed, so that a scrape stays cheap beside other tests.
_COLLECTORS = ("cpu", "meminfo", "loadavg", "filesystem", "uname")


def need(program: str) -> str:
    """Where it is; skips, with the reason, what this machine cannot run."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (Debian: apt install {program})")
    return found


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages may take their time on a busy machine; what is promised of it is tested with the faults."""
    monkeypatch.setattr(http_client, "fetch_all", partial(http_client.fetch_all, seconds=2 * _SECONDS))
    monkeypatch.setattr(promql, "_OWN_LIMIT", f"{_SECONDS:g}s")


class Program:
    """One of them. It keeps its port over `stop` and `start`."""

    def __init__(self, name: str, ready: str, *, verify: ssl.SSLContext | bool = False) -> None:
        self._program = need(name)
        self._ready = ready
        self._verify = verify
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix=f"unstall-{name}-"))
        self.port = 0

    def __enter__(self) -> Self:
        for _ in range(_STARTS):
            self.port = free_port()
            if self.start():
                return self
        raise AssertionError(self.log)

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]

    def start(self) -> bool:
        with (self.directory / "log").open("ab") as log:
            command = [self._program, *self._arguments(), f"--web.listen-address=127.0.0.1:{self.port}"]
            self._process = spawn(command, stdout=log, stderr=log, directory=self.directory)
        until(lambda: self._has_ended() or self._answers(), _SECONDS, f"{self._program} answers")
        return not self._has_ended()

    def stop(self) -> None:
        if self._process is not None:
            end(self._process)
            self._process = None

    def _arguments(self) -> Sequence[str]:
        return ()

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        """Any answer will do: one that asks for a login is up."""
        try:
            return httpx.get(f"{self.url}{self._ready}", verify=self._verify, timeout=_SECONDS).status_code != 503
        except httpx.HTTPError:
            return False


class NodeExporter(Program):
    """`web`: its own configuration of TLS and logins."""

    def __init__(self, web: Mapping[str, Any] | None = None) -> None:
        super().__init__("prometheus-node-exporter", "/metrics")
        self._web = web

    @property
    def page(self) -> str:
        return f"{self.url}/metrics"

    @property
    def url(self) -> str:
        is_tls = self._web is not None and "tls_server_config" in self._web
        return super().url.replace("http:", "https:") if is_tls else super().url

    def _arguments(self) -> Sequence[str]:
        chosen = ["--collector.disable-defaults", *(f"--collector.{name}" for name in _COLLECTORS)]
        if self._web is None:
            return chosen
        path = self.directory / "web.yml"
        path.write_text(json.dumps(self._web))  # JSON is YAML
        return [*chosen, f"--web.config.file={path}"]


class Prometheus(Program):
    """It scrapes these places (HOST:PORT, under /metrics) every second, as the job `node`."""

    def __init__(self, *places: str) -> None:
        super().__init__("prometheus", "/-/ready")
        job = {"job_name": "node", "static_configs": [{"targets": list(places)}]}
        settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
        (self.directory / "prometheus.yml").write_text(json.dumps(settings))

    def _arguments(self) -> Sequence[str]:
        data = self.directory / "data"
        return [f"--config.file={self.directory / 'prometheus.yml'}", f"--storage.tsdb.path={data}", "--log.level=warn"]
