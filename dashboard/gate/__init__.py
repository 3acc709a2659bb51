"""Serves /cpu-gate, which tells from the memory of this web process whether heavy work may start on a server now."""
