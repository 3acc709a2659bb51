"""Parses environment files, compose files and Kubernetes manifests, within limits, into the values that the tuning
rules check.
"""
