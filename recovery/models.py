"""What the engine remembers in the database: audit, incidents, runs, policies, brakes, and who leads.

Names from Redis may hold any bytes, which no database takes as text: columns named `base` and `job` hold them as
`refs.slug` writes them. Times are milliseconds since 1970, as everywhere in the engine.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

_NAME = 64
_BASE = 1024  # a slug is up to three times as long as the name
_JOB = 2048
_SERVER = 384  # a slug too: an id has at most 128 characters


class AuditHead(models.Model):
    """The end of the chain, one row: whoever appends takes it first, so that two cannot append at once."""

    number = models.BigIntegerField(default=0)
    hash = models.CharField(max_length=64, default="")
    marked = models.BigIntegerField(default=0)  # number of the last entry that needs no seal (reads/seals.py)
    mark = models.CharField(max_length=80, default="")  # signature of that number and that entry's hash


class AuditEntry(models.Model):
    """One link of the chain. Written once, never changed. `intent` of an outcome is the number of its intent."""

    number = models.BigIntegerField(primary_key=True)
    at = models.BigIntegerField()
    phase = models.CharField(max_length=8)  # intent, outcome, note
    intent = models.BigIntegerField(null=True)
    actor_kind = models.CharField(max_length=16)
    actor = models.CharField(max_length=200)
    role = models.CharField(max_length=16)
    address = models.CharField(max_length=64)
    act = models.CharField(max_length=32)
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    reason = models.TextField()
    body = models.TextField()  # canonical JSON: options, jobs, before and after; what the hash covers, as it is
    previous = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    seal = models.CharField(max_length=80, default="")  # signature of number and hash; "" up to the mark of the head

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["at"], name="audit_at"),
            models.Index(fields=["intent"], name="audit_intent"),
            models.Index(fields=["deployment", "base", "number"], name="audit_queue"),
            models.Index(fields=["actor", "number"], name="audit_actor"),
        ]

    def __str__(self) -> str:
        return f"#{self.number} {self.act} ({self.phase})"


class AuditJob(models.Model):
    """Which jobs an intent is about, to find it from the job's page. The entries' bodies are the truth.

    What is written here must follow from them: reads/audit_index.py makes the rows anew and compares.

    An act on the queue itself has one row, whose job is `job_key("")`.
    """

    entry = models.ForeignKey(AuditEntry, on_delete=models.CASCADE, related_name="jobs")
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)
    outcome = models.CharField(max_length=16)  # "" until the outcome is written

    class Meta:
        indexes: ClassVar = [models.Index(fields=["deployment", "base", "job"], name="audit_job")]


class Incident(models.Model):
    """One orphan from first sight to resolution; its length is the measured time to recovery."""

    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)
    name = models.TextField(default="")
    kind = models.CharField(max_length=16)  # the gravest verdict it had
    cause = models.CharField(max_length=32, default="")
    evidence = models.TextField(default="")
    holder = models.CharField(max_length=300, default="")
    server = models.CharField(max_length=_SERVER, default="")  # of its holder, else its host; a slug, "": not known
    opened_at = models.BigIntegerField()  # first seen without a lock, or with a lock that nobody holds
    proven_at = models.BigIntegerField(null=True)
    closed_at = models.BigIntegerField(null=True)
    resolved_by = models.CharField(max_length=16, default="")  # stalled-check, operator, scanner, worker, removed
    audit = models.BigIntegerField(null=True)  # number of the entry that resolved it

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["deployment", "base", "job"], condition=Q(closed_at=None), name="incident_one_open"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["closed_at"], name="incident_closed"),
            models.Index(fields=["deployment", "base", "job"], name="incident_job"),
        ]


class BulkRun(models.Model):
    """An act on many jobs, done by the scheduler in chunks: it survives the page, the request and a restart."""

    created_at = models.BigIntegerField()
    started_at = models.BigIntegerField(null=True)
    ended_at = models.BigIntegerField(null=True)
    status = models.CharField(max_length=10, default="waiting")  # waiting, gathering, running, stopped, ended, failed
    wants_stop = models.BooleanField(default=False)
    act = models.CharField(max_length=32)
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    actor = models.TextField()  # JSON of acting.Actor
    reason = models.TextField()
    options = models.TextField(default="{}")  # JSON of acting.Options
    selection = models.TextField(default="{}")  # JSON: the state whose jobs are meant, up to when, and a filter
    cursor = models.TextField(default="")  # while gathering: how far it came
    trouble = models.TextField(default="")  # why it holds or failed
    total = models.IntegerField(default=0)
    done = models.IntegerField(default=0)
    refused = models.IntegerField(default=0)
    missing = models.IntegerField(default=0)
    unchanged = models.IntegerField(default=0)
    unknown = models.IntegerField(default=0)
    beat_at = models.BigIntegerField(null=True)  # last sign of life of whoever runs it

    class Meta:
        indexes: ClassVar = [models.Index(fields=["status"], name="bulk_status")]


class BulkItem(models.Model):
    """One job of a bulk run, as it was seen when the run was ordered, and what came of it."""

    run = models.ForeignKey(BulkRun, on_delete=models.CASCADE, related_name="items")
    place = models.IntegerField()
    job = models.CharField(max_length=_JOB)
    seen = models.TextField()  # JSON of acting.Seen
    outcome = models.CharField(max_length=10, default="")  # "" not tried yet
    why = models.TextField(default="")
    audit = models.BigIntegerField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "place"], name="bulk_place")]
        indexes: ClassVar = [models.Index(fields=["run", "outcome", "place"], name="bulk_left")]


class Lease(models.Model):
    """Who leads the schedulers, one row. Its times are told by the database's clock, the one that all of them share."""

    holder = models.CharField(max_length=300)  # a Holder of recovery/scheduler/holder.py, as text
    epoch = models.BigIntegerField()  # rises with each change of holder, and never falls
    since = models.BigIntegerField()
    expires_at = models.BigIntegerField()
    # What this database is called among others whose consoles watch the same Redis; whoever leads first names it.
    installation = models.CharField(max_length=32, db_default="")


