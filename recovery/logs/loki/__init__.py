"""Reads lines out of a Loki, over its HTTP API and with whatever labels it has."""

from recovery.logs.loki.source import LokiSource

__all__ = ["LokiSource"]
