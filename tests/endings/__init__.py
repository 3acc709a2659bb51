"""How workers end, recorded from the real libraries: `python -m tests.endings` writes tests/golden/endings, and a pure
test asks of each what the console says was the cause.
"""
