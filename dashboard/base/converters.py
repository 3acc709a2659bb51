"""Converts names of Redis for URLs: any bytes as one readable segment."""

from __future__ import annotations

from django.urls import register_converter

from recovery.domain.identifiers import slug, unslug


class RedisNameConverter:
    """Path converter `<name:base>` for a base or an id. What `slug` cannot have made is not found."""

    regex = r"[A-Za-z0-9_.:{}~-]+"

    def to_python(self, value: str) -> str:
        return unslug(value)

    def to_url(self, value: str) -> str:
        return slug(value)


register_converter(RedisNameConverter, "name")
