"""n8n's truth: its jobs in Redis and its executions in PostgreSQL beside each other."""
