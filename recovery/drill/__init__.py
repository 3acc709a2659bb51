"""Fire drills: a disposable queue with real workers, one of which is ended while somebody holds the watch."""
