"""The secret key of every process of a test run: what one of them signs, all of them verify."""

# Long enough for Django's own check.
SECRET_KEY = "tests-only-" + "k" * 64
