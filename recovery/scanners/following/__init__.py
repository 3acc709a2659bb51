"""What the application is told when its job was lost or recovered."""
