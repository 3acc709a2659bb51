"""Orphan watch: checks active jobs every few seconds for verdicts and incidents, and if Redis itself lost locks."""
