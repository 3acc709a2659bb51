"""Names of all keys in the state store: one function or constant for each; no other module makes names."""

from __future__ import annotations

from recovery.domain.identifiers import QueueRef, decode_name, encode_name, slug, unslug

SNAPSHOT = b"unstall:snapshot"  # string: the newest snapshot, encoded
SNAPSHOT_CHANNEL = b"unstall:snapshot:new"  # channel: the number of each snapshot, once it is there
SCHEDULER = b"unstall:scheduler"  # string with a TTL: which scheduler leads, or reads while none can lead
CLOCK = b"unstall:clock"  # string: ms by which the leader's time is ahead of this store's clock
SCANNERS = b"unstall:scanners"  # hash: scanner → its last run, and when one last succeeded
SCANNER_HOLDS = (
    b"unstall:held"  # string with a TTL: the deployments where auto-recovery is paused, so that open pages show it
)
REFUSED = b"unstall:refused"  # hash: deployment and prefix → why the store lets its user change nothing there
INBOX = b"unstall:inbox"  # string: the stuck jobs that the last pass over all active jobs found, encoded
N8N = b"unstall:n8n"  # string: comparison of each n8n's jobs and executions at the last pass, encoded
SERVERS = b"worker-monitor:servers"  # sorted set: every server that reported, by when it last did
MONITORS = b"worker-monitor:"  # in front of the keys of each server: `worker-monitor:<server>:…`
NODES = b"unstall:nodes"  # hash with a TTL: source (exporters, Prometheus) → servers that it cannot read, and why
GATES = b"unstall:gates"  # hash: server → its gate, as the leader works it out
TOTALS = b"unstall:totals"  # hash: queue → how many of its jobs were ever seen to complete and to fail
TALLIES = b"unstall:tallies"  # string: counters from the database, for the metrics endpoint
OUTLETS = b"unstall:alerts:outlets"  # hash: channel of alerts → its last success and failure
NO_LEADER_NOTIFIER = b"unstall:alerts:teller"  # string with a TTL: the web process that alerts when there is no leader
SHIPPING = b"worker-monitor:logs"  # sorted set: every server whose monitor ships log lines, by when it last did
DRILLS = b"unstall:drills"  # string with a TTL: the libraries with which the leader can run a fire drill
PROBE = b"unstall:probe"  # string for a moment, to test whether the store takes writes
UNDO_ENTRIES = b"unstall:kept"  # sorted set: numbers of the audit's entries whose removed jobs are kept, by when
UNDO_SIZES = b"unstall:kept:sizes"  # hash: number of the entry → bytes kept of it
N8N_INSTANCES = b"unstall:n8n:instances"  # string with a TTL: the processes of each n8n by its registry, encoded
N8N_ALONE = b"unstall:n8n:alone"  # hash with a TTL: an execution of n8n → since when it has been seen without a job
# Named as by the first version: claims that an installation has must stay theirs, or work would be done twice.
IDEMPOTENCY_RECORDS = b"unstall:once:records"  # hash: key of the work → its claim, packed (domain/idempotency.py)
IDEMPOTENCY_RESULTS = b"unstall:once:results"  # hash: key of the work → its result, JSON
IDEMPOTENCY_ENDS = b"unstall:once:ends"  # sorted set: keys, by when they are forgotten
IDEMPOTENCY_HELD = b"unstall:once:held"  # sorted set: claimed keys that are not completed, by when the claim expires
IDEMPOTENCY_NEWEST = b"unstall:once:newest"  # sorted set: keys, by when they were claimed or completed
IDEMPOTENCY_COUNTS = b"unstall:once:counts"  # hash: the last token, bytes of results, and steps by outcome
IDEMPOTENCY_SHARES = b"unstall:once:shares"  # hash: name of a machine token → how many keys it has claimed or completed

_COLON = "~3A"
_FOUND = b"unstall:found:"
_HISTORY = b"unstall:history:"
_SIGHTINGS = b"unstall:sightings:"
_WATCHED = b"unstall:watched:"

