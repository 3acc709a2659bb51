"""Lists the queues, finds the orphan of one and requeues it twice, with the client that was generated for Python.

`python requeue.py URL QUEUE`, with the token in TOKEN; prints the two outcomes.
"""

from __future__ import annotations

import os
import sys

from unstall_client import AuthenticatedClient
from unstall_client.api.actions import actions_act
from unstall_client.api.orphans import orphans_orphans
from unstall_client.api.queues import queues_queues
from unstall_client.models import Act, ActionOrder, ActionResults, JobWish, Kind, OrphanPage, QueuePage, Seen

url, name = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=os.environ["TOKEN"])

queues = queues_queues.sync(client=client)
assert isinstance(queues, QueuePage)
assert name in [f"{queue.deployment}/{queue.id}" for queue in queues.queues]

found = orphans_orphans.sync(client=client, queue=name, verdict=Kind.ABANDONED)
assert isinstance(found, OrphanPage)
(orphan,) = found.orphans
assert isinstance(orphan.seen, Seen)

order = ActionOrder(
    act=Act.REQUEUE, queue=name, jobs=[JobWish(id=orphan.id, seen=orphan.seen)], reason="its worker died"
)
for _ in range(2):
    done = actions_act.sync(client=client, body=order)
    assert isinstance(done, ActionResults)
    print(done.results[0].outcome.value)
