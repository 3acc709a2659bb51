"""Counts what /metrics exports from the database, so that no scrape has to query it."""