# Patterns of the keys that belong to one deployment each, for `deployment_of`.
OF_DEPLOYMENTS = (_FOUND + b"*", _HISTORY + b"*", _SIGHTINGS + b"*", _WATCHED + b"*")


def discovered_queues(deployment: str) -> bytes:
    """Hash: base → what is known of the queue, for every queue that was discovered."""
    return _FOUND + encode_name(deployment)


def history(ref: QueueRef, resolution: str) -> bytes:
    """String used as a ring of fixed cells: what finished in each period of this resolution."""
    return _HISTORY + encode_name(f"{resolution}:{ref}")


def undo_copies(number: int) -> bytes:
    """Hash with a TTL: job id → copy of a job that this audit entry's action removed, so that it can be restored."""
    return b"unstall:kept:%d" % number


def sightings(ref: QueueRef) -> bytes:
    """Hash: job id → since when it has been seen in its present state, for every job that is not simply locked."""
    return _SIGHTINGS + encode_name(str(ref))


def watch_memory(deployment: str) -> bytes:
    """Hash: base → what the orphan watch keeps of the queue between passes; "" → of the deployment itself."""
    return _WATCHED + encode_name(deployment)


def last_answered(deployment: str) -> bytes:
    """String whose TTL tells when the deployment last answered a process that read from it."""
    return b"unstall:answered:" + encode_name(deployment)


def silence_before(deployment: str) -> bytes:
    """String with a TTL: for how long the deployment had not answered before, in ms."""
    return b"unstall:silent:" + encode_name(deployment)


def server_prefix(server: str) -> bytes:
    """Returns the prefix of all keys that a server's monitor writes, so that one ACL pattern covers no others.

    A colon in the name is escaped: no server's prefix begins another's.
    """
    return MONITORS + encode_name(slug(server).replace(":", _COLON)) + b":"


def server_of(key: bytes, last: bytes) -> str | None:
    """Returns the server whose key this is, when it ends like this; None for any other key."""
    name, colon, rest = key.removeprefix(MONITORS).partition(b":")
    if not key.startswith(MONITORS) or not colon or rest != last:
        return None
    try:
        return unslug(decode_name(name).replace(_COLON, ":"))
    except ValueError:
        return None


def server_metrics(server: str) -> bytes:
    """Hash with a TTL: what the monitor of this server measured last."""
    return server_prefix(server) + b"metrics"


def server_history(server: str, resolution: str) -> bytes:
    """String used as a ring of fixed cells: what was measured in each period of this resolution."""
    return server_prefix(server) + b"history:" + encode_name(resolution)


def logs(server: str) -> bytes:
    """Capped stream: the log lines of this server, many to an entry (domain/logs/line_batches.py)."""
    return server_prefix(server) + b"logs"


def log_labels(server: str) -> bytes:
    """Hash: a set of labels as JSON → when (ms) lines with it last came."""
    return server_prefix(server) + b"log-labels"


def log_offsets(server: str) -> bytes:
    """Hash: file, container or journal → how far it is shipped, written together with the lines."""
    return server_prefix(server) + b"log-offsets"


def gate_settling(server: str) -> bytes:
    """String with a TTL: one of several web processes admitted a heavy job a moment ago."""
    return b"unstall:gate:settling:" + encode_name(server)


def gate_decisions(server: str) -> bytes:
    """Stream with a TTL: requests to the server's gate, and its answers."""
    return b"unstall:gate:decisions:" + encode_name(server)


def deployment_of(key: bytes) -> str:
    """Returns the deployment that a key of `OF_DEPLOYMENTS` belongs to. Its name has neither : nor /."""
    for whole in (_FOUND, _WATCHED):
        if key.startswith(whole):
            return decode_name(key.removeprefix(whole))
    if key.startswith(_SIGHTINGS):
        return decode_name(key.removeprefix(_SIGHTINGS).partition(b"/")[0])
    _, _, ref = key.removeprefix(_HISTORY).partition(b":")
    return decode_name(ref.partition(b"/")[0])
