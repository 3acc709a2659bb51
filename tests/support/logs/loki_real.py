"""A real Loki, built by deploy/setup/loki.sh: one process on loopback, in a temp dir, with several tenants."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.processes.processes import end, free_port, spawn
from tests.support.waiting import until

PROGRAM = "LOKI"  # the variable that says where it is
_STARTS = 5  # somebody else may take a port between our look and the program's bind
_SECONDS = 60.0
_BATCH = 5000  # lines of one push
_CONFIG = """
auth_enabled: true
analytics: {{reporting_enabled: false}}
server:
  http_listen_address: 127.0.0.1
  http_listen_port: {port}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {grpc}
  log_level: warn
common:
  instance_addr: 127.0.0.1
  path_prefix: {directory}
  replication_factor: 1
  ring: {{instance_addr: 127.0.0.1, kvstore: {{store: inmemory}}}}
  storage: {{filesystem: {{chunks_directory: {directory}/chunks, rules_directory: {directory}/rules}}}}
schema_config:
  configs:
    - {{from: 2024-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {{prefix: i_, period: 24h}}}}
ingester: {{wal: {{enabled: false}}}}
frontend_worker: {{dns_lookup_duration: 100ms}}
frontend: {{scheduler_dns_lookup_period: 100ms}}
limits_config:
  ingestion_rate_mb: 1000
  ingestion_burst_size_mb: 1000
  per_stream_rate_limit: 1GB
  per_stream_rate_limit_burst: 1GB
  reject_old_samples: false
"""


class RealLoki:
    """Use as a context. What it holds is told apart by tenants; `forget` empties it."""

    def __init__(self) -> None:
        self.port = 0
        self._directory = Path(tempfile.mkdtemp(prefix="unstall-loki-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for _ in range(_STARTS):
            self.port = free_port()
            if self._start():
                return self
        raise AssertionError(self._log)

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def push(self, tenant: str, labels: Mapping[str, str], lines: Iterable[tuple[int, str]]) -> None:
        values = [[str(at), text] for at, text in lines]
        for start in range(0, len(values), _BATCH):
            body = {"streams": [{"stream": labels, "values": values[start : start + _BATCH]}]}
            answer = self._post(tenant, body)
            assert answer.status_code == 204, answer.text

    def get(self, tenant: str, path: str, **params: str) -> httpx.Response:
        headers = {"X-Scope-OrgID": tenant} if tenant else {}
        return httpx.get(f"{self.url}/loki/api/v1/{path}", params=params, headers=headers, timeout=_SECONDS)

    def forget(self) -> None:
        self._stop()
        for name in ("chunks", "tsdb-shipper-active", "tsdb-shipper-cache"):
            shutil.rmtree(self._directory / name, ignore_errors=True)
        assert self._start(), self._log

    def _start(self) -> bool:
        config = _CONFIG.format(port=self.port, grpc=free_port(), directory=self._directory)
        (self._directory / "loki.yaml").write_text(config)
        command = [os.environ[PROGRAM], f"-config.file={self._directory}/loki.yaml"]
        with (self._directory / "log").open("wb") as log:
            self._process = spawn(command, stdout=log, stderr=log, directory=self._directory)
        until(lambda: self._has_ended() or self._takes(), _SECONDS, "Loki takes lines")
        return not self._has_ended()

    def _stop(self) -> None:
        if self._process:
            self._process.kill()  # nothing of it is needed any more, and it takes long to write it down
            end(self._process)
            self._process = None

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _takes(self) -> bool:
        try:
            stream = {"stream": {"is": "ready"}, "values": [[str(time.time_ns()), "yes"]]}
            is_taken = self._post("ready", {"streams": [stream]}).status_code == 204
            return is_taken and self.get("ready", "labels").status_code == 200  # the first one waits for its workers
        except httpx.HTTPError:
            return False

    def _post(self, tenant: str, body: Any) -> httpx.Response:
        headers = {"X-Scope-OrgID": tenant, "Content-Type": "application/json"}
        content = json.dumps(body).encode()
        return httpx.post(f"{self.url}/loki/api/v1/push", content=content, headers=headers, timeout=_SECONDS)

    @property
    def _log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-2000:]
