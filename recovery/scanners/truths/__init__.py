"""The look at n8n's jobs and executions beside each other, on an interval of its own; it only reads."""
