"""The ledger of work that must not run twice: claims with a fencing token, kept in the state store."""
