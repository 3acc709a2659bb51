"""Defines the database tables of the engine: audit, incidents, runs, policies, safety limits, and the leader lease.

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
    """End of the audit's hash chain, in one row that every append locks first, so that two cannot append at once."""

    number = models.BigIntegerField(default=0)
    hash = models.CharField(max_length=64, default="")
    marked = models.BigIntegerField(default=0)  # number of the last entry that needs no seal (reads/audit/seals.py)
    mark = models.CharField(max_length=80, default="")  # signature of that number and that entry's hash


class AuditEntry(models.Model):
    """Entry of the audit. Written once, never changed. `intent` of an outcome is the number of its intent."""

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
    """Index of the jobs of an intent, by which the job's page finds it. The bodies of the entries are authoritative.

    Rows here must follow from them: reads/audit/job_index.py computes the rows again and compares.

    An action on the queue itself has one row, whose job is `job_key("")`.
    """

    entry = models.ForeignKey(AuditEntry, on_delete=models.CASCADE, related_name="jobs")
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)
    outcome = models.CharField(max_length=16)  # "" until the outcome is written

    class Meta:
        indexes: ClassVar = [models.Index(fields=["deployment", "base", "job"], name="audit_job")]


class Incident(models.Model):
    """Orphaned job from its detection to its resolution; the time between is the measured time to recovery."""

    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)
    name = models.TextField(default="")
    kind = models.CharField(max_length=16)  # the gravest verdict it had
    cause = models.CharField(max_length=32, default="")
    evidence = models.TextField(default="")
    holder = models.CharField(max_length=300, default="")
    server = models.CharField(max_length=_SERVER, default="")  # of its holder, else its host; a slug, "": not known
    opened_at = models.BigIntegerField()  # first seen without a lock, or with the lock of a lost worker
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
    """An action on many jobs, done by the scheduler in chunks: it survives the page, the request and a restart."""

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
    selection = models.TextField(default="{}")  # JSON: the state of the jobs, up to when, and a filter
    cursor = models.TextField(default="")  # while gathering: how far it got
    trouble = models.TextField(default="")  # why it waits or failed
    total = models.IntegerField(default=0)
    done = models.IntegerField(default=0)
    refused = models.IntegerField(default=0)
    missing = models.IntegerField(default=0)
    unchanged = models.IntegerField(default=0)
    unknown = models.IntegerField(default=0)
    beat_at = models.BigIntegerField(null=True)  # last heartbeat of the scheduler that runs it

    class Meta:
        indexes: ClassVar = [models.Index(fields=["status"], name="bulk_status")]


class BulkItem(models.Model):
    """Job of a bulk run, as it was when the run was requested, and its result."""

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
    """Leader lease of the schedulers, in one row. Its times are of the database's clock, which all of them share."""

    holder = models.CharField(max_length=300)  # a Holder of recovery/scheduler/lease_holder.py, as text
    epoch = models.BigIntegerField()  # rises with each change of holder, and never falls
    since = models.BigIntegerField()
    expires_at = models.BigIntegerField()
    # Id of this installation among others that watch the same Redis; the first leader sets it.
    installation = models.CharField(max_length=32, db_default="")


class PolicyLayer(models.Model):
    """Policy that a user wrote on the page: for one queue, one deployment, or all ("")."""

    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    written = models.TextField()  # JSON, in the words of domain/policies/parser.py
    by = models.CharField(max_length=200)
    at = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["deployment", "base"], name="policy_one_each")]


class BrakeState(models.Model):
    """State of a safety limit, as JSON. A change names the version that was read, so that no update is lost."""

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
    """Recorded run of a scanner: requested, changing something, failed, or of a scanner that runs rarely."""

    scanner = models.CharField(max_length=32)
    status = models.CharField(max_length=10, default="waiting")  # waiting, running, ended, failed
    dry_run = models.BooleanField(default=False)  # requested as a dry run, whatever the policies say
    deployment = models.CharField(max_length=_NAME, default="")  # only there; "": everywhere
    base = models.CharField(max_length=_BASE, default="")
    actor = models.TextField(default="")  # JSON of acting.Actor: who requested it; "": scheduled
    reason = models.TextField(default="")
    epoch = models.BigIntegerField(null=True)
    wanted_at = models.BigIntegerField()
    started_at = models.BigIntegerField(null=True)
    ended_at = models.BigIntegerField(null=True)
    looked = models.IntegerField(default=0)
    found = models.IntegerField(default=0)
    acted = models.IntegerField(default=0)
    refused = models.IntegerField(default=0)
    holds = models.TextField(default="[]")  # JSON: the sentences of the safety limits that stopped it
    trouble = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["scanner", "id"], name="scan_scanner"),
            models.Index(fields=["status"], name="scan_status"),
            models.Index(fields=["wanted_at"], name="scan_wanted"),
        ]


