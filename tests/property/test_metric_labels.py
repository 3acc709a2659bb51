"""Labels: whatever bytes a name has, a scraper reads one name for it, and never the same for two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from dashboard.metrics.exposition import MetricFamily, MetricsFormat, render_families
from dashboard.metrics.labels import LONGEST, format_labels, label
from recovery.domain.identifiers import decode_name

ANY = MetricFamily("unstall_any", "Any.")
names = st.one_of(
    st.binary(max_size=300).map(decode_name),
    st.text('~aA0F\\"\n{}%,= ÿ\udcff␀\x00�', max_size=12),
    st.text(max_size=400).map(lambda name: decode_name(name.encode("utf-8", "replace"))),
)


@given(st.lists(names, unique=True, max_size=20))
@pytest.mark.parametrize("dialect", MetricsFormat)
def test_names_go_through_and_stay_apart(dialect: MetricsFormat, found: list[str]) -> None:
    told = "".join(
        render_families([(ANY, [ANY.of(format_labels(name=name), index) for index, name in enumerate(found)])], dialect)
    )
    families = open_families(told + "# EOF\n") if dialect is MetricsFormat.OPEN else text_families(told)
    read = {sample.labels["name"]: sample.value for family in families for sample in family.samples}
    assert read == {label(name): index for index, name in enumerate(found)}
    assert len(read) == len(found)
    assert all(len(name) <= LONGEST for name in read)
