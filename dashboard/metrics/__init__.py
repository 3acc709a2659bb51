"""/metrics: what this web process has in memory, in the words of Prometheus. It asks no store and no database."""
