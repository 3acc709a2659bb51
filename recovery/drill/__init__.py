"""Fire drills: a disposable queue with real workers, one of which is killed, and the time until its job is back."""
