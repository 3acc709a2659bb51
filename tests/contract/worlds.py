"""Queues as they might be met: every state, made from a seed, as the keys of one generation of one library.

    world = worlds.make("bull4", "retry", 17)
    world.keys       # in the form of the golden files
    world.targets    # the jobs to act on, as they were seen

They hold what decides where a job goes: priorities, lifo, pauses, limits, counters at and over the limit, how many
failed jobs are kept, keys against doubles, markers, schedules, parents and children under each option.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

from recovery.domain.actions.types import ExpectedJob
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion
from tests.contract import golden
from tests.contract.golden import BASE, Case, Keyspace

NOW = 1_795_000_000_000
PARENT_QUEUE = "bull:par"
MAX_STALLS = 1  # the library's own default
ACTS = ("recover", "retry", "promote", "remove", "pause", "resume")
VERSIONS = golden.VERSIONS | {"bullmq4": "4.18.3"}

_FAILURES_KEPT = (None, None, False, True, 1, 2, {"age": 60}, {"age": 3600, "count": 1}, {"count": 2})
_FAMILY_OPTIONS = {3: ("fpof",), 4: ("fpof", "rdof"), 5: ("fpof", "rdof", "idof", "cpof")}
_NAMES = {"failed": "failed", "completed": "completed", "delayed": "delayed"}


@dataclass(slots=True)
class World:
    """One generated queue; `facts` of each job are what the keys were made from."""

    generation: str
    act: str
    number: int
    keys: Keyspace = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    is_paused: bool = False

    @property
    def name(self) -> str:
        return f"{self.generation}, {self.act}, {self.number}"

    @property
    def is_bull(self) -> bool:
        return not self.generation.startswith("bullmq")

    @property
    def major(self) -> int:
        return int(self.generation[-1])

    @property
    def case(self) -> Case:
        return Case(self.generation, f"{self.act}-{self.number}", self.keys, {}, (), None, "")

    @property
    def flavour(self) -> LibraryVersion:
        known = Case("bull4" if self.is_bull else "bullmq6", "", {}, {}, (), None, "").flavour
        return known._replace(major=self.major, version="" if self.is_bull else VERSIONS[self.generation])

    def seen(self, id: str) -> ExpectedJob:
        place = self.facts[id]["place"]
        return replace(self.case.seen(id), state=self._state(place))

    def _state(self, place: str) -> JobState:
        if place == "prioritized" and not self.is_bull and self.major >= 4:
            return JobState.PRIORITIZED
        if place in ("waiting", "prioritized"):
            is_renamed = self.is_paused and (self.is_bull or self.major < 6)
            return JobState.PAUSED if is_renamed else JobState.WAITING
        return JobState(place)


def make(generation: str, act: str, number: int) -> World:
    return _Maker(World(generation, act, number)).made()


class _Maker:
    """One throw of the dice after the other, always in the same order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = random.Random(f"{world.generation} {world.act} {world.number}")
        self.last = 0
        self.counts_of_priority = 0

    def made(self) -> World:
        world, dice = self.world, self.dice
        world.is_paused = world.act == "resume" or (world.act != "pause" and dice.random() < 0.25)
        self._queue()
        for place in ("waiting", "prioritized", "delayed", "failed", "completed", "active"):
            for _ in range(dice.randint(0, 3)):
                self._job(place)
        self._targets()
        if not world.is_bull:
            self._markers()
            self._families()
        self._put("id", "string", str(self.last))
        return world

    # -- the queue

    def _queue(self) -> None:
        world, dice = self.world, self.dice
        meta: dict[str, str] = {"paused": "1"} if world.is_paused else {}
        if world.is_bull:
            if world.is_paused:
                self._put("meta-paused", "string", "1")
        else:
            meta |= {"opts.maxLenEvents": "10000", "version": f"bullmq:{VERSIONS[world.generation]}"}
            if world.major >= 5 and dice.random() < 0.3:
                meta["concurrency"] = str(dice.randint(1, 3))
            self._put("events", "stream", [["event", "added", "jobId", "1", "name", "j"]])
            if world.major == 6 and world.act == "resume" and dice.random() < 0.4:
                self._put("paused", "list", [self._place_of_old() for _ in range(dice.randint(1, 3))])
        if meta:
            self._put("meta", "hash", meta)

    def _targets(self) -> None:
        world, dice = self.world, self.dice
        places = {
            "recover": ("active",),
            "retry": ("failed",) if world.is_bull else ("failed", "completed"),
            "promote": ("delayed",),
            "remove": ("waiting", "prioritized", "delayed", "failed", "completed", "active"),
        }.get(world.act)
        if places is None:
            return
        place = dice.choice(places)
        while not (fit := [id for id, facts in world.facts.items() if facts["place"] == place and not facts["locked"]]):
            self._job(place)
        if world.act == "recover":
            active = [id for id, facts in world.facts.items() if facts["place"] == "active"]
            self._put("stalled", "set", [id for id in active if id in fit or dice.random() < 0.5])
            world.targets = fit
        else:
            world.targets = [dice.choice(fit)]

    def _markers(self) -> None:
        """From 5 on a sorted set tells workers that there is work; before that an entry in `wait` does."""
        world, dice = self.world, self.dice
        wait = world.keys.get(f"{BASE}:{self._waiting_list()}")
        due = f"{NOW + 60_000}"
        if world.major >= 5:
            members = ["0", "0"] if dice.random() < 0.5 else []
            members += ["1", due] if dice.random() < 0.5 else []
            if members and not world.is_paused:
                self._put("marker", "zset", members)
        elif wait is None and not world.is_paused:
            if world.major == 4 and f"{BASE}:prioritized" in world.keys:
                self._put("wait", "list", ["0:0"])
            elif f"{BASE}:delayed" in world.keys:
                self._put("wait", "list", [f"0:{due}"])

    # -- jobs

    def _job(self, place: str) -> str:
        world, dice = self.world, self.dice
        self.last += 1
        id = f"order-{self.last}" if dice.random() < 0.15 else str(self.last)
        facts = self._facts(place)
        world.facts[id] = facts
        self._put(id, "hash", self._hash(id, facts))
        getattr(self, f"_place_{place}", lambda id, facts: self._into_zset(place, id))(id, facts)
        if dice.random() < 0.25:
            self._put(f"{id}:logs", "list", ["a line", "another"])
        if facts["dedup"]:
            self._keep_doubles_away(id, facts["dedup"])
        if world.is_bull and place == "delayed" and dice.random() < 0.3:
            self._limit(id)
        return id

    def _keep_doubles_away(self, id: str, name: str) -> None:
        """With or without an end; and from 5.72 on perhaps with the job that is to be made when this one is done."""
        entry = self._put(f"de:{name}", "string", id)
        if self.dice.random() < 0.4:
            entry["ttl"] = True
        elif not self.world.is_bull and self.dice.random() < 0.4:
            self._put(f"dn:{name}", "hash", {"name": "next", "data": "{}", "opts": '{"attempts":0}'})

    def _limit(self, id: str) -> None:
        """Delayed by the rate limiter, which keeps books of it."""
        limited = f"{BASE}:limiter:limited"
        self.world.keys.setdefault(limited, {"t": "set", "v": []})["v"].append(id)
        self.world.keys.setdefault(f"{BASE}:limiter:index", {"t": "hash", "v": {}})["v"][id] = limited

    def _facts(self, place: str) -> dict[str, Any]:
        world, dice = self.world, self.dice
        knows_doubles = world.generation in ("bull4", "bullmq5", "bullmq6")
        may_have_priority = place in ("delayed", "failed", "completed", "active")
        priority = dice.randint(1, 5) if place == "prioritized" or (may_have_priority and dice.random() < 0.4) else 0
        return {
            "place": place,
            "priority": priority,
            "lifo": dice.random() < 0.2 and not priority,
            "kept": dice.choice(_FAILURES_KEPT),
            "stalls": dice.choice((0, 0, 1, 1, 2)) if place == "active" else dice.choice((0, 0, 0, 1)),
            "attempts": dice.choice((0, 0, 1, 2)),
            "locked": place == "active" and dice.random() < 0.25,
            "dedup": f"d{self.last}" if knows_doubles and dice.random() < 0.25 else "",
            "scheduler": "nightly" if world.major >= 5 and not world.is_bull and dice.random() < 0.1 else "",
            "was_started": place in ("active", "failed", "completed")
            and not (place == "active" and dice.random() < 0.1),
        }

    def _hash(self, id: str, facts: dict[str, Any]) -> dict[str, str]:
        world, place = self.world, facts["place"]
        added = NOW - 600_000 + self.last
        delay = 60_000 if place == "delayed" else 0
        options: dict[str, Any] = {"attempts": 1 if world.is_bull else 0, "delay": delay}
        options |= {"timestamp": added} if world.is_bull else {}
        options |= {"priority": facts["priority"]} if facts["priority"] else {}
        options |= {"lifo": True} if facts["lifo"] else {}
        options |= {"removeOnFail": facts["kept"]} if facts["kept"] is not None else {}
        fields: dict[str, Any] = {"name": "send", "data": '{"to":"me"}', "opts": json.dumps(options)}
        fields |= {"timestamp": added, "delay": delay, "priority": facts["priority"]}
        made, stalls = ("atm", "stc") if world.major >= 5 and not world.is_bull else ("attemptsMade", "stalledCounter")
        fields |= {made: facts["attempts"]} if facts["attempts"] else {}
        fields |= {stalls: facts["stalls"]} if facts["stalls"] else {}
        if made == "atm" and facts["was_started"]:
            fields["ats"] = facts["attempts"] + 1
        fields |= {"deid": facts["dedup"]} if facts["dedup"] else {}
        fields |= {"rjk": facts["scheduler"]} if facts["scheduler"] else {}
        if facts["scheduler"]:
            self._put("repeat", "zset", ["nightly", str(NOW + 86_400_000)])
            self._put("repeat:nightly", "hash", {"name": "send", "every": "86400000", "ic": "3"})
        if facts["was_started"]:
            fields["processedOn"] = added + 1000
        if place == "failed":
            fields |= {"finishedOn": added + 2000, "failedReason": "no such host", "stacktrace": '["Error"]'}
        if place == "completed":
            fields |= {"finishedOn": added + 2000, "returnvalue": '"ok"'}
        return {name: str(value) for name, value in fields.items()}

    def _place_of_old(self) -> str:
        """A job that a worker of 5 left in `paused`."""
        self.last += 1
        id = str(self.last)
        facts = self._facts("waiting")
        self.world.facts[id] = facts
        self._put(id, "hash", self._hash(id, facts))
        return id

    def _place_waiting(self, id: str, facts: dict[str, Any]) -> None:
        self._list(self._waiting_list()).insert(0, id)

    def _place_prioritized(self, id: str, facts: dict[str, Any]) -> None:
        """Up to BullMQ 3 they stand in the list, the most urgent at its tail."""
        priority = facts["priority"]
        if not self.world.is_bull and self.world.major >= 4:
            self.counts_of_priority += 1
            self._zset("prioritized").extend((id, str(priority * 2**32 + self.counts_of_priority)))
            self._put("pc", "string", str(self.counts_of_priority))
            return
        ids, facts_of = self._list(self._waiting_list()), self.world.facts
        ahead = [one for one in ids if 0 < facts_of[one]["priority"] <= priority]
        ids.insert(len(ids) - len(ahead), id)
        self._zset("priority").extend((id, str(priority)))

    def _place_active(self, id: str, facts: dict[str, Any]) -> None:
        self._list("active").insert(0, id)
        if facts["locked"]:
            self._put(f"{id}:lock", "string", "a-token:1")["ttl"] = True
        if facts["priority"] and not facts["was_started"] and (self.world.is_bull or self.world.major == 3):
            # Its worker died between BRPOPLPUSH and the lock: it kept its entry.
            self._zset("priority").extend((id, str(facts["priority"])))

    def _into_zset(self, place: str, id: str) -> None:
        at = NOW - 600_000 + self.last + 2000
        score = (NOW + 60_000 + self.last) * 4096 if place == "delayed" else at
        self._zset(_NAMES[place]).extend((id, str(score)))

    # -- families

    def _families(self) -> None:
        world, dice = self.world, self.dice
        for id in world.targets:
            if world.act in ("retry", "remove") and dice.random() < 0.4:
                self._give_parent(id)
        if world.act == "remove" and dice.random() < 0.3:
            self._give_children(world.targets[0])

    def _give_parent(self, id: str) -> None:
        """A parent in another queue that waits for this child, and perhaps for one more."""
        world, dice = self.world, self.dice
        facts, key, parent = world.facts[id], f"{BASE}:{id}", f"{PARENT_QUEUE}:p-{id}"
        option = dice.choice((None, *_FAMILY_OPTIONS[min(world.major, 5)]))
        about: dict[str, Any] = {"id": f"p-{id}", "queueKey": PARENT_QUEUE} | ({option: True} if option else {})
        world.keys[key]["v"] |= {"parentKey": parent, "parent": json.dumps(about)}
        body = {
            "name": "whole",
            "data": "{}",
            "opts": '{"attempts":0}',
            "timestamp": str(NOW),
            "delay": "0",
            "priority": "0",
        }
        world.keys[parent] = {"t": "hash", "v": body}
        meta = {"opts.maxLenEvents": "10000", "version": f"bullmq:{VERSIONS[world.generation]}"}
        meta |= {"paused": "1"} if dice.random() < 0.3 else {}
        world.keys[f"{PARENT_QUEUE}:meta"] = {"t": "hash", "v": meta}
        world.keys[f"{PARENT_QUEUE}:waiting-children"] = {"t": "zset", "v": [f"p-{id}", str(NOW)]}
        pending = [f"{BASE}:another"] if dice.random() < 0.5 else []
        if facts["place"] == "completed":
            world.keys[f"{parent}:processed"] = {"t": "hash", "v": {key: '"ok"'}}
        elif facts["place"] == "failed" and option in ("idof", "cpof"):
            world.keys[f"{parent}:failed"] = {"t": "hash", "v": {key: "no such host"}}
        elif facts["place"] == "failed" and option == "fpof" and world.major >= 5:
            world.keys[f"{parent}:unsuccessful"] = {"t": "zset", "v": [key, str(NOW)]}
        else:
            pending.append(key)
        if pending:
            world.keys[f"{parent}:dependencies"] = {"t": "set", "v": pending}

    def _give_children(self, id: str) -> None:
        """Children of its own: one that waits, one that is done."""
        key = f"{BASE}:{id}"
        for place, suffix in (("waiting", "dependencies"), ("completed", "processed")):
            if self.dice.random() < 0.6:
                child = self._job(place)
                about = {"id": id, "queueKey": BASE}
                self.world.keys[f"{BASE}:{child}"]["v"] |= {"parentKey": key, "parent": json.dumps(about)}
                named = f"{BASE}:{child}"
                entry = {"t": "set", "v": [named]} if suffix == "dependencies" else {"t": "hash", "v": {named: '"ok"'}}
                self.world.keys[f"{key}:{suffix}"] = entry

    # -- keys

    def _waiting_list(self) -> str:
        is_renamed = self.world.is_paused and (self.world.is_bull or self.world.major < 6)
        return "paused" if is_renamed else "wait"

    def _list(self, name: str) -> list[str]:
        return self.world.keys.setdefault(f"{BASE}:{name}", {"t": "list", "v": []})["v"]  # type: ignore[no-any-return] # a list

    def _zset(self, name: str) -> list[str]:
        return self.world.keys.setdefault(f"{BASE}:{name}", {"t": "zset", "v": []})["v"]  # type: ignore[no-any-return] # a list

    def _put(self, name: str, kind: str, value: Any) -> dict[str, Any]:
        entry: dict[str, Any] = {"t": kind, "v": value}
        self.world.keys[f"{BASE}:{name}"] = entry
        return entry
