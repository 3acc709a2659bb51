"""Django's PostgreSQL backend with connections that requests share: `ENGINE = "dashboard.postgres"`."""
