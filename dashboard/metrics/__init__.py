"""Serves /metrics from the memory of this web process, in the formats of Prometheus; reads no store, no database."""
