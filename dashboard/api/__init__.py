"""/api/v1: what the pages show and do, for programs. Tokens only; every failure has one shape."""
