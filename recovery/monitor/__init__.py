"""The agent that each server runs: neither Django nor the database, one small hash in the state store."""
