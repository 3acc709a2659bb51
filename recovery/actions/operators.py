"""Chooses the operator of a queue: its library's, guarded where the queue is n8n's, or that of n8n's executions."""

from __future__ import annotations

from recovery.backends import registry as backends_registry
from recovery.backends.base import QueueOperator
from recovery.config import Config
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.n8n.execution_operator import OWN, ExecutionOperator
from recovery.n8n.guarded_operator import GuardedOperator

_EXECUTIONS = ExecutionOperator()
_NOT_HERE = "That action is for n8n executions."


def operator(flavour: LibraryVersion) -> QueueOperator:
    """Returns the operator by the flavour alone: what it can do and how many jobs at once."""
    return _EXECUTIONS if flavour.library is QueueLibrary.N8N else backends_registry.operator(flavour)


def guard_operator(found: QueueOperator, ref: QueueRef, flavour: LibraryVersion, config: Config) -> QueueOperator:
    """Guards the operator of n8n's queue by n8n's database: no execution that has ended is failed or run again."""
    n8n = config.n8n_of(ref) if flavour.library is QueueLibrary.BULL else None
    return GuardedOperator(found, n8n) if n8n and n8n.database else found


def refusals(flavour: LibraryVersion) -> dict[Action, str]:
    """Returns the actions that cannot be done to a queue of this flavour, each with its reason. All others can."""
    if flavour.read_only:
        return dict.fromkeys(Action, flavour.read_only)
    told = dict(operator(flavour).refusals(flavour))
    return told if flavour.library is QueueLibrary.N8N else dict.fromkeys(OWN, _NOT_HERE) | told
