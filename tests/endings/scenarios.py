"""The endings: each takes away the workers of some jobs, and waits until everything can be seen that ever will be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.endings.libraries import Process, Recorded
from tests.endings.recorder import Look, Recorder
from tests.fault.proxy import Proxy
from tests.support.stores.stores import Store

GRACE = 1.5  # seconds between SIGTERM and SIGKILL of a deployment: shorter than the job
AFTER = 4.0  # seconds a job waits beyond two lock lengths before it spins or swells: its worker is at work by then
MEMORY = 120 << 20  # bytes a worker may use before the kernel kills it
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(slots=True)
class Stage:
    """One queue on a store of its own."""

    library: Recorded
    lock: float  # seconds
    store: Store
    recorder: Recorder
    stack: ExitStack
    workers: list[Process] = field(default_factory=list)

    def at_work(self, *names: str, does: str = "hang", url: str = "") -> list[Process]:
        """Workers with a job each, for so long that nobody takes them for somebody's replacement. The first one `does`
        it to its job; the others hang.
        """
        first, *others = names or ("worker-1", "worker-2")
        found = [self.work(first, does, url=url), *(self.work(name, url=url) for name in others)]
        self.recorder.rest(self.lock + 2)
        return found

    def work(self, name: str, does: str = "hang", *, url: str = "") -> Process:
        """One more worker, with a job of its own in hand."""
        worker = self.start(name, does, url=url)
        before = len(self.recorder.now.get("active", ()))
        self.library.add(self.store.url, 2 * self.lock + AFTER)
        self.recorder.until(lambda look: len(look.get("active", ())) > before)
        return worker

    def start(self, name: str, does: str = "hang", *, url: str = "") -> Process:
        before = _connected(self.recorder.now)
        worker = self.library.start(url or self.store.url, name, does, round(self.lock * 1000))
        self.workers.append(worker)
        self.recorder.until(lambda look: bool(_connected(look) - before))
        return worker

    def retire(self, workers: list[Process]) -> None:
        """As a deployment does: SIGTERM, a grace, SIGKILL."""
        for worker in workers:
            worker.close()
        self.recorder.rest(GRACE)
        for worker in workers:
            worker.kill()

    def confine(self, worker: Process) -> None:
        """Into a memory cgroup of its own, of version 1 or 2: that takes root."""
        has_old = (_CGROUPS / "memory").is_dir()
        group = (_CGROUPS / "memory" if has_old else _CGROUPS) / f"unstall-ending-{worker.pid}"
        group.mkdir()
        self.stack.callback(group.rmdir)
        (group / ("memory.limit_in_bytes" if has_old else "memory.max")).write_text(str(MEMORY))
        (group / "cgroup.procs").write_text(str(worker.pid))

    def proxy(self) -> Proxy:
        return self.stack.enter_context(Proxy(self.store.port))

    def close(self) -> None:
        for worker in self.workers:
            if worker.is_running:
                worker.kill()

    def settle(self, jobs: int) -> None:
        """Until so many have lost their locks, and for two lock lengths more."""
        self.recorder.until(lambda look: sum(ttl == -2 for _, ttl in look.get("active", ())) >= jobs)
        self.recorder.rest(2 * self.lock + 2)


def _connected(look: Look) -> set[str]:
    return {id for id, *_ in look.get("clients", ())}


def crash(stage: Stage) -> int:
    """One of two is killed, and nobody takes its place."""
    first, _ = stage.at_work()
    first.kill()
    return 1


def crash_of_the_only_one(stage: Stage) -> int:
    (only,) = stage.at_work("worker-1")
    only.kill()
    return 1


def crash_and_restart(stage: Stage) -> int:
    """One of two is killed, and its supervisor starts it again at once."""
    first, _ = stage.at_work()
    first.kill()
    stage.start("worker-1")
    return 1


def deploy_before(stage: Stage) -> int:
    """Rolling, with the new workers first: each old one has a short grace, and is killed with its job in hand."""
    old = stage.at_work("v1-1", "v1-2")
    stage.start("v2-1")
    stage.start("v2-2")
    stage.retire(old)
    return 2


def deploy_after(stage: Stage) -> int:
    """The old workers first, then the new ones."""
    stage.retire(stage.at_work("v1-1", "v1-2"))
    stage.start("v2-1")
    stage.start("v2-2")
    return 2


def starvation(stage: Stage) -> int:
    """A job that never lets the event loop turn."""
    stage.at_work(does="spin")
    return 1


def out_of_memory(stage: Stage) -> int:
    """The kernel kills the one whose job takes more and more memory."""
    first, _ = stage.at_work(does="swell")
    stage.confine(first)
    stage.recorder.until(lambda _: not first.is_running)
    return 1


def redis_restart(stage: Stage) -> int:
    """Away for longer than a lock lives; it has its keys again afterwards."""
    stage.at_work()
    stage.store.stop()
    stage.recorder.rest(stage.lock + 1)
    stage.store.start()
    return 2


def cut_in_silence(stage: Stage) -> int:
    """The network to one of two swallows everything, both ways; no side is told."""
    proxy = stage.proxy()
    stage.work("worker-1", url=proxy.url)
    stage.at_work("worker-2")
    proxy.silence()
    return 1


def cut_and_healed(stage: Stage) -> int:
    """Both lose their connections for longer than a lock lives, and come back."""
    proxy = stage.proxy()
    stage.at_work(url=proxy.url)
    proxy.refuse()
    stage.recorder.rest(stage.lock + 1)
    proxy.restore()
    return 2


# Seconds. As short as a busy machine bears; longer where a new worker has to come up within half a lock's length.
LOCK, LOCKS = 6.0, {"deploy, old ones first": 18.0, "crash and restart": 18.0}

ENDINGS: Mapping[str, Callable[[Stage], int]] = {
    "crash": crash,
    "crash of the only one": crash_of_the_only_one,
    "crash and restart": crash_and_restart,
    "deploy, new ones first": deploy_before,
    "deploy, old ones first": deploy_after,
    "starvation": starvation,
    "out of memory": out_of_memory,
    "Redis restart": redis_restart,
    "network cut in silence": cut_in_silence,
    "network cut and healed": cut_and_healed,
}
