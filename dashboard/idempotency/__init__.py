"""Serves /api/v1/idempotency beside Django: claims on work that must not run twice."""
