"""What is there: queues found, looked at, and their numbers kept."""
