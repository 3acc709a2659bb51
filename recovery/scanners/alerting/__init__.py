"""What is told to people who do not look: troubles are noticed, kept as alerts, and delivered."""
