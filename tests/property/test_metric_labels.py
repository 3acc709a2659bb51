"""Labels: whatever bytes a name has, a scraper reads one name for it, and never the same for two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from dashboard.metrics.labels import LONGEST, label, labelled
from dashboard.metrics.text import Dialect, Family, written
from recovery.domain.refs import text

ANY = Family("unstall_any", "Any.")
names = st.one_of(
    st.binary(max_size=300).map(text),
    st.text('~aA0F\\"\n{}%,= ÿ\udcff␀\x00�', max_size=12),
    st.text(max_size=400).map(lambda name: text(name.encode("utf-8", "replace"))),
)


@given(st.lists(names, unique=True, max_size=20))
@pytest.mark.parametrize("dialect", Dialect)
def test_names_go_through_and_stay_apart(dialect: Dialect, found: list[str]) -> None:
    told = "".join(written([(ANY, [ANY.of(labelled(name=name), index) for index, name in enumerate(found)])], dialect))
    families = open_families(told + "# EOF\n") if dialect is Dialect.OPEN else text_families(told)
    read = {sample.labels["name"]: sample.value for family in families for sample in family.samples}
    assert read == {label(name): index for index, name in enumerate(found)}
    assert len(read) == len(found)
    assert all(len(name) <= LONGEST for name in read)
