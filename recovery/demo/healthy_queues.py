"""Queues that work well: fast, slow, by priority, later, in families, by the clock."""

from __future__ import annotations

import asyncio
from typing import Any

from recovery.demo.runtime import CHANCE, DemoRuntime
from recovery.demo.sample_data import customer, order

FIRST_BURST = 40  # jobs at the start, so that the first minute's chart is not empty
STAGES = ("collecting rows", "joining", "rendering", "compressing")


async def emails(stage: DemoRuntime) -> None:
    """Sets up a fast queue: a few jobs a second, each done at once."""
    queue = stage.queue("emails")

    async def send(job: Any, _token: str) -> dict[str, Any]:
        await asyncio.sleep(CHANCE.uniform(0.02, 0.3))
        return {"accepted": [job.data["to"]["email"]], "provider": "smtp-2"}

    async def write() -> None:
        await queue.add(CHANCE.choice(("welcome", "receipt", "newsletter")), {"to": customer(), "lang": "en"})

    await queue.addBulk([{"name": "newsletter", "data": {"to": customer(), "lang": "en"}} for _ in range(FIRST_BURST)])
    stage.work("emails", send, concurrency=4)
    stage.every(0.8, write)


async def reports(stage: DemoRuntime) -> None:
    """Sets up a slow queue: progress and log lines to watch."""
    queue = stage.queue("reports")

    async def render(job: Any, _token: str) -> dict[str, Any]:
        pause = CHANCE.uniform(1.0, 4.0)
        for done, step in enumerate(STAGES, start=1):
            await job.log(f"{step} for {job.data['customer']['name']} …")
            await asyncio.sleep(pause)
            await job.updateProgress(round(100 * done / len(STAGES)))
        return {"pages": CHANCE.randint(3, 80), "file": f"/reports/{job.id}.pdf"}

    async def ask() -> None:
        await queue.add(CHANCE.choice(("monthly", "tax", "inventory")), {"customer": customer(), "year": 2026})

    stage.work("reports", render, concurrency=2)
    stage.every(7.0, ask)


async def notifications(stage: DemoRuntime) -> None:
    """Sets up a queue with priorities: bursts that its single worker takes time for. It keeps no metrics."""
    queue = stage.queue("notifications")

    async def push(_job: Any, _token: str) -> str:
        await asyncio.sleep(CHANCE.uniform(0.5, 1.2))
        return "delivered"

    async def burst() -> None:
        names = {1: "security-alert", 3: "mention", 10: "digest"}
        chosen = [CHANCE.choice(tuple(names)) for _ in range(12)]
        await queue.addBulk(
            [{"name": names[urgency], "data": customer(), "opts": {"priority": urgency}} for urgency in chosen]
        )

    stage.work("notifications", push, keeps_metrics=False)
    stage.every(20.0, burst)


async def reminders(stage: DemoRuntime) -> None:
    """Sets up a queue of delayed jobs: everything is due between half a minute and ten minutes from now."""
    queue = stage.queue("reminders")

    async def remind(_job: Any, _token: str) -> str:
        await asyncio.sleep(0.1)
        return "reminded"

    async def plan() -> None:
        await queue.add("cart-left-behind", order(), {"delay": CHANCE.randint(30_000, 600_000)})

    for _ in range(8):
        await plan()
    stage.work("reminders", remind)
    stage.every(9.0, plan)


async def orders(stage: DemoRuntime) -> None:
    """Sets up flows: an order waits for its parcels and its invoice, which are jobs of two other queues."""

    async def ship(job: Any, _token: str) -> dict[str, Any]:
        return {"shipped": len(await job.getChildrenValues())}

    async def pack(_job: Any, _token: str) -> dict[str, Any]:
        await asyncio.sleep(CHANCE.uniform(1.0, 5.0))
        return {"weight": CHANCE.randint(100, 4000)}

    async def bill(job: Any, _token: str) -> dict[str, Any]:
        await asyncio.sleep(CHANCE.uniform(0.3, 2.0))
        return {"invoice": f"R-{job.data['order'][2:]}"}

    async def buy() -> None:
        bought = order()
        parcels = [{"name": "parcel", "queueName": "packing", "data": line} for line in bought["lines"]]
        invoice = {"name": "invoice", "queueName": "invoices", "data": bought}
        await stage.flows.add(
            {"name": "checkout", "queueName": "orders", "data": bought, "children": [*parcels, invoice]}
        )

    stage.work("orders", ship)
    stage.work("packing", pack, concurrency=2)
    stage.work("invoices", bill, keeps_metrics=False)
    stage.every(6.0, buy)


async def housekeeping(stage: DemoRuntime) -> None:
    """Sets up job schedulers, one of them with a cron pattern and a time zone."""
    queue = stage.queue("housekeeping")

    async def tidy(job: Any, _token: str) -> dict[str, Any]:
        await job.log(f"{job.name}: checked 3 tables")
        await asyncio.sleep(0.2)
        return {"removed": CHANCE.randint(0, 20)}

    await queue.upsertJobScheduler("sweep-sessions", {"every": 8_000}, "sweep", {"table": "sessions"})
    await queue.upsertJobScheduler("rotate-keys", {"pattern": "*/5 * * * *"}, "rotate", {"keep": 3})
    await queue.upsertJobScheduler("backup", {"pattern": "0 3 * * *", "tz": "Europe/Lisbon"}, "backup", {"full": True})
    stage.work("housekeeping", tidy)
