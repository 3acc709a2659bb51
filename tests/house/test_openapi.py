"""What client generators need of the OpenAPI document. `make test-all` runs the generators themselves."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dashboard.api.openapi import document


def test_every_operation_has_an_id_of_its_own_that_is_an_identifier() -> None:
    """Generators name a function or a module after it."""
    found = [operation.get("operationId", "") for calls in document()["paths"].values() for operation in calls.values()]
    assert len(found) > 30
    assert [id for id in found if not re.fullmatch(r"[a-z][a-z0-9_]*", id) or keyword.iskeyword(id)] == []
    assert [id for id, count in Counter(found).items() if count > 1] == []


def test_no_schema_uses_all_of() -> None:
    """openapi-python-client leaves out each operation that meets `allOf` beside a default."""
    assert [place for place, schema in _schemas(document(), "") if "allOf" in schema] == []


def test_no_schema_has_a_member_of_its_own_name() -> None:
    """openapi-python-client uses one variable for both, so what it writes does not type-check."""
    schemas = document()["components"]["schemas"]
    violations = [name for name, schema in schemas.items() if _snake(name) in schema.get("properties", {})]
    assert violations == []


def _schemas(part: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the document, and where it stands."""
    if isinstance(part, dict):
        yield place, part
    members = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, member in members:
        yield from _schemas(member, f"{place}/{name}")


def _snake(name: str) -> str:
    """`ActionOrder` → `action_order`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
