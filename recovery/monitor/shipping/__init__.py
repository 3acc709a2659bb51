"""The log lines of a server on their way to the state store: read where they are written, packed, each brought once."""
