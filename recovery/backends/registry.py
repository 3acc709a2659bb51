"""Readers and operators of what the libraries keep in Redis and of job tables, behind one contract each (`base.py`)."""

from __future__ import annotations

from recovery.backends.base import QueueOperator, QueueReader
from recovery.backends.bull.operator import BullOperator
from recovery.backends.bull.reader import BullReader
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.backends.bullmq.reader import BullMQReader
from recovery.backends.bullmq.versions import MARKER_KEY
from recovery.backends.job_tables.operator import TableOperator
from recovery.backends.job_tables.reader import TableReader
from recovery.domain.queues.types import LibraryVersion, QueueLibrary

_BULL = BullReader()
_MARKED = BullMQReader(may_have_markers=True)
_BULLMQ = BullMQReader(may_have_markers=False)
_TABLE = TableReader()
_BULL_OPERATOR = BullOperator()
_BULLMQ_OPERATOR = BullMQOperator()
_TABLE_OPERATOR = TableOperator()


def reader(flavour: LibraryVersion) -> QueueReader:
    """Returns the reader that knows this flavour's keys; for an unknown one, the reader that knows most of them.

    Where several generations may be at work, it is the one that takes care of the oldest.
    """
    if flavour.library is QueueLibrary.BULL:
        return _BULL
    if flavour.library is QueueLibrary.TABLE:
        return _TABLE
    is_new = flavour.major is not None and flavour.major >= MARKER_KEY and not flavour.mixed
    return _BULLMQ if is_new else _MARKED


def operator(flavour: LibraryVersion) -> QueueOperator:
    """Returns the operator of this flavour; its `refusals` say what it cannot do: for an unknown one, everything."""
    if flavour.library is QueueLibrary.TABLE:
        return _TABLE_OPERATOR
    return _BULL_OPERATOR if flavour.library is QueueLibrary.BULL else _BULLMQ_OPERATOR
