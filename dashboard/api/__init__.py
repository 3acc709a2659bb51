"""Serves /api/v1: what the pages show and do, for programs. It takes tokens only; every failure has one shape."""
