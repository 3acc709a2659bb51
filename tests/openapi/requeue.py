"""Lists the queues, finds the orphan of one and requeues it twice, with the client that was generated for Python.

`python requeue.py URL QUEUE`, with the token in TOKEN; prints the two outcomes.
"""

from __future__ import annotations

import os
import sys

from unstall_client import AuthenticatedClient
from unstall_client.api.actions import actions_act
from unstall_client.api.orphans import stuck_orphans
from unstall_client.api.queues import queues_queues
from unstall_client.models import (
    Action,
    ActionJob,
    ActionOrder,
    ActionResults,
    JobPrecondition,
    OrphanPage,
    QueuePage,
    VerdictKind,
)

url, name = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=os.environ["TOKEN"])

queues = queues_queues.sync(client=client)
assert isinstance(queues, QueuePage)
assert name in [f"{queue.deployment}/{queue.id}" for queue in queues.queues]

found = stuck_orphans.sync(client=client, queue=name, verdict=VerdictKind.ABANDONED)
assert isinstance(found, OrphanPage)
(orphan,) = found.orphans
assert isinstance(orphan.seen, JobPrecondition)

order = ActionOrder(
    act=Action.REQUEUE, queue=name, jobs=[ActionJob(id=orphan.id, seen=orphan.seen)], reason="its worker died"
)
for _ in range(2):
    done = actions_act.sync(client=client, body=order)
    assert isinstance(done, ActionResults)
    print(done.results[0].outcome.value)
