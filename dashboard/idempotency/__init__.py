"""/api/v1/idempotency: claims of work that must not run twice, answered beside Django."""