class PolicyLayer(models.Model):
    """What somebody wrote about the scanners on the page: for one queue, one deployment, or all ("")."""

    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    written = models.TextField()  # JSON, in the words of domain/policy_text.py
    by = models.CharField(max_length=200)
    at = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["deployment", "base"], name="policy_one_each")]


class BrakeState(models.Model):
    """What a brake remembers, as its value writes itself. Whoever changes it names the version that was read."""

    kind = models.CharField(max_length=8)  # store, budget, breaker, past, pardon
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)  # "" for a store
    # Of a past or a pardon the job_key; of a breaker a digest of its signature, "" for all errors.
    key = models.CharField(max_length=_JOB)
    state = models.TextField()  # JSON
    version = models.BigIntegerField()
    at = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "deployment", "base", "key"], name="brake_one_each")
        ]
        indexes: ClassVar = [models.Index(fields=["kind", "at"], name="brake_at")]


class ScanRun(models.Model):
    """One run of a scanner that is worth remembering: asked for, acting, failed, or of a scanner that runs seldom."""

    scanner = models.CharField(max_length=32)
    status = models.CharField(max_length=10, default="waiting")  # waiting, running, ended, failed
    observes = models.BooleanField(default=False)  # asked to look only, whatever the policies say
    deployment = models.CharField(max_length=_NAME, default="")  # only there; "": everywhere
    base = models.CharField(max_length=_BASE, default="")
    actor = models.TextField(default="")  # JSON of acting.Actor: who asked for it; "": it was due
    reason = models.TextField(default="")
    epoch = models.BigIntegerField(null=True)
    wanted_at = models.BigIntegerField()
    started_at = models.BigIntegerField(null=True)
    ended_at = models.BigIntegerField(null=True)
    looked = models.IntegerField(default=0)
    found = models.IntegerField(default=0)
    acted = models.IntegerField(default=0)
    refused = models.IntegerField(default=0)
    holds = models.TextField(default="[]")  # JSON: the sentences of the brakes that held
    trouble = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["scanner", "id"], name="scan_scanner"),
            models.Index(fields=["status"], name="scan_status"),
            models.Index(fields=["wanted_at"], name="scan_wanted"),
        ]


class ScanFind(models.Model):
    """One job that a run found, and what it did to it."""

    run = models.ForeignKey(ScanRun, on_delete=models.CASCADE, related_name="finds")
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)  # job_key; that of "" for the queue itself
    what = models.TextField()
    act = models.CharField(max_length=32, default="")  # "": it was only looked at
    outcome = models.CharField(max_length=16, default="")
    why = models.TextField(default="")
    policy = models.TextField(default="")  # which one allowed it, or what held it
    audit = models.BigIntegerField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["run", "id"], name="find_run")]


class ScannerPause(models.Model):
    """A scanner that somebody has stopped: it does not run until somebody lets it go on."""

    scanner = models.CharField(max_length=32, primary_key=True)
    by = models.CharField(max_length=200)
    at = models.BigIntegerField()
    reason = models.TextField(default="")


