"""Recovery hooks: update the application's row or call its function when a job was lost or recovered."""
