"""Which execution started a sub-workflow, read from the beginning of what n8n has kept of it."""

from __future__ import annotations

import pytest

from recovery.n8n.database.run_data_inspection import parent_of

# As flatted 3 writes what n8n-workflow of n8n 2.41.1 makes for a sub-workflow (`getRunData`).
WRITTEN = (
    '[{"version":1,"startData":"1","resultData":"2","executionData":"3","parentExecution":"4","resumeToken":"5"},{},'
    '{"runData":"6"},{"contextData":"7","nodeExecutionStack":"8","metadata":"9","waitingExecution":"10",'
    '"waitingExecutionSource":"11"},{"executionId":"12","workflowId":"13","shouldResume":true},"acba168f",{},{},'
    '["14"],{},{},{},"4711","wfParent",{"node":"15","data":"16","metadata":"17","source":null},'
    '{"name":"18"},{"main":"19"},{"parentExecution":"4"},"Start",["20"],["21"],{"json":"22"},{"a":"23"},"xxx"]'
)
_ID_ENDS = WRITTEN.index('"4711"') + len('"4711"')


def test_it_is_found_however_much_of_the_rest_is_cut_off() -> None:
    found = {at: parent_of(WRITTEN[:at]) for at in range(len(WRITTEN) + 1)}
    assert {at for at, parent in found.items() if parent == "4711"} == set(range(_ID_ENDS, len(WRITTEN) + 1))
    assert set(found.values()) == {"", "4711"}


@pytest.mark.parametrize(
    "written",
    ["", "[", "no JSON", "{}", "[[]]", "[1]", '["1"]', '[{"parentExecution":"9"}]', '[{"parentExecution":"1"},{}]',
     '[{"parentExecution":"1"},{"executionId":"2"},"-1"]', '[{"parentExecution":"0"}]', "[" * 9_000,
     '[{"parentExecution":"1"},{"executionId":"2"},"1; DROP TABLE x"]'],
)  # fmt: skip
def test_what_n8n_does_not_write_tells_of_none(written: str) -> None:
    assert parent_of(written) == ""
