"""Compares n8n's jobs in Redis with its executions in PostgreSQL, and reads what actions on them need."""
