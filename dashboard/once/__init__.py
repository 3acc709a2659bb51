"""/api/v1/once: claims of work that must not run twice, answered beside Django."""
