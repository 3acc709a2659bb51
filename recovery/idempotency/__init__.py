"""Keeps the ledger of work that must not run twice: claims with a fencing token, in the state store."""
