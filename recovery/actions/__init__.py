"""The only door that changes a queue."""
