"""Extends Django's PostgreSQL backend by a connection pool that requests share: `ENGINE = "dashboard.postgres"`."""
