"""Analyzes what a configuration does to jobs whose worker is stopped or killed: timing, prediction, findings, patches.
No file and no Redis is read here.
"""
