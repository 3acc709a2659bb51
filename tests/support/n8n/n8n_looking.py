"""Looks at a yard of n8n (n8n_yard.py) as the leader takes them, by hand and at a time of the test's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from recovery.config import load
from recovery.domain.n8n.comparison import JobExecutionPair, N8nComparison
from recovery.domain.n8n.comparison_context import REPORTED_AFTER
from recovery.domain.n8n.mismatches import MismatchKind
from recovery.domain.queues.types import Snapshot
from recovery.management import one_off_snapshot
from recovery.n8n.comparison import ComparisonRequest, compare
from recovery.stores.registry import ConnectionRegistry
from tests.support.n8n.n8n_yard import Yard
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

_DOCUMENT = Path(__file__).parents[3] / "docs" / "n8n.md"


def documented_sql() -> list[str]:
    """The blocks of SQL in docs/n8n.md: the rights for seeing, and those for repairs."""
    return [part.split("```", 1)[0] for part in _DOCUMENT.read_text("utf-8").split("```sql\n")[1:]]


class Looks:
    """Remembers from look to look what a leader does."""

    def __init__(self, directory: Path, toml: str) -> None:
        (directory / "unstall.toml").write_text(toml)
        self.registry = ConnectionRegistry(load({}, directory=directory))
        self.n8n = self.registry.config.n8n[0]
        self._young: Mapping[str, int] = {}

    def close(self) -> None:
        self.registry.close()

    def snapshot(self) -> Snapshot:
        return one_off_snapshot.take_snapshot(self.registry)

    def look(
        self,
        *,
        later: float = 0,
        grace: int = REPORTED_AFTER,
        between: Callable[[], object] = lambda: None,
        snapshot: Snapshot | None = None,
    ) -> N8nComparison:
        """As if so many seconds had passed."""
        now = now_ms() + round(later * 1000)
        wish = ComparisonRequest(snapshot or self.snapshot(), now, self._young, grace, between)
        found = compare(self.registry, self.n8n, wish)
        self._young = found.young
        return found

    def sees(self, kind: MismatchKind, *, later: float = 0, seconds: float = 15.0) -> JobExecutionPair:
        """Look twice, again and again, until there is one of this kind."""

        def one() -> JobExecutionPair | None:
            return next((pair for pair in self.settled(later=later).pairs if kinds(pair) is kind), None)

        return until(one, seconds, kind)

    def settled(self, *, later: float = 0) -> N8nComparison:
        """The second of two looks a minute apart: what only the first could meet is known by then."""
        self.look(later=later)
        return self.look(later=later + 60)


def kinds(pair: JobExecutionPair) -> MismatchKind | None:
    return pair.finding.kind if pair.finding else None


def is_taken(yard: Yard, job: str, pool: str = "") -> bool:
    return yard.queue(pool).counts()["active"] > 0
