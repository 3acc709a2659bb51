"""Backend of job tables: rows of a SQL database as jobs, each with its state in a column."""
