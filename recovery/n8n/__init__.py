"""n8n's own database: what its tables look like from version to version, and reads of them in small steps."""