class HookCall(models.Model):
    """One call of a recovery hook that is due, or that failed and is tried again; done ones are deleted."""

    hook = models.CharField(max_length=_NAME)
    event = models.CharField(max_length=16)  # lost, recovered
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)
    told = models.TextField(default="{}")  # JSON: what the hook is told beside these
    at = models.BigIntegerField()
    due_at = models.BigIntegerField()
    tries = models.IntegerField(default=0)
    trouble = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["due_at"], name="hook_due")]


class GateFlip(models.Model):
    """A gate that closed or opened. Written by the leader, drawn on the CPU chart."""

    server = models.CharField(max_length=_SERVER)  # as a slug
    at = models.BigIntegerField()
    state = models.CharField(max_length=10)  # open, closed, unknown
    cpu = models.FloatField(null=True)  # what counted in that moment
    why = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["server", "at"], name="flip_server"),
            models.Index(fields=["at"], name="flip_at"),
        ]


class Alert(models.Model):
    """Something that somebody is to be told of, from when it began until it is over and that was told too."""

    kind = models.CharField(max_length=32)
    key = models.CharField(max_length=300)  # what it is about: one alert each at a time
    words = models.TextField()
    link = models.TextField(default="")  # a page of ours
    size = models.IntegerField(default=1)  # how many jobs it is about
    since = models.BigIntegerField()
    seen_at = models.BigIntegerField()
    resolved_at = models.BigIntegerField(null=True)
    is_settled = models.BooleanField(default=False)  # over, and whoever was told of it knows
    deliveries = models.TextField(default="{}")  # JSON: channel → what it was told last, and whether somebody is at it

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "key"], condition=Q(resolved_at=None), name="alert_one_open")
        ]
        indexes: ClassVar = [
            models.Index(fields=["is_settled", "since"], name="alert_unsettled"),
            models.Index(fields=["resolved_at"], name="alert_resolved"),
        ]


class DrillRun(models.Model):
    """A fire drill that somebody ordered on the page; the scheduler carries it out. The newest are kept."""

    status = models.CharField(max_length=10, default="waiting")  # waiting, running, ended, failed, stopped
    wants_stop = models.BooleanField(default=False)
    plan = models.TextField()  # JSON of domain/drills.Plan
    actor = models.TextField()  # JSON of acting.Actor
    reason = models.TextField()
    epoch = models.BigIntegerField(null=True)
    wanted_at = models.BigIntegerField()
    started_at = models.BigIntegerField(null=True)
    ended_at = models.BigIntegerField(null=True)
    version = models.CharField(max_length=40, default="")  # of the library that took part
    rounds = models.TextField(default="[]")  # JSON of those that are over
    under_way = models.TextField(default="[]")  # JSON: what happened so far in the round that is not
    cleaned = models.IntegerField(null=True)  # keys that were taken away
    trouble = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["status"], name="drill_status")]


class LostExecution(models.Model):
    """An execution of n8n whose job was seen with a late lock or without its worker; deleted when it ends well."""

    n8n = models.CharField(max_length=40)
    execution = models.CharField(max_length=20)
    started_at = models.BigIntegerField(null=True)
    workflow = models.CharField(max_length=100)
    title = models.TextField(default="")
    mode = models.CharField(max_length=40, default="")
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)
    verdict = models.CharField(max_length=16)  # the gravest that its job had
    worker = models.CharField(max_length=300, default="")  # as it is shown; "": not known
    cause = models.CharField(max_length=32, default="")
    noticed_at = models.BigIntegerField()
    proven_at = models.BigIntegerField(null=True)
    lock_ends_at = models.BigIntegerField(null=True)
    unheld_at = models.BigIntegerField(null=True)
    outcome = models.CharField(max_length=10, default="at risk")
    ended_at = models.BigIntegerField(null=True)
    claimed_at = models.BigIntegerField(null=True)  # a rescue has begun: nobody else begins one
    retried_as = models.CharField(max_length=20, default="")
    audit = models.BigIntegerField(null=True)
    copy_trouble = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["n8n", "execution", "job"], name="loss_one_each"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["n8n", "outcome", "noticed_at"], name="loss_outcome"),
            models.Index(fields=["noticed_at"], name="loss_noticed"),
        ]


class ExecutionCopy(models.Model):
    """What such an execution would need to run again, encrypted; in a table of its own, so that no list reads it."""

    loss = models.OneToOneField(LostExecution, on_delete=models.CASCADE, related_name="copy")
    at = models.BigIntegerField()
    size = models.BigIntegerField()  # bytes of the data as n8n keeps it
    stored = models.BigIntegerField()  # bytes here
    data = models.BinaryField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["at"], name="copy_at")]
