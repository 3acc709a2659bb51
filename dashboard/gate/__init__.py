"""/cpu-gate: whether heavy work may start on a server now, answered from the memory of this process."""