class ScanFind(models.Model):
    """Job that a run found, and what the run did to it."""

    run = models.ForeignKey(ScanRun, on_delete=models.CASCADE, related_name="finds")
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)  # job_key; that of "" for the queue itself
    what = models.TextField()
    act = models.CharField(max_length=32, default="")  # "": it was only checked
    outcome = models.CharField(max_length=16, default="")
    why = models.TextField(default="")
    policy = models.TextField(default="")  # which policy allowed it, or what stopped it
    audit = models.BigIntegerField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["run", "id"], name="find_run")]


class ScannerPause(models.Model):
    """A paused scanner: it does not run until a user resumes it."""

    scanner = models.CharField(max_length=32, primary_key=True)
    by = models.CharField(max_length=200)
    at = models.BigIntegerField()
    reason = models.TextField(default="")


class HookCall(models.Model):
    """Call of a recovery hook that is due, or failed and is retried; completed ones are deleted."""

    hook = models.CharField(max_length=_NAME)
    event = models.CharField(max_length=16)  # lost, recovered
    deployment = models.CharField(max_length=_NAME)
    base = models.CharField(max_length=_BASE)
    job = models.CharField(max_length=_JOB)
    told = models.TextField(default="{}")  # JSON: what the hook gets besides these
    at = models.BigIntegerField()
    due_at = models.BigIntegerField()
    tries = models.IntegerField(default=0)
    trouble = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["due_at"], name="hook_due")]


class GateFlip(models.Model):
    """Change of a gate's state. The leader writes it; the CPU chart shows it."""

    server = models.CharField(max_length=_SERVER)  # as a slug
    at = models.BigIntegerField()
    state = models.CharField(max_length=10)  # open, closed, unknown
    cpu = models.FloatField(null=True)  # the CPU that decided
    why = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["server", "at"], name="flip_server"),
            models.Index(fields=["at"], name="flip_at"),
        ]


class Alert(models.Model):
    """Alert, from its start until it is resolved and the channels were notified of that too."""

    kind = models.CharField(max_length=32)
    key = models.CharField(max_length=300)  # what it is about: one alert each at a time
    words = models.TextField()
    link = models.TextField(default="")  # a page of ours
    size = models.IntegerField(default=1)  # how many jobs it is about
    since = models.BigIntegerField()
    seen_at = models.BigIntegerField()
    resolved_at = models.BigIntegerField(null=True)
    is_settled = models.BooleanField(default=False)  # resolved, and every notified channel knows it
    deliveries = models.TextField(default="{}")  # JSON: channel → its last notification, and whether one is being sent

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "key"], condition=Q(resolved_at=None), name="alert_one_open")
        ]
        indexes: ClassVar = [
            models.Index(fields=["is_settled", "since"], name="alert_unsettled"),
            models.Index(fields=["resolved_at"], name="alert_resolved"),
        ]


class DrillRun(models.Model):
    """A fire drill that an admin started on the page; the scheduler runs it. Only the newest are kept."""

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
    rounds = models.TextField(default="[]")  # JSON of the completed rounds
    under_way = models.TextField(default="[]")  # JSON: events so far of the running round
    cleaned = models.IntegerField(null=True)  # keys that were deleted
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
    claimed_at = models.BigIntegerField(null=True)  # a rescue has begun: no second one may begin
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
    """Data with which a lost execution can run again, encrypted; in its own table, so that no list reads it."""

    loss = models.OneToOneField(LostExecution, on_delete=models.CASCADE, related_name="copy")
    at = models.BigIntegerField()
    size = models.BigIntegerField()  # bytes of the data as n8n keeps it
    stored = models.BigIntegerField()  # bytes here
    data = models.BinaryField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["at"], name="copy_at")]
